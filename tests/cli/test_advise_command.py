"""``attention-cem advise``; what it measures is tested in tests/shipping."""

from __future__ import annotations

from attention_cem.cli.main import main


def test_advise__unknown_backbone_and_data_are_refused_in_one_line(tmp_path, capsys):
    assert main(["advise", "tiny_cn", "--limit", "40", "--quiet", "-o", str(tmp_path / "a")]) == 2
    errors = capsys.readouterr().err
    assert "tiny_cnn" in errors and errors.count("\n") == 1
    assert main(["advise", "tiny_cnn", "--data", "cifar99", "--quiet", "-o", str(tmp_path / "b")]) == 2
    assert "cifar" in capsys.readouterr().err
