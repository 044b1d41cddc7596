"""``attention-cem advise``; what it measures is tested in tests/shipping."""

from __future__ import annotations

from pathlib import Path

import pytest

from attention_cem.cli.main import main


def test_advise__unknown_backbone_and_data_are_refused_in_one_line(tmp_path, capsys):
    assert main(["advise", "tiny_cn", "--limit", "40", "--quiet", "-o", str(tmp_path / "a")]) == 2
    errors = capsys.readouterr().err
    assert "tiny_cnn" in errors and errors.count("\n") == 1
    assert main(["advise", "tiny_cnn", "--data", "cifar99", "--quiet", "-o", str(tmp_path / "b")]) == 2
    assert "cifar" in capsys.readouterr().err


@pytest.fixture
def no_training(monkeypatch):
    """Whoever trains before everything was checked fails the test."""

    def trained(*arguments, **settings):
        raise AssertionError("trained before the request was checked")

    monkeypatch.setattr("attention_cem.shipping.whole_model.train_shortly", trained)
    monkeypatch.setattr("attention_cem.shipping.advisor.train_shortly", trained)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--cuts", "features.7", "features.99"], "features.99"),
        (["--sigma", "-1"], "expected sigma ≥ 0 and finite, received -1"),
        (["--sigma", "nan"], "expected sigma ≥ 0 and finite, received nan"),
        (["--epochs", "0"], "expected epochs ≥ 1, received 0"),
        (["--epochs", "-2"], "expected epochs ≥ 1, received -2"),
        (["--base-epochs", "-1"], "expected base_epochs ≥ 1, received -1"),
        (["--most", "0"], "expected most ≥ 1, received 0"),
        (["--most-client-ms", "-3"], "expected most_client_ms > 0, received -3"),
        (["--accuracy-slack", "-1"], "expected accuracy_slack ≥ 0, received -1"),
    ],
)
def test_advise__impossible_settings_are_refused_before_training(options, told, no_training, capsys):
    assert main(["advise", "tiny_cnn", "--limit", "40", "--quiet", "-o", "new", *options]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("attention-cem advise: error: ") and errors.count("\n") == 1 and told in errors
    assert not Path("new").exists()


def test_advise__an_occupied_folder_is_refused_first_and_by_name(tmp_path, no_training, capsys):
    (tmp_path / "used" / "whole").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    for place, told in (
        ("used", "used is not empty; name another folder with -o"),
        ("file", "file is a file, expected a folder; name another folder with -o"),
        ("file/x", "file/x cannot be made: file is a file; name another place with -o"),
    ):
        assert main(["advise", "tiny_cnn", "--limit", "40", "--quiet", "-o", place]) == 2
        errors = capsys.readouterr().err
        assert errors == f"attention-cem advise: error: {told}\n"
