from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from attention_cem.attacks import Challenge
from attention_cem.cli.main import main
from attention_cem.data import synthetic_images
from attention_cem.training import train
from tests.training.helpers import tiny_config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(tiny_config(folder, train__epochs=1))
    return folder


def test_challenge__is_written_into_the_run_folder_and_described(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["challenge", str(run)]) == 0
    told = capsys.readouterr().out
    challenge = Challenge(run / "challenge")
    assert str(run / "challenge") in told and challenge.id in told
    assert "40 images, each released once" in told and "80 images" in told
    assert "leave it out when you pass the challenge on" in told
    assert main(["challenge", str(run)]) == 2
    refused = capsys.readouterr().err
    assert refused.startswith("attention-cem challenge: error: ") and refused.count("\n") == 1
    assert "never overwritten" in refused


def test_challenge__black_box_and_limit(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "given"
    assert main(["challenge", str(run), "-o", str(out), "--black-box", "--limit", "16"]) == 0
    assert "kept back (black-box)" in capsys.readouterr().out
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["test_images"] == manifest["attacker_images"] == 16
    assert "client.json" not in manifest["files"]


def test_challenge__the_command_that_scores_it_can_be_pasted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "to give"
    assert main(["challenge", str(run), "-o", str(out), "--limit", "16"]) == 0
    command = capsys.readouterr().out.partition("score it with")[2]
    assert shlex.split(command) == ["attention-cem", "audit", str(out)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "RUN"),
        (["nowhere"], "nowhere is no run folder"),
        (["RUN", "--limit", "0"], "at least 1, got '0'"),
        (["RUN", "--blackbox"], "did you mean --black-box?"),
        (["RUN", "other"], "unexpected argument 'other'"),
        (["RUN", "-o", "new", "--device", "abacus"], "unknown device 'abacus'"),
        (["RUN", "-o", "new", "--device", "cuda:99"], "'cuda:99' is not there"),
        (["RUN", "-o", "RUN/run.json/x"], "run.json is a file; name another place with -o"),
        (["RUN", "-o", "new", "--limit", "1"], "at least 2 attacker images and 1 test image, got 1 and 1"),
    ],
)
def test_challenge__bad_requests_are_refused_in_one_line(
    run: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["challenge", *(each.replace("RUN", str(run)) for each in arguments)]) == 2
    refused = capsys.readouterr().err
    assert refused.startswith("attention-cem challenge: error: ") and refused.count("\n") == 1
    assert told in refused
    assert not Path("new").exists()


def test_challenge__a_damaged_checkpoint_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tiny_config(tmp_path / "run", train__epochs=1))
    best = tmp_path / "run" / "checkpoints" / "best.safetensors"
    best.write_bytes(best.read_bytes()[:500])
    assert main(["challenge", str(tmp_path / "run")]) == 1
    told = capsys.readouterr().err
    assert "best.safetensors is damaged" in told and told.count("\n") == 1
    assert f"train the run again: attention-cem train --config {tmp_path / 'run' / 'config.toml'}" in told


def test_challenge__an_untrained_folder_is_to_be_trained(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.toml").write_bytes((run / "config.toml").read_bytes())
    assert main(["challenge", str(tmp_path / "new")]) == 1
    assert f"train it: attention-cem train --resume {tmp_path / 'new'}\n" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{}", '{"test": null}', '{"test": {"accuracy', "[]"])
def test_challenge__a_damaged_run_json_is_named_with_a_remedy_that_works(
    content: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "run"
    shutil.copytree(run, damaged, ignore=shutil.ignore_patterns("challenge"))
    (damaged / "run.json").write_text(content)
    assert main(["challenge", str(damaged)]) == 2
    told = capsys.readouterr().err
    assert f"{damaged / 'run.json'} is damaged or incomplete" in told and told.count("\n") == 1
    assert f"delete it and call `attention-cem train --resume {damaged}`" in told
    (damaged / "run.json").unlink()
    assert main(["train", "--resume", str(damaged), "--quiet"]) == 0
    assert main(["challenge", str(damaged)]) == 0


def test_challenge__missing_data_are_named_with_the_way_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = dict.fromkeys(f"data__options__{name}" for name in ("size", "num_classes", "num_train", "num_test"))
    config = tiny_config(tmp_path / "run", train__epochs=1, data__name="cifar10", **own)
    train(config, data=synthetic_images(num_train=80, num_test=40, num_classes=4, size=16))
    assert main(["challenge", str(tmp_path / "run"), "--data-root", str(tmp_path)]) == 2
    refused = capsys.readouterr().err
    assert "How to get it" in refused and refused.count("\n") == 1
