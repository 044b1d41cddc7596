import errno
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from attention_cem.training import CheckpointError
from attention_cem.training.checkpoint import (
    Checkpoint,
    drop_old_checkpoints,
    join_parts,
    read_checkpoint,
    step_checkpoints,
    step_path,
    write_checkpoint,
)
from attention_cem.training.optimisers import load_optimiser_state, optimiser_state


def sample(step: int = 1) -> Checkpoint:
    tensors = {
        "model.weight": torch.randn(3, 4, generator=torch.Generator().manual_seed(step)),
        "model.half": torch.ones(2, dtype=torch.bfloat16),
        "meter.count": torch.tensor(step),
        "empty": torch.zeros(0, 5),
        "flags": torch.tensor([True, False]),
    }
    return Checkpoint(tensors, {"steps": step, "names": ["a", "ü"]})


def test_checkpoint__is_read_back_bit_for_bit(tmp_path: Path) -> None:
    path = step_path(tmp_path, 1)
    write_checkpoint(path, sample())
    again = read_checkpoint(path)
    assert again.facts["steps"] == 1 and again.facts["names"] == ["a", "ü"]
    assert again.tensors.keys() == sample().tensors.keys()
    for key, value in sample().tensors.items():
        assert again.tensors[key].dtype == value.dtype and torch.equal(again.tensors[key], value), key
    assert list(tmp_path.iterdir()) == [path], "nothing unfinished is left beside it"


def test_checkpoint__parts_are_the_inverse_of_joining() -> None:
    parts = {"model": {"a.b": torch.ones(1)}, "surrogate": {"c": torch.zeros(2)}}
    checkpoint = Checkpoint(join_parts(**parts), {})
    assert checkpoint.part("model").keys() == {"a.b"} and checkpoint.part("surrogate").keys() == {"c"}


def test_checkpoint__tied_weights_can_be_written(tmp_path: Path) -> None:
    shared = torch.ones(3)
    write_checkpoint(tmp_path / "x.safetensors", Checkpoint({"a": shared, "b": shared, "c": shared[1:]}, {}))
    assert torch.equal(read_checkpoint(tmp_path / "x.safetensors").tensors["c"], shared[1:])


@pytest.mark.parametrize("length", [0, 4, 20, 200, -1])
def test_checkpoint__cut_short_is_refused_and_the_one_before_is_named(tmp_path: Path, length: int) -> None:
    for step in (1, 2):
        write_checkpoint(step_path(tmp_path, step), sample(step))
    newest = step_path(tmp_path, 2)
    newest.write_bytes(newest.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"damaged or was cut short.*step-000000001.safetensors beside it"):
        read_checkpoint(newest)
    assert read_checkpoint(step_path(tmp_path, 1)).facts["steps"] == 1


def test_checkpoint__a_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = step_path(tmp_path, 1)
    write_checkpoint(path, sample())
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(path)


def test_checkpoint__foreign_files_are_refused_and_nothing_is_executed(tmp_path: Path) -> None:
    path = tmp_path / "step-000000001.safetensors"
    torch.save({"a": torch.ones(1)}, path)
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(path)
    with pytest.raises(CheckpointError, match="No such file"):
        read_checkpoint(tmp_path / "absent.safetensors")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_checkpoint__a_full_disk_leaves_the_previous_one_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "best.safetensors"
    write_checkpoint(path, sample(1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(CheckpointError, match="the disk is full.*intact"):
        write_checkpoint(path, sample(2))
    monkeypatch.undo()
    assert read_checkpoint(path).facts["steps"] == 1
    assert list(tmp_path.iterdir()) == [path]


def test_drop_old_checkpoints__keeps_the_newest_two_and_other_files(tmp_path: Path) -> None:
    for step in (1, 20, 300):
        write_checkpoint(step_path(tmp_path, step), sample(step))
    (tmp_path / "best.safetensors").touch()
    (tmp_path / "step-note.txt").touch()
    drop_old_checkpoints(tmp_path)
    assert [path.name for path in step_checkpoints(tmp_path)] == [
        "step-000000020.safetensors",
        "step-000000300.safetensors",
    ]
    assert (tmp_path / "best.safetensors").exists() and (tmp_path / "step-note.txt").exists()


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_optimiser_state__continues_bit_for_bit(kind: str) -> None:
    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        make_one = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[kind]
        arguments = {"momentum": 0.9} if kind == "sgd" else {}
        return model, make_one(model.parameters(), lr=0.1, **arguments)

    def steps(model: nn.Module, optimiser: torch.optim.Optimizer, count: int) -> None:
        for _ in range(count):
            optimiser.zero_grad()
            model(torch.ones(2, 4)).square().sum().backward()
            optimiser.step()

    model, optimiser = make()
    steps(model, optimiser, 3)
    state = {key: value.clone() for key, value in optimiser_state(optimiser).items()}
    other, fresh = make()
    other.load_state_dict(model.state_dict())
    load_optimiser_state(fresh, state)
    steps(model, optimiser, 3)
    steps(other, fresh, 3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    with pytest.raises(ValueError, match="belongs to none"):
        load_optimiser_state(fresh, {"9.momentum_buffer": torch.zeros(1)})
    with pytest.raises(ValueError, match="has shape"):
        load_optimiser_state(fresh, {"0.momentum_buffer": torch.zeros(7)})
