"""Attacks must not depend on where z lies: a client could hide everything by shrinking it or moving it away."""

from pathlib import Path

import pytest
import torch
from torch import nn

from attention_cem.attacks import Attack, ClassMeanAttack, NearestNeighbourAttack, OptimisationAttack, RidgeAttack
from attention_cem.attacks.readings import mean_of
from attention_cem.attacks.scale import scale_of
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


def drowned_client(loud: str, gain: float) -> nn.Module:
    """An identity-like client that is so many times as loud in one channel, in all but one, or in a mixture of all."""
    direction = torch.randn(12, generator=torch.Generator().manual_seed(0))
    one = torch.eye(12)[0] if loud == "a channel" else direction / direction.norm()
    gains = torch.eye(12) + (gain - 1) * torch.outer(one, one)
    if loud == "all channels but one":
        gains = torch.diag(torch.tensor([1.0] + [gain] * 11))
    client = scaled_client(1.0)
    with torch.no_grad():
        client[1].weight.copy_(gains.view(12, 12, 1, 1))  # type: ignore[index, union-attr, operator]
    return client


@pytest.mark.parametrize("loud", ["a channel", "all channels but one", "a mixture"])
@pytest.mark.parametrize(
    "attack",
    [RidgeAttack(), NearestNeighbourAttack(), OptimisationAttack(steps=60), small_inverter(12)],
    ids=lambda attack: attack.kind,
)
def test_attacks__find_nearly_as_much_beside_what_is_loud(tmp_path: Path, attack: Attack, loud: str) -> None:
    """A client could drown what it tells: rounding takes a little of it, the attacks must get the rest."""
    data = small_data(train=120, test=20)

    def found(by: float) -> float:
        challenge = challenge_for(tmp_path / str(by), drowned_client(loud, by), DefenceStack([]), data)
        return test_mse(attack.run(challenge, device=CPU), data)

    usual, other = found(1.0), found(1e4)
    assert other < 0.75 * floor_mse(data) and other < 1.5 * usual + 0.2 * floor_mse(data)


def asked() -> torch.Tensor:
    raise AssertionError("images were asked for where nothing is loud")


def test_scale__moves_only_what_lies_far_and_places_of_a_channel_alike() -> None:
    """A mean of its own at every place would take away what tells places apart: convolutions cannot put it back."""
    released = torch.rand(1, 200, 3, 4, 4)
    released[:, :, 0] += torch.arange(16.0).view(4, 4)
    released[:, :, 1] += 1e4
    released[:, :, 2, 0, 0] += 1e4
    scale = scale_of(released, asked)
    assert scale is not None and scale.mixing is None
    near = torch.ones(3, 4, 4, dtype=torch.bool)
    near[1], near[2] = False, False
    assert not scale.origin[near].any() and len(scale.origin[1].unique()) == 1
    assert scale.unit.unique().numel() == 1
    counted = scale.counted(released[0])
    assert counted.abs().max() < 100
    torch.testing.assert_close(scale.restored(counted), released[0], rtol=1e-5, atol=1e-3)


def test_scale__what_is_loud_and_tells_of_the_image_stays_as_loud() -> None:
    """Brightness is loud beside fine detail in any ordinary feature, and is most of the image."""
    pixels = torch.randint(0, 256, (300, 1, 1, 1), dtype=torch.uint8).expand(300, 1, 2, 2).clone()
    released = torch.randn(1, 300, 4)
    released[0, :, 0] = (pixels[:, 0, 0, 0] - 127.5) * 10
    scale = scale_of(released, lambda: pixels)
    assert scale is None


@pytest.mark.parametrize("loud", [False, True])
def test_scale__features_that_vary_only_beside_the_images_it_is_tried_on_are_no_error(loud: bool) -> None:
    released = torch.zeros(1, 3000, 4)
    released[0, 1::3] = torch.rand(1000, 4)  # of 3000 images every third is tried, from the first on
    if loud:
        released[0, 1::3, 0] *= 1e4
    scale = scale_of(released, lambda: torch.zeros(3000, 1, 2, 2, dtype=torch.uint8))
    assert (scale is not None) is loud, "moved, since it lies far from zero"
    assert scale is None or len(scale.unit.unique()) == 1, "and not made quieter: nothing says that it drowns anything"


@pytest.mark.parametrize("shape", [(6,), (5, 6), (6, 4, 4)])
def test_scale__a_loud_mixture_of_channels_is_told_apart_and_put_back(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    released = torch.randn(1, 300, *shape, generator=generator)
    pixels = (released[0].flatten(1)[:, :4].sigmoid() * 255).to(torch.uint8).view(300, 1, 2, 2)
    shout = 1e4 * torch.randn(300, *([1] * len(shape)), generator=generator)
    along = torch.randn(6, generator=generator)
    released[0] += shout * (along.view(6, 1, 1) if len(shape) == 3 else along)
    scale = scale_of(released, lambda: pixels)
    assert scale is not None and scale.mixing is not None
    counted = scale.counted(released[0])
    assert counted.abs().max() < 100 and (counted - counted.mean(0)).flatten(1).std(0).min() > 0.1
    torch.testing.assert_close(scale.restored(counted), released[0], rtol=1e-3, atol=0.1)


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
