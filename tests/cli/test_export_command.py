"""``attention-cem export``."""

from __future__ import annotations

import shutil

import pytest

from attention_cem.cli.main import main
from attention_cem.shipping import open_bundle
from attention_cem.training import train
from tests.training.helpers import tiny_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that no test changes."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(tiny_config(folder, train__epochs=1))
    return folder


def test_export__writes_a_bundle_and_says_what_was_checked(trained, tmp_path, capsys):
    assert main(["export", str(trained), "-o", str(tmp_path / "bundle"), "--name", "shapes"]) == 0
    printed = capsys.readouterr().out
    assert "client against torch" in printed and "drawn by the runtime" in printed
    assert open_bundle(tmp_path / "bundle").name == "shapes"


@pytest.mark.parametrize("which", ["best", "last"])
def test_export__an_unfinished_run_is_exported_with_a_warning(trained, tmp_path, capsys, which):
    warning = "warning: the run is not finished: these are the weights of epoch 1\n"
    run = shutil.copytree(trained, tmp_path / "run")
    assert main(["export", str(run), "-o", "finished", "--which", which]) == 0
    assert warning not in capsys.readouterr().err
    (run / "run.json").unlink()
    assert main(["export", str(run), "-o", "unfinished", "--which", which]) == 0
    assert capsys.readouterr().err.count(warning) == 1


def test_export__refusals_are_one_line(tmp_path, capsys):
    assert main(["export", str(tmp_path / "absent"), "-o", str(tmp_path / "bundle")]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "is no run folder" in errors


def test_export__a_place_below_a_file_is_refused_in_one_line(trained, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert main(["export", str(trained), "-o", "file/x"]) == 2
    told = "file/x cannot be made: file is a file; name another place with -o"
    assert capsys.readouterr().err == f"attention-cem export: error: {told}\n"


def test_export__damaged_weights_come_with_a_remedy_that_works(trained, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    best = run / "checkpoints" / "best.safetensors"
    best.write_bytes(best.read_bytes()[:500])
    assert main(["export", str(run), "-o", "bundle"]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "best.safetensors is damaged" in errors and "--which last" in errors
    assert f"attention-cem train --config {run / 'config.toml'} --run.folder NEW" in errors
    assert main(["export", str(run), "-o", "bundle", "--which", "last"]) == 0


def test_export__an_untrained_folder_is_to_be_trained(trained, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copyfile(trained / "config.toml", run / "config.toml")
    for which in ("best", "last"):
        assert main(["export", str(run), "-o", "bundle", "--which", which]) == 2
        errors = capsys.readouterr().err
        assert f"has no {which} checkpoint yet; train it: attention-cem train --resume {run}\n" in errors
