import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from attention_cem.training import CheckpointError, Observer, TrainingInterrupted, load_run, train
from attention_cem.training.best_weights import BestWeights
from attention_cem.training.checkpoint import Checkpoint, read_checkpoint, step_checkpoints, step_path, write_checkpoint

from .helpers import assert_same_tensors, tiny_config


class Folder:
    """A checkpoint folder and its keeper, as a trainer uses them."""

    def __init__(self, path: Path) -> None:
        self.path, self.best = path, path / "best.safetensors"
        self.keeper = BestWeights(self.path, self.best)

    def improve(self, epoch: int) -> torch.Tensor:
        weights = torch.full((3,), float(epoch))
        self.keeper.keep(epoch, Checkpoint({"model.weight": weights}, {"best_epoch": epoch}))
        return weights

    def commit(self, steps: int, best_epoch: int) -> None:
        step = Checkpoint({"model.weight": torch.zeros(3)}, {"steps": steps, "best_epoch": best_epoch})
        self.keeper.write()
        write_checkpoint(step_path(self.path, steps), step)
        self.keeper.publish(best_epoch)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())

    def published(self) -> float:
        return float(read_checkpoint(self.best).tensors["model.weight"][0])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_best_weights__are_a_copy_in_memory_until_a_checkpoint_is_written(folder: Folder) -> None:
    weights = folder.improve(1)
    assert folder.names() == []
    weights.fill_(7.0)  # training goes on in the same tensors
    folder.commit(4, best_epoch=1)
    assert folder.published() == 1.0


def test_best_weights__only_the_best_of_several_epochs_is_written(folder: Folder) -> None:
    for epoch in (1, 2, 3):
        folder.improve(epoch)
    folder.commit(12, best_epoch=3)
    assert folder.names() == ["best-00003.safetensors", "best.safetensors", "step-000000012.safetensors"]
    assert folder.published() == 3.0


def test_best_weights__nothing_is_written_again_without_a_new_best(folder: Folder) -> None:
    folder.improve(1)
    folder.commit(4, best_epoch=1)
    before = folder.best.stat()
    folder.commit(8, best_epoch=1)
    assert folder.best.stat() == before


def test_best_weights__public_file_takes_no_second_room_on_the_disk(folder: Folder) -> None:
    folder.improve(1)
    folder.commit(4, best_epoch=1)
    assert os.path.samefile(folder.best, folder.path / "best-00001.safetensors")


def test_best_weights__where_links_are_impossible_the_file_is_copied(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    folder.improve(1)
    folder.commit(4, best_epoch=1)
    folder.improve(2)
    folder.commit(8, best_epoch=2)
    assert folder.published() == 2.0
    assert not os.path.samefile(folder.best, folder.path / "best-00002.safetensors")
    before = folder.best.stat()
    folder.commit(12, best_epoch=2)
    assert folder.best.stat() == before, "copied once"


def test_best_weights__those_of_the_kept_checkpoints_stay_and_no_others(folder: Folder) -> None:
    for epoch in (1, 2, 3):
        folder.improve(epoch)
        folder.commit(4 * epoch, best_epoch=epoch)
    step_path(folder.path, 4).unlink()
    folder.keeper.publish(3)
    assert [name for name in folder.names() if name.startswith("best-")] == [
        "best-00002.safetensors",
        "best-00003.safetensors",
    ]


def test_best_weights__of_a_process_that_died_before_its_checkpoint_are_forgotten(folder: Folder) -> None:
    folder.improve(1)
    folder.commit(4, best_epoch=1)
    folder.improve(2)
    folder.keeper.write()
    again = Folder(folder.path)
    again.keeper.settle(1)
    assert again.names() == ["best-00001.safetensors", "best.safetensors", "step-000000004.safetensors"]
    assert again.published() == 1.0


def test_best_weights__of_a_process_that_died_after_its_checkpoint_are_published(folder: Folder) -> None:
    folder.improve(1)
    folder.keeper.write()
    write_checkpoint(step_path(folder.path, 4), Checkpoint({}, {"best_epoch": 1}))
    assert not folder.best.exists()
    Folder(folder.path).keeper.settle(1)
    assert folder.published() == 1.0


def test_best_weights__going_back_one_checkpoint_brings_its_best_back(folder: Folder) -> None:
    for epoch in (1, 2):
        folder.improve(epoch)
        folder.commit(4 * epoch, best_epoch=epoch)
    step_path(folder.path, 8).unlink()  # damaged, and deleted as the error advises
    Folder(folder.path).keeper.settle(1)
    assert folder.published() == 1.0
    assert folder.names() == ["best-00001.safetensors", "best.safetensors", "step-000000004.safetensors"]


def test_best_weights__a_run_that_starts_over_has_none(folder: Folder) -> None:
    folder.improve(1)
    folder.commit(4, best_epoch=1)
    step_path(folder.path, 4).unlink()
    Folder(folder.path).keeper.settle(0)
    assert folder.names() == []


def test_best_weights__a_folder_with_the_public_file_alone_is_accepted_if_it_is_the_right_one(folder: Folder) -> None:
    write_checkpoint(folder.best, Checkpoint({}, {"best_epoch": 3}))
    write_checkpoint(step_path(folder.path, 4), Checkpoint({}, {"best_epoch": 3}))
    folder.keeper.settle(3)
    folder.commit(8, best_epoch=3)
    assert read_checkpoint(folder.best).facts["best_epoch"] == 3
    with pytest.raises(CheckpointError, match="epoch 2 was the best.*best.safetensors holds epoch 3"):
        folder.keeper.settle(2)
    folder.best.unlink()
    with pytest.raises(CheckpointError, match="best-00003.safetensors is missing"):
        folder.keeper.settle(3)


def test_best_weights__an_unreadable_older_checkpoint_does_not_stop_the_run(folder: Folder) -> None:
    for epoch in (1, 2):
        folder.improve(epoch)
        folder.commit(4 * epoch, best_epoch=epoch)
    step_path(folder.path, 4).write_bytes(b"\xff" * 40)
    folder.keeper.publish(2)
    assert folder.published() == 2.0 and not (folder.path / "best-00001.safetensors").exists()


class Written(Observer):
    """After every epoch: which checkpoints lie there."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.seen = folder, list[list[str]]()

    def epoch_done(self, row: Any) -> None:
        self.seen.append(sorted(path.name for path in (self._folder / "checkpoints").iterdir()))


def rising(config: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, observer: Observer | None = None) -> Any:
    """Train with a validation that rises in every epoch."""
    from attention_cem.training import trainer

    score, calls = trainer.score, []

    def better(*arguments: Any, **options: Any) -> Any:
        found = score(*arguments, **options)
        calls.append(found)
        return type(found)(found.loss, len(calls) / 100, found.balanced_accuracy)

    with monkeypatch.context() as patched:
        patched.setattr(trainer, "score", better)
        return train(config, observer=observer)


def test_train__a_new_best_waits_for_the_next_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    watched = Written(folder)
    config = tiny_config(folder, train__epochs=5, run__checkpoint_epochs=3)
    result = rising(config, folder, monkeypatch, watched)
    third = ["best-00003.safetensors", "best.safetensors", "step-000000012.safetensors"]
    assert watched.seen == [[], [], [], third, third], "an epoch is told before its checkpoint is written"
    assert result.best_epoch == 5 and read_checkpoint(folder / "checkpoints" / "best.safetensors").facts["epoch"] == 5
    assert load_run(folder).facts["best_epoch"] == 5


def test_train__a_finished_run_keeps_one_best_file(tmp_path: Path) -> None:
    train(tiny_config(tmp_path / "run"))
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("best*"))
    assert names == ["best.safetensors"]


def test_train__the_best_does_not_depend_on_how_often_checkpoints_are_written(tmp_path: Path) -> None:
    often, rarely = (tmp_path / name for name in ("often", "rarely"))
    train(tiny_config(often, train__epochs=4, run__checkpoint_epochs=1))
    train(tiny_config(rarely, train__epochs=4, run__checkpoint_epochs=100))
    best = [read_checkpoint(folder / "checkpoints" / "best.safetensors") for folder in (often, rarely)]
    assert_same_tensors(*best)
    assert [len(step_checkpoints(folder / "checkpoints")) for folder in (often, rarely)] == [2, 1]


class StopInSecondEpoch(Observer):
    def step(self, epoch: int, batch: int) -> None:
        if (epoch, batch) == (2, 2):
            os.kill(os.getpid(), 2)


def test_train__a_stop_request_writes_the_best_that_was_in_memory(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(TrainingInterrupted):
        train(tiny_config(folder, run__checkpoint_epochs=100), observer=StopInSecondEpoch())
    assert read_checkpoint(folder / "checkpoints" / "best.safetensors").facts["best_epoch"] == 1
    assert [path.name for path in step_checkpoints(folder / "checkpoints")] == ["step-000000006.safetensors"]


def test_train__a_run_whose_best_weights_are_gone_says_so_before_it_trains_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(TrainingInterrupted):
        train(tiny_config(folder), observer=StopInSecondEpoch())
    for path in (folder / "checkpoints").glob("best*"):
        path.unlink()
    with pytest.raises(CheckpointError, match="epoch 1 was the best so far, but best-00001.safetensors is missing"):
        train(tiny_config(folder, run__resume=True))


def test_train__the_clock_writes_the_best_that_was_in_memory(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    watched = Written(folder)
    train(tiny_config(folder, run__checkpoint_epochs=100, run__checkpoint_seconds=1e-6), observer=watched)
    assert "best-00001.safetensors" in watched.seen[1] and "best.safetensors" in watched.seen[1]
