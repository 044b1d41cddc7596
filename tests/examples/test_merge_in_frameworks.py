"""The two ways of merging at the cut that frameworks need give the gradients of `backward_at_cut`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_cem import SlotMixtureCEM, backward_at_cut, detach_at_cut
from attention_cem.defences import DefenceStack

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
LAMBD = 0.7


def example(name: str, *packages: str) -> ModuleType:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.client, self.server = nn.Linear(5, 8), nn.Linear(8, 3)


def gradients_of(step: Callable[[Halves, SlotMixtureCEM, Tensor, Tensor], Any], bad: bool = False) -> list[Tensor]:
    """Every gradient of one step, the second call of a surrogate that remembers a first batch."""
    torch.manual_seed(0)
    halves, surrogate = Halves().double(), SlotMixtureCEM(8, 3, reg_strength=0.5, bank_size=16).double()
    surrogate(torch.randn(24, 8, dtype=torch.float64), torch.arange(24) % 3)
    if bad:
        surrogate.noise_variance = float("nan")
    x, y = torch.randn(12, 5, dtype=torch.float64), torch.arange(12) % 3
    step(halves, surrogate, x, y)
    parameters = [*halves.parameters(), *surrogate.parameters()]
    return [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]


def reference(halves: Halves, surrogate: SlotMixtureCEM, x: Tensor, y: Tensor) -> None:
    z = halves.client(x)
    feature = detach_at_cut(z)
    task_loss = F.cross_entropy(halves.server(feature), y)
    backward_at_cut(z, feature, task_loss, surrogate(feature, y).rob_loss, lambd=LAMBD, estimator=surrogate)


@pytest.mark.parametrize("bad", [False, True])
def test_merged_loss__gradients_equal_those_of_the_library(bad: bool) -> None:
    merged_loss = example("hugging_face_trainer", "transformers", "accelerate").merged_loss

    def step(halves: Halves, surrogate: SlotMixtureCEM, x: Tensor, y: Tensor) -> None:
        z = halves.client(x)
        task_loss = F.cross_entropy(halves.server(z), y)
        loss, _ = merged_loss(z, y, task_loss, surrogate, LAMBD)
        assert torch.equal(loss.detach(), task_loss.detach())
        loss.backward()

    check(step, bad)


@pytest.mark.parametrize("bad", [False, True])
def test_lightning_callback__gradients_equal_those_of_the_library(bad: bool) -> None:
    kind = example("lightning_callback", "lightning").MergeAtCut

    def step(halves: Halves, surrogate: SlotMixtureCEM, x: Tensor, y: Tensor) -> None:
        merge = kind("client", surrogate, DefenceStack(), LAMBD, warm_up=0)
        trainer = SimpleNamespace(world_size=1, precision="32-true", accumulate_grad_batches=1, current_epoch=0)
        merge.setup(trainer, SimpleNamespace(get_submodule=halves.get_submodule), "fit")
        merge.on_train_batch_start(trainer, None, (x, y), 0)
        F.cross_entropy(halves.server(halves.client(x)), y).backward()
        assert int(merge.left_out) == int(bad)

    check(step, bad)


def check(step: Callable[[Halves, SlotMixtureCEM, Tensor, Tensor], Any], bad: bool) -> None:
    ours, theirs = gradients_of(step, bad), gradients_of(reference, bad)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    assert bool(ours[0].any()) and bool(ours[-1].any()) != bad
