from __future__ import annotations

import torch
from torch import Tensor

from attention_cem.data import synthetic_images
from attention_cem.testing.hiding_client import Coupling, train_hiding_client


def unscrambled(coupling: Coupling, z: Tensor) -> Tensor:
    """The coupling's inverse: subtract in reverse order."""
    a, b = z.chunk(2, 1)
    b = b - 4 * coupling.second(a)
    return torch.cat([a - 4 * coupling.first(b), b], 1)


def test_hiding_client__loses_nothing() -> None:
    train = synthetic_images(num_train=40, num_test=4, size=16).train
    unshuffle, coupling = list(train_hiding_client(train, steps=5).client)
    assert isinstance(coupling, Coupling)
    x = torch.rand(8, 3, 16, 16)
    with torch.no_grad():
        assert (coupling(unshuffle(x)) - unshuffle(x)).abs().mean() > 0.1  # it scrambles,
        torch.testing.assert_close(unscrambled(coupling, coupling(unshuffle(x))), unshuffle(x))  # and gives all back


def test_hiding_client__repeats_by_its_seed_and_leaves_the_callers_generator_alone() -> None:
    train = synthetic_images(num_train=40, num_test=4, size=16).train
    before = torch.get_rng_state()
    first, again, other = (train_hiding_client(train, steps=2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert first.adversary_loss == again.adversary_loss != other.adversary_loss
    for left, right in zip(first.client.parameters(), again.client.parameters(), strict=True):
        assert torch.equal(left, right)
