import pytest
import torch

from attention_cem.defences import build_stack
from attention_cem.defences.testing import DefenceContract
from attention_cem.surrogates import LinearLeakage, LinearLeakagePenalty, LocalLeakage

SHAPES = {"z_shape": (6,), "image_shape": (3, 4, 4)}


class TestLinearLeakagePenalty(DefenceContract):
    def make(self) -> LinearLeakagePenalty:
        return LinearLeakagePenalty(
            0.5, 0.1, z_shape=self.z_shape, image_shape=self.image_shape, random_features=8, ramp_steps=0
        )


class TestLinearLeakagePenaltyOfShrunkenImages(DefenceContract):
    def make(self) -> LinearLeakagePenalty:
        return LinearLeakagePenalty(
            0.5, 0.1, z_shape=self.z_shape, image_shape=self.image_shape, random_features=0, target_size=4
        )


class TestLinearLeakagePenaltyOfALocalAttacker(DefenceContract):
    def make(self) -> LinearLeakagePenalty:
        return LinearLeakagePenalty(
            0.5, 0.1, z_shape=self.z_shape, image_shape=self.image_shape, random_features=4, neighbourhood=3
        )


class TestLinearLeakagePenaltyOfAnAttackerWithSlots(DefenceContract):
    def make(self) -> LinearLeakagePenalty:
        return LinearLeakagePenalty(
            0.5, 0.1, z_shape=self.z_shape, image_shape=self.image_shape, random_features=0, slots=4
        )


def test_penalty__looks_at_neighbourhoods_if_told() -> None:
    x, _, y = batch()
    shapes = {"z_shape": (3, 2, 2), "image_shape": (3, 4, 4)}
    z = torch.nn.functional.avg_pool2d(x, 2)
    penalty = LinearLeakagePenalty(0.5, 0.1, **shapes, random_features=4, ramp_steps=0, neighbourhood=3)
    attacker = LocalLeakage(**shapes, reg_strength=0.1, neighbourhood=3, random_features=4)
    assert torch.equal(penalty.term(x, z, y), attacker(z, y, x).share)


def batch(size: int = 64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(size, 3, 4, 4, generator=generator)
    return x, x.flatten(1)[:, :6] + 0.05, torch.arange(size) % 3


def test_penalty__is_the_closed_form_attackers_share() -> None:
    x, z, y = batch()
    penalty = LinearLeakagePenalty(0.5, 0.1, **SHAPES, random_features=0, ramp_steps=0)
    assert torch.equal(penalty.term(x, z, y), LinearLeakage(6, 48, reg_strength=0.1)(z, y, x).share)


def test_penalty__aims_at_shrunken_images_if_told() -> None:
    x, z, y = batch()
    penalty = LinearLeakagePenalty(0.5, 0.1, **SHAPES, random_features=0, ramp_steps=0, target_size=2)
    shrunken = torch.nn.functional.avg_pool2d(x, 2)
    expected = LinearLeakage(6, 12, reg_strength=0.1)(z, y, shrunken).share
    torch.testing.assert_close(penalty.term(x, z, y), expected)


def test_penalty__rises_over_the_ramp() -> None:
    x, z, y = batch()
    penalty = LinearLeakagePenalty(1.0, 0.1, **SHAPES, random_features=0, ramp_steps=4)
    terms = [penalty.term(x, z, y).item() for _ in range(6)]
    full = LinearLeakage(6, 48, reg_strength=0.1)(z, y, x).share.item()
    assert [term / full for term in terms] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1], rel=1e-4)


def test_penalty__lowers_what_the_attacker_gets() -> None:
    x, z, y = batch(256)
    stack = build_stack([{"name": "linear_leakage", "weight": 1.0, "noise_sigma": 0.1, "ramp_steps": 0, **SHAPES}])
    mixing = torch.eye(6, requires_grad=True)
    optimiser = torch.optim.SGD([mixing], lr=0.5)
    shares = []
    for _ in range(30):
        optimiser.zero_grad()
        share = stack.penalties(x, z @ mixing, y)["linear_leakage"]
        share.backward()
        optimiser.step()
        shares.append(share.item())
    assert shares[-1] < 0.9 * shares[0]


def test_penalty__is_restored_from_its_description() -> None:
    stack = build_stack(
        [{"name": "linear_leakage", "weight": 0.5, "noise_sigma": 0.1, "target_size": 2, "slots": 3, **SHAPES}]
    )
    assert build_stack(stack.describe()["defences"]).describe() == stack.describe()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"weight": 0.0}, "weight"),
        ({"ramp_steps": -1}, "ramp_steps must be a whole number and not negative"),
        ({"ramp_steps": 2.5}, "ramp_steps must be a whole number"),
        ({"random_features": 1 << 20}, "at most 16384"),
        ({"random_features": 2.0}, "random_features must be a whole number"),
        ({"random_features": "many"}, "random_features must be a whole number"),
        ({"followed": "no"}, "followed must be true or false, got 'no'"),
        ({"slots": 1 << 20}, "at most 1024"),
        ({"slots": -1}, "slots must be a whole number and not negative"),
        ({"slots": "4"}, "slots must be a whole number"),
        ({"slots": 4, "neighbourhood": 3}, "leave out neighbourhood"),
        ({"target_size": 2, "image_shape": (48,)}, "target_size needs images"),
    ],
)
def test_penalty__refuses(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearLeakagePenalty(**{"weight": 0.5, "noise_sigma": 0.1, **SHAPES, **wrong})
