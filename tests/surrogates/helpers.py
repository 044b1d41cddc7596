"""Shared by the surrogates' tests: compare a surrogate with its plain loop, value and gradient."""

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor

from attention_cem.surrogates.base import ConditionalEntropySurrogate

TOLERANCE = 1e-9
LABELS = st.lists(st.sampled_from([-4, 0, 3, 9, 1_000_000_007]), min_size=0, max_size=26)


def features(labels: list[int], width: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(len(labels), width, dtype=torch.float64, generator=generator)
    return z, torch.tensor(labels, dtype=torch.int64)


def assert_equals_loop(
    surrogate: ConditionalEntropySurrogate,
    loop: Callable[..., tuple[Tensor, Tensor]],
    z: Tensor,
    y: Tensor,
) -> None:
    parameters = [p for p in surrogate.parameters() if p.requires_grad]
    results = []
    for function in (surrogate, lambda z, y: loop(surrogate, z, y)):
        leaf = z.clone().requires_grad_()
        loss, mse = function(leaf, y)[:2]
        gradients = torch.autograd.grad(loss, [leaf, *parameters], allow_unused=True)
        results.append([loss, mse, *(torch.zeros(()) if g is None else g for g in gradients)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(
            ours.expand_as(expected) if ours.dim() == 0 else ours,
            expected.expand_as(ours) if expected.dim() == 0 else expected,
            rtol=TOLERANCE,
            atol=TOLERANCE,
            check_dtype=False,
        )
