import errno
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from attention_cem.training import CheckpointError, Observer, TrainingInterrupted, train, trainer
from attention_cem.training.checkpoint import read_checkpoint, step_checkpoints

from .helpers import SURROGATES, assert_same_tensors, last_checkpoint, tiny_config, with_surrogate, without_timings

STATEFUL = {
    "defence__adversarial_inverter__weight": 0.3,
    "defence__adversarial_inverter__width": 4,
    "defence__adversarial_inverter__blocks": 0,
    "defence__dropout__p": 0.1,
    "train__optimiser": "adamw",
    "train__lr": 0.002,
}
KILLED_AGAIN_AND_AGAIN = Path(__file__).with_name("killed_again_and_again.py")
KILLED_AT_EVERY_WRITE = Path(__file__).with_name("killed_at_every_write.py")


def stop_in_the_test_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for a stop as Ctrl-C does, while the trained model is scored on the test images."""
    test = trainer.Trainer.test

    def asked_to_stop(self: trainer.Trainer) -> Any:
        os.kill(os.getpid(), 2)
        return test(self)

    monkeypatch.setattr(trainer.Trainer, "test", asked_to_stop)


class StopAt(Observer):
    """Asks for a stop as Ctrl-C does, after some steps of this process; keeps what it is told."""

    def __init__(self, steps: int, said: list[str] | None = None) -> None:
        self._left = steps
        self._said = [] if said is None else said

    def message(self, text: str) -> None:
        self._said.append(text)

    def step(self, epoch: int, batch: int) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), 2)


def assert_same_run(ours: Path, theirs: Path) -> None:
    assert_same_tensors(last_checkpoint(ours), last_checkpoint(theirs))
    best = [read_checkpoint(folder / "checkpoints" / "best.safetensors") for folder in (ours, theirs)]
    assert_same_tensors(*best)
    rows = [[json.loads(line) for line in (folder / "metrics.jsonl").open()] for folder in (ours, theirs)]
    assert without_timings(rows[0]) == without_timings(rows[1])


@pytest.mark.parametrize("name", sorted(SURROGATES))
@pytest.mark.parametrize("others", [{}, STATEFUL], ids=["plain", "stateful"])
def test_resume__stopped_in_the_middle_of_epochs_continues_bit_for_bit(
    tmp_path: Path, name: str, others: Mapping[str, Any]
) -> None:
    overrides = {**with_surrogate(name), **others}
    train(tiny_config(tmp_path / "whole", **overrides))
    interrupted = tiny_config(tmp_path / "parts", **overrides)
    for steps in (2, 4, 3):
        with pytest.raises(TrainingInterrupted, match="train --resume"):
            train(interrupted, observer=StopAt(steps))
        interrupted = tiny_config(tmp_path / "parts", run__resume=True, **overrides)
    train(interrupted)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_resume__a_finished_run_returns_its_result(tmp_path: Path) -> None:
    first = train(tiny_config(tmp_path / "run", train__epochs=1))
    again = train(tiny_config(tmp_path / "run", train__epochs=1, run__resume=True))
    assert again == first


def test_train__a_stop_after_the_last_step_leaves_a_finished_run_and_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # broke: the request was lost, and a study went on with all its other cells
    stop_in_the_test_pass(monkeypatch)
    folder = tmp_path / "my run"
    with pytest.raises(TrainingInterrupted, match=f"train --resume '{folder}'$"):
        train(tiny_config(folder, train__epochs=1))
    assert (folder / "run.json").is_file() and (folder / "checkpoints" / "best.safetensors").is_file()
    assert train(tiny_config(folder, train__epochs=1, run__resume=True)).best_epoch == 1


def test_resume__an_alarm_that_was_said_is_not_said_again(tmp_path: Path) -> None:
    overrides = {"surrogate__name": "slot_cross", "surrogate__lambd": 1.0, "surrogate__arguments__slot_dim": 16}
    said: list[str] = []
    with pytest.raises(TrainingInterrupted):
        train(tiny_config(tmp_path / "run", **overrides), observer=StopAt(9, said))
    train(tiny_config(tmp_path / "run", run__resume=True, **overrides), observer=StopAt(99, said))
    shut = [text for text in said if "shut off on" in text]
    assert len(shut) == 1 and shut[0].startswith("[CEM-GATE] epoch 2: ")


def test_resume__a_run_of_a_version_that_counted_other_epochs_keeps_weights_that_count_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """λ so large that accuracy falls as soon as the surrogate acts, in epoch 4: an older version kept one before."""
    schedule = {"surrogate__attention_warmup_epochs": 3, "train__epochs": 8, "data__options__num_train": 160}
    overrides = with_surrogate("slot_mixture", lambd=300.0) | schedule
    monkeypatch.setattr(trainer, "first_counted_epoch", lambda config: 1)
    with pytest.raises(TrainingInterrupted):
        train(tiny_config(tmp_path / "run", **overrides), observer=StopAt(42))
    monkeypatch.undo()
    assert last_checkpoint(tmp_path / "run").facts["best_epoch"] < 4
    assert train(tiny_config(tmp_path / "run", run__resume=True, **overrides)).best_epoch >= 4


def test_resume__a_damaged_checkpoint_is_named_and_the_one_before_it_works(tmp_path: Path) -> None:
    train(tiny_config(tmp_path / "whole"))
    with pytest.raises(TrainingInterrupted):
        train(tiny_config(tmp_path / "run"), observer=StopAt(9))
    newest = step_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=rf"{newest.name} is damaged.*delete {newest.name} and resume"):
        train(tiny_config(tmp_path / "run", run__resume=True))
    newest.unlink()
    train(tiny_config(tmp_path / "run", run__resume=True))
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_resume__a_full_disk_stops_the_run_and_it_continues_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_config(tmp_path / "whole"))
    replace, writes = os.replace, []

    def fills_up(source: Any, target: Any) -> None:
        writes.append(target)
        if str(target).endswith("step-000000008.safetensors"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fills_up)
    with pytest.raises(CheckpointError, match=r"step-000000008.safetensors: the disk is full.*intact"):
        train(tiny_config(tmp_path / "run"))
    monkeypatch.undo()
    assert last_checkpoint(tmp_path / "run").facts["steps"] == 4
    train(tiny_config(tmp_path / "run", run__resume=True))
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def in_own_process(script: Path, *arguments: str) -> Any:
    """The JSON that a script prints last."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "overrides"),
    [
        (10, {"train__epochs": 12, "run__checkpoint_seconds": 0.02}),
        (5, {"train__epochs": 14, "run__checkpoint_epochs": 2}),
    ],
    ids=["by the clock", "every other epoch"],
)
def test_resume__killed_at_random_moments_equals_the_uninterrupted_run(
    tmp_path: Path, kills: int, overrides: dict[str, Any]
) -> None:
    overrides = {**with_surrogate("slot_cross"), **STATEFUL, **overrides}
    arguments = json.dumps({"overrides": overrides, "kills": kills, "seed": 0})
    report = in_own_process(KILLED_AGAIN_AND_AGAIN, str(tmp_path), arguments)
    print(report)
    assert report["kills"] == kills and len(set(report["steps_at_kill"])) > 3, "kills must hit different moments"
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.slow
def test_resume__killed_before_any_change_of_its_folder_equals_the_uninterrupted_run(tmp_path: Path) -> None:
    overrides = {"train__epochs": 3, "run__checkpoint_epochs": 2}
    found = in_own_process(KILLED_AT_EVERY_WRITE, str(tmp_path), json.dumps(overrides))
    print(found)
    for number, disk in enumerate(found, start=1):
        assert disk["best"] <= disk["best_of_newest"], "a best without its checkpoint"
        assert_same_run(tmp_path / f"killed-{number}", tmp_path / "whole")
    assert any(disk["best"] < disk["best_of_newest"] for disk in found), "one kill falls between the two files"
    assert {0, 1, 2} <= {len(disk["steps"]) for disk in found} and found[-1]["finished"]
