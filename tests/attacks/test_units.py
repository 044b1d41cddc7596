"""Attacks must not depend on where z lies: a client could hide everything by shrinking it or moving it away."""

from pathlib import Path

import pytest
import torch
from torch import nn

from attention_cem.attacks import Attack, ClassMeanAttack, NearestNeighbourAttack, OptimisationAttack, RidgeAttack
from attention_cem.attacks.readings import mean_of, scale_of
from attention_cem.defences import AdversarialInverter, DefenceStack
from tests.attacks.helpers import CPU, challenge_for, floor_mse, identity_client, small_data, small_inverter, test_mse


def scaled_client(scale: float | list[float], offset: float = 0.0, every: int = 1) -> nn.Module:
    """An identity-like client whose z is so many times as large, and of whose channels every so manieth is moved."""
    layer = nn.Conv2d(12, 12, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.diag(torch.tensor(scale).expand(12)).view(12, 12, 1, 1))
        layer.bias.zero_()[::every] = offset
    return nn.Sequential(identity_client(), layer)


@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1e6])
@pytest.mark.parametrize(
    "attack",
    [RidgeAttack(), NearestNeighbourAttack(), OptimisationAttack(steps=60), small_inverter(epochs=12)],
    ids=lambda attack: attack.kind,
)
def test_attacks__find_as_much_whatever_the_unit(tmp_path: Path, attack: Attack, scale: float) -> None:
    data = small_data(train=120, test=20)

    def found(by: float) -> float:
        challenge = challenge_for(tmp_path / str(by), scaled_client(by), DefenceStack([]), data)
        return test_mse(attack.run(challenge, device=CPU), data)

    usual, other = found(1.0), found(scale)
    assert other < 0.7 * floor_mse(data) and other < 1.5 * usual + 1e-4


@pytest.mark.parametrize(("scale", "offset", "every"), [(1e-4, 0.5, 1), (1e-4, 1.0, 2)])
@pytest.mark.parametrize(
    "attack",
    [RidgeAttack(), ClassMeanAttack(), NearestNeighbourAttack(), OptimisationAttack(steps=60), small_inverter(12)],
    ids=lambda attack: attack.kind,
)
def test_attacks__find_as_much_wherever_features_lie(
    tmp_path: Path, attack: Attack, scale: float, offset: float, every: int
) -> None:
    data = small_data(train=120, test=20)

    def found(*place: float) -> float:
        challenge = challenge_for(tmp_path / str(place), scaled_client(*place), DefenceStack([]), data)  # type: ignore[arg-type]
        return test_mse(attack.run(challenge, device=CPU), data)

    usual, other = found(1.0), found(scale, offset, every)
    assert other < 0.95 * floor_mse(data) and other < 1.5 * usual + 1e-4


@pytest.mark.parametrize("loud", [1, 11])
@pytest.mark.parametrize(
    "attack",
    [RidgeAttack(), NearestNeighbourAttack(), OptimisationAttack(steps=60), small_inverter(12)],
    ids=lambda attack: attack.kind,
)
def test_attacks__find_as_much_beside_loud_channels(tmp_path: Path, attack: Attack, loud: int) -> None:
    """A client could drown what it tells in some channels by shouting in others."""
    data = small_data(train=120, test=20)

    def found(by: float) -> float:
        client = scaled_client([by] * loud + [1.0] * (12 - loud))
        challenge = challenge_for(tmp_path / str(by), client, DefenceStack([]), data)
        return test_mse(attack.run(challenge, device=CPU), data)

    usual, other = found(1.0), found(1e6)
    assert other < 1.5 * usual + 1e-4


def test_scale__moves_only_what_lies_far_and_places_of_a_channel_alike() -> None:
    """A mean of its own at every place would take away what tells places apart: convolutions cannot put it back."""
    released = torch.rand(1, 200, 3, 4, 4)
    released[:, :, 0] += torch.arange(16.0).view(4, 4)
    released[:, :, 1] += 1e4
    released[:, :, 2, 0, 0] += 1e4
    scale = scale_of(released)
    assert scale is not None
    near = torch.ones(3, 4, 4, dtype=torch.bool)
    near[1], near[2] = False, False
    assert not scale.origin[near].any() and len(scale.origin[1].unique()) == 1
    assert scale.unit.unique().numel() == 1
    counted = scale.counted(released[0])
    assert counted.abs().max() < 100
    torch.testing.assert_close(scale.restored(counted), released[0], rtol=1e-5, atol=1e-3)


def test_scale__a_coordinate_that_is_seldom_other_than_its_mean_does_not_shout() -> None:
    released = torch.rand(1, 40_000, 4)
    released[:, :, 0] = 0
    released[:, 7, 0] = 1e-1
    scale = scale_of(released)
    assert scale is not None and scale.counted(released[0]).abs().max() < 11


def test_unit__ordinary_features_are_read_as_they_are(tmp_path: Path) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), DefenceStack([]), small_data(train=40, test=10))
    assert challenge.scale is None and challenge.reading() is mean_of
    assert torch.equal(challenge.test_reading(), challenge.test_features()[0])


def test_unit__the_defenders_inverter_sees_features_in_the_unit_it_was_trained_in(tmp_path: Path) -> None:
    data = small_data(train=60, test=20)
    adversary = AdversarialInverter(weight=1.0, z_shape=(12, 8, 8), image_shape=(3, 16, 16), width=4, blocks=0)
    stack = DefenceStack([adversary])
    challenge = challenge_for(tmp_path / "c", scaled_client(1e-4, 0.5), stack, data)
    network = small_inverter(start="adversary")._network(challenge, CPU).eval()
    kept = challenge.defender_adversary()
    assert kept is not None and challenge.scale is not None and bool((challenge.scale.unit < 1e-3).all())
    with torch.no_grad():
        expected = kept.inverter.eval()(challenge.test_features()[0])
        torch.testing.assert_close(network(challenge.test_reading()), expected)
