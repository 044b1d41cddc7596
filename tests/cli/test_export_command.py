"""``attention-cem export``."""

from __future__ import annotations

from attention_cem.cli.main import main
from attention_cem.shipping import open_bundle
from attention_cem.training import train
from tests.training.helpers import tiny_config


def test_export__writes_a_bundle_and_says_what_was_checked(tmp_path, capsys):
    train(tiny_config(tmp_path / "run", train__epochs=1))
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "bundle"), "--name", "shapes"]) == 0
    printed = capsys.readouterr().out
    assert "client against torch" in printed and "drawn by the runtime" in printed
    assert open_bundle(tmp_path / "bundle").name == "shapes"


def test_export__refusals_are_one_line(tmp_path, capsys):
    assert main(["export", str(tmp_path / "absent"), "-o", str(tmp_path / "bundle")]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "is no run folder" in errors
