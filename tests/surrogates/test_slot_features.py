import math

import pytest
import torch
from torch import Tensor

from attention_cem import LinearLeakage
from attention_cem.surrogates.slot_features import TEMPERATURE, SlotFeatures

DOUBLE = torch.float64


def draw(size: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(size, math.prod(shape), dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def slow_attention(z: Tensor, features: SlotFeatures) -> Tensor:
    """By the definition: region by region, sample by sample, slot by slot."""
    channels, height, width = features.z_shape
    down, across = features.cuts
    tall, wide = height // down, width // across
    rows = []
    for sample in z.view(-1, channels, height, width):
        heads = []
        for head in range(features.heads):
            i, j = divmod(head, across)

            def region(of: Tensor, i: int = i, j: int = j) -> Tensor:
                return of[..., i * tall : (i + 1) * tall, j * wide : (j + 1) * wide].flatten(-3)

            everyone = region(z.view(-1, channels, height, width))
            variance = (everyone - everyone.mean(0)).square().sum(1).mean()
            scores = torch.stack(
                [-(region(sample) - slot).square().sum() / (2 * TEMPERATURE * variance) for slot in features.slot[head]]
            )
            heads.append(scores.exp() / scores.exp().sum())
        rows.append(torch.cat(heads))
    return torch.stack(rows)


@pytest.mark.parametrize("shape", [(3, 4, 4), (2, 8, 4), (2, 6, 3)])
def test_slot_features__is_attention_by_the_definition(shape: tuple[int, ...]) -> None:
    features = SlotFeatures(shape, slots=5).double()
    features(draw(40, *shape), torch.tensor(0))
    z = draw(12, *shape, seed=1)
    torch.testing.assert_close(features.eval()(z, torch.tensor(0)), slow_attention(z, features))


@pytest.mark.parametrize(
    ("shape", "cuts"),
    [((8, 8, 8), (4, 4)), ((8, 16, 6), (4, 3)), ((8, 7, 7), (1, 1)), ((8, 2, 2), (2, 2)), ((5,), (1, 1))],
)
def test_slot_features__regions_are_of_equal_size(shape: tuple[int, ...], cuts: tuple[int, int]) -> None:
    features = SlotFeatures(shape, slots=3)
    assert features.cuts == cuts and features.width == 3 * math.prod(cuts)
    weights = features(draw(20, *shape).float(), torch.tensor(0)).view(20, -1, 3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(20, math.prod(cuts)))


def test_slot_features__slots_find_clusters_and_follow_them() -> None:
    centres = torch.tensor([[-4.0, 0], [4, 0], [0, 5]], dtype=DOUBLE)
    features = SlotFeatures((2,), slots=3, momentum=0.9).double()
    for step in range(120):
        which = torch.arange(60) % 3
        drift = torch.tensor([0.1 * step, 0], dtype=DOUBLE)
        z = centres[which] + drift + 0.2 * draw(60, 2, seed=step)
        features(z, torch.tensor(step))
    # the mean of the last ten batches or so lies about a unit behind
    distance = torch.cdist(features.slot[0], centres + drift).min(1)
    assert sorted(distance.indices.tolist()) == [0, 1, 2] and distance.values.max() < 1.2


def test_slot_features__a_slot_that_is_left_behind_starts_anew() -> None:
    features = SlotFeatures((2,), slots=4, momentum=0.5).double()
    features(draw(40, 2), torch.tensor(0))
    features.slot[0, 2] = 1e3
    for step in range(1, 10):
        features(draw(40, 2, seed=step), torch.tensor(step))
    assert features.slot.abs().max() < 10


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_slot_features__a_bad_batch_leaves_no_trace_nor_does_evaluation(value: float) -> None:
    features = SlotFeatures((2, 4, 4), slots=3).double()
    z = draw(30, 2, 4, 4)
    features(z, torch.tensor(0))
    state = {name: value.clone() for name, value in features.state_dict().items()}
    bad = z.clone()
    bad[3, 7] = value  # of the last one the square is infinite: the covariances leave such a batch out
    features(bad, torch.tensor(1))
    features.eval()(draw(30, 2, 4, 4, seed=3), torch.tensor(1))
    assert all(torch.equal(value, features.state_dict()[name]) for name, value in state.items())
    fresh = SlotFeatures((2, 4, 4), slots=3).double()
    fresh(bad, torch.tensor(0))
    assert all(value.isfinite().all() for value in fresh.state_dict().values())


@pytest.mark.parametrize("size", [0, 1, 2])
def test_slot_features__batches_smaller_than_the_slots(size: int) -> None:
    features = SlotFeatures((2, 4, 4), slots=3).double()
    z = draw(size, 2, 4, 4).requires_grad_()
    features(z, torch.tensor(0)).sum().backward()
    assert z.grad is not None and z.grad.isfinite().all()
    assert all(value.isfinite().all() for value in features.state_dict().values())


def held_out_share(leakage: LinearLeakage, samples: tuple[Tensor, Tensor, Tensor]) -> float:
    """What the attacker, solved on training batches, explains of other samples."""
    z, y, x = samples
    with torch.no_grad():
        weight, _ = leakage.eval()._solved(leakage._system(leakage.cov_zz), leakage.cov_xz)
        of_z, of_x = (v - torch.stack([v[y == k].mean(0) for k in range(2)])[y] for v in (leakage._features(z), x))
        return 1 - float((of_x - of_z @ weight).square().sum() / of_x.square().sum())


def test_slot_features__recover_more_than_as_many_random_features() -> None:
    """On unseen samples of a client that mixes the pixels of a region beyond linear, as a network does."""
    generator = torch.Generator().manual_seed(0)
    mixing = [torch.randn(4, 8, generator=generator), torch.randn(8, 2, generator=generator)]

    def sent(size: int) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.rand(size, 16, 4, generator=generator)
        z = torch.tanh(2 * torch.relu((x - 0.5) @ mixing[0] * 2) @ mixing[1] / 4)
        return z.permute(0, 2, 1).reshape(size, -1), torch.arange(size) % 2, x.flatten(1)

    attackers = {
        "linear": LinearLeakage(32, 64, reg_strength=0.01),
        "random features": LinearLeakage(32, 64, reg_strength=0.01, random_features=128),
        "slots": LinearLeakage(32, 64, reg_strength=0.01, attention=SlotFeatures((2, 4, 4), slots=8)),
    }
    for _ in range(60):
        z, y, x = sent(256)
        for attacker in attackers.values():
            attacker(z, y, x)
    unseen = sent(4000)
    share = {name: held_out_share(attacker, unseen) for name, attacker in attackers.items()}
    print(share)
    assert share["slots"] > share["linear"] + 0.02 and share["slots"] > share["random features"] + 0.02


def test_slot_features__are_for_one_shape() -> None:
    with pytest.raises(ValueError, match=r"\(2, 4, 4\).*feature_dim is 30"):
        LinearLeakage(30, 12, attention=SlotFeatures((2, 4, 4), slots=3))
    with pytest.raises(ValueError, match=r"slots.*0"):
        SlotFeatures((2, 4, 4), slots=0)
    with pytest.raises(ValueError, match=r"z_shape.*-4"):
        SlotFeatures((2, -4, 4), slots=3)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, 1.5, math.nan])
def test_slot_features__a_momentum_that_never_forgets_is_refused(momentum: float) -> None:
    with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\)"):
        SlotFeatures((2, 4, 4), slots=3, momentum=momentum)
