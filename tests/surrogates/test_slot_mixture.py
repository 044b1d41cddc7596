import copy
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention_cem import (
    ConditionalEntropySurrogate,
    SlotMixtureCEM,
)
from attention_cem.surrogates.mixture import expected_log_density
from attention_cem.surrogates.segments import segment_classes
from attention_cem.surrogates.slot_mixture import SlotState
from attention_cem.testing import SurrogateContract
from tests.surrogates.known_mixtures import SIGMA, known_features, make, reported, trained

COVARIANCES = ["diagonal", "isotropic", "low_rank", "full"]


class SlotMixtureContract(SurrogateContract):
    covariance, objective = "diagonal", "likelihood"

    def make(self) -> SlotMixtureCEM:
        return SlotMixtureCEM(
            6, 8, num_slots=3, bank_size=16, rank=2, covariance=self.covariance, objective=self.objective
        )

    def warm_up(self, surrogate: ConditionalEntropySurrogate) -> None:
        for seed in range(40, 43):
            surrogate(*self.batch(seed=seed))

    def renamed(self, surrogate: ConditionalEntropySurrogate, z: Tensor, y: Tensor, names: dict[int, int]) -> Tensor:
        # the memory knows classes by label: rename them there too
        assert isinstance(surrogate, SlotMixtureCEM)
        for place, label in enumerate(surrogate.memory.label.tolist()):
            surrogate.memory.label[place] = names.get(label, label)
        return super().renamed(surrogate, z, y, names)


class TestSlotMixtureContract(SlotMixtureContract):
    pass


class TestSlotMixtureFullContract(SlotMixtureContract):
    covariance = "full"


class TestSlotMixtureLowRankFrozenContract(SlotMixtureContract):
    covariance, objective = "low_rank", "frozen"


def plain_loss(surrogate: SlotMixtureCEM, z: Tensor, y: Tensor) -> float:
    """The loss in evaluation mode with the diagonal covariance, a class, a slot and a sample at a time."""
    memory, noise, slots, mix = surrogate.memory, surrogate.noise_variance, surrogate.num_slots, surrogate.mix_uniform
    temperature = (surrogate.pooled_variance.mean() + noise) * surrogate.key.square().sum(1).mean()
    temperature = temperature * surrogate.log_temperature.exp()
    total = 0.0
    for place in range(memory.max_classes):
        bank = [f for f, w in zip(memory.feature[place], memory.written[place], strict=True) if w >= 0]
        if not bank:
            continue
        centre = sum(bank) / len(bank)
        means, shares = list(surrogate.slot_mean[place]), surrogate.slot_share[place].tolist()
        for turn in range(surrogate.num_iterations):
            epsilon = 0.0 if turn + 1 == surrogate.num_iterations else mix
            assigned = []
            for f in bank:
                logits = [
                    math.log(shares[s]) - ((surrogate.key @ (f - means[s])).square().sum() / temperature / 2).item()
                    for s in range(slots)
                ]
                soft = torch.tensor(logits, dtype=f.dtype).softmax(0)
                assigned.append(((1 - epsilon) * soft + epsilon / slots).tolist())
            masses = [sum(a[s] for a in assigned) for s in range(slots)]
            shares = [mass / len(bank) for mass in masses]
            means, spreads = [], []
            for s in range(slots):
                weights = [a[s] / max(masses[s], 0.1) for a in assigned]
                first = sum(w * (f - centre) for w, f in zip(weights, bank, strict=True))
                second = sum(w * (f - centre) ** 2 for w, f in zip(weights, bank, strict=True))
                means.append(centre + first)
                spreads.append(second - first**2)
        for v in (v for v, label in zip(z, y, strict=True) if label == memory.label[place]):
            terms = []
            for s in range(slots):
                count = masses[s] + surrogate.shrinkage
                spread = (masses[s] * spreads[s] + surrogate.shrinkage * surrogate.pooled_variance) / count
                spread = spread * (1 + 1 / count) + noise
                quadratic = ((v - means[s]) ** 2 + noise) / spread + (2 * math.pi * spread).log()
                terms.append(math.log((1 - mix) * shares[s] + mix / slots) - 0.5 * quadratic.sum())
            total -= torch.stack(terms).logsumexp(0).item() / len(v) + 0.5 * math.log(2 * math.pi * math.e * noise)
    return total / len(y)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_slot_mixture__equals_the_plain_loop(labels: list[int], slots: int, iterations: int, seed: int) -> None:
    surrogate = SlotMixtureCEM(
        4, 4, num_slots=slots, num_iterations=iterations, key_dim=3, bank_size=5, reg_strength=0.3
    ).double()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(3):
        surrogate(torch.randn(8, 4, generator=generator), torch.randint(0, 3, (8,), generator=generator))
    z = torch.randn(len(labels), 4, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        expected = plain_loss(surrogate, z, torch.tensor(labels))
    assert reported(surrogate, z, torch.tensor(labels)) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([1, 2, 4]), st.sampled_from(COVARIANCES), st.floats(0.1, 3))
def test_slot_mixture__a_step_against_the_gradient_lowers_the_spread(
    seed: int, slots: int, covariance: str, scale: float
) -> None:
    surrogate = SlotMixtureCEM(8, 3, num_slots=slots, covariance=covariance, rank=3, bank_size=64, reg_strength=0.1)
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(3, 8, generator=generator)

    def draw() -> tuple[Tensor, Tensor]:
        y = torch.arange(48) % 3
        return centre[y] + scale * torch.randn(48, 8, generator=generator), y

    for _ in range(6):
        surrogate(*draw())
    z, y = draw()
    z.requires_grad_()
    output = surrogate.eval()(z, y)
    (gradient,) = torch.autograd.grad(output.rob_loss, z)
    length = 1e-2 * scale / gradient.norm(dim=1).max()
    moved = surrogate(z.detach() - length * gradient, y)
    assert moved.intra_mse < output.intra_mse and moved.rob_loss < output.rob_loss


def test_slot_mixture__one_sample_per_class_of_a_thousand_classes_is_active_everywhere() -> None:
    surrogate = SlotMixtureCEM(16, 1000, num_slots=2, bank_size=4, reg_strength=SIGMA)
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(1000, 16, generator=generator)
    for epoch in range(3):
        for y in torch.randperm(1000, generator=generator).split(125):
            z = (centre[y] + 0.1 * torch.randn(125, 16, generator=generator)).requires_grad_()
            output = surrogate(z, y)
            (gradient,) = torch.autograd.grad(output.rob_loss, z)
            assert output.rob_loss.isfinite() and gradient.isfinite().all()
            expected = 0 if epoch == 0 else 125
            assert int(output.diagnostics["active_classes"]) == expected
            assert (gradient.norm(dim=1) > 0).sum() == expected
    assert surrogate.memory.written[:-1].ge(0).sum() == 3000


@torch.no_grad()
def memory_likelihood(surrogate: SlotMixtureCEM) -> Tensor:
    """Log-likelihood of each class's memory under its slots as they stand."""
    places = torch.arange(surrogate.memory.max_classes)
    bank, valid = surrogate.memory.read(places, surrogate.calls)
    surrogate.eval()
    slots = SlotState(surrogate.slot_mean[places], surrogate.slot_share[places])
    _, mixtures = surrogate.mixtures(bank, surrogate.attend(bank, valid, slots))
    surrogate.train()
    return (expected_log_density(bank, None, mixtures, surrogate.noise_variance) * valid).sum(-1)


@pytest.mark.parametrize("seed", range(4))
def test_slot_mixture__reseeding_never_lowers_the_likelihood_of_the_memory(seed: int) -> None:
    features, _ = known_features(8)
    surrogate = make(8, bank_size=128, reseed_every=10_000, seed=seed).double()
    trained(surrogate, features.z, features.labels, steps=8)
    likelihood = [memory_likelihood(surrogate)]
    for _ in range(5):
        surrogate.calls += 1
        surrogate.maintain()
        likelihood.append(memory_likelihood(surrogate))
    for before, after in pairwise(likelihood):
        assert (after >= before - 1e-6 * before.abs()).all()
    assert surrogate.training


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_slot_mixture__a_call_that_reseeds_can_be_differentiated(covariance: str) -> None:
    # new principal axes used to be written over those that the backward pass still needed
    surrogate = SlotMixtureCEM(6, 2, num_slots=2, covariance=covariance, rank=2, reseed_every=2)
    for _ in range(6):
        z = torch.randn(12, 6, requires_grad=True)
        surrogate(z, torch.arange(12) % 2).rob_loss.backward()
        assert z.grad is not None and z.grad.isfinite().all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e25])
def test_slot_mixture__one_bad_batch_leaves_no_trace(bad: float) -> None:
    surrogate = SlotMixtureCEM(6, 3, num_slots=2)
    y = torch.arange(12) % 2
    for _ in range(3):
        surrogate(torch.randn(12, 6), y)
    z, y = torch.randn(12, 6), y.clone()
    y[0] = 7  # a class whose first sample is bad, and one that has a good memory
    z[:2, 1] = bad
    assert not surrogate(z, y).rob_loss.isfinite()
    z = torch.randn(12, 6, requires_grad=True)
    loss = surrogate(z, y).rob_loss
    loss.backward()
    assert loss.isfinite() and z.grad is not None and z.grad.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in surrogate.parameters())
    assert all(b.isfinite().all() for b in surrogate.buffers())


def test_slot_mixture__gradients_are_finite_where_a_slot_holds_nothing() -> None:
    # without the uniform mix the assignments of far slots underflow to zero
    surrogate = SlotMixtureCEM(4, 1, num_slots=3, mix_uniform=0.0, bank_size=16, reg_strength=0.01)
    y = torch.zeros(16, dtype=torch.int64)
    z = torch.randn(16, 4)
    surrogate(z, y)
    surrogate.slot_mean[0, 0], surrogate.slot_mean[0, 1:] = 0.0, 1e4
    z.requires_grad_()
    loss = surrogate(z, y).rob_loss
    loss.backward()
    assert loss.isfinite() and z.grad is not None and z.grad.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in surrogate.parameters())


def test_slot_mixture__classes_that_are_left_out_keep_their_slots() -> None:
    # a class that was not asked for used to have its slots thrown away on every call
    features, _ = known_features(2)
    z, y = features.z, features.labels
    surrogate = trained(make(2, reseed_every=10_000), z, y, steps=10)
    before = surrogate.slot_mean[:2].clone()
    part = slice(640, 704)
    output = surrogate(z[part], y[part], y[part] == 0)
    assert int(output.diagnostics["active_classes"]) == 1
    moved = (surrogate.slot_mean[:2] - before).norm(dim=-1)
    assert moved.max() < 0.5 * before.norm(dim=-1).max()
    torch.testing.assert_close(moved.mean(1)[0], moved.mean(1)[1], rtol=1.0, atol=0.05)


def test_slot_mixture__left_out_classes_add_nothing_to_the_loss() -> None:
    features, _ = known_features(2)
    z, y = features.z[640:704].clone().requires_grad_(), features.labels[640:704]
    surrogate = trained(make(2), features.z, features.labels, steps=10).eval()
    parts = [surrogate(z, y, y == c).rob_loss for c in (0, 1)]
    torch.testing.assert_close(sum(parts), surrogate(z, y).rob_loss)
    (gradient,) = torch.autograd.grad(parts[0], z)
    assert gradient[y == 1].eq(0).all() and gradient[y == 0].norm(dim=1).gt(0).all()


def test_slot_mixture__samples_of_one_batch_are_not_measured_against_each_other() -> None:
    y = torch.zeros(6, dtype=torch.int64)
    surrogate = SlotMixtureCEM(4, 2, num_slots=1).double()
    assert surrogate(torch.randn(6, 4), y).rob_loss == 0  # nothing remembered: nothing to measure against
    z = torch.randn(6, 4, dtype=torch.float64)
    together, *alone = (copy.deepcopy(surrogate)(part, y[: len(part)]).rob_loss for part in (z, *z.split(1)))
    torch.testing.assert_close(together, torch.stack(alone).mean())


def test_slot_mixture__variance_floor_replaces_the_noise_variance() -> None:
    wide, narrow = (SlotMixtureCEM(4, 1, reg_strength=r, variance_floor=0.04) for r in (0.2, 0.01))
    z, y = torch.randn(8, 4), torch.zeros(8, dtype=torch.int64)
    for surrogate in (wide, narrow):
        surrogate(z, y)
    torch.testing.assert_close(wide(z, y).rob_loss, narrow(z, y).rob_loss)


def test_slot_mixture__frozen_has_no_parameters_and_likelihood_trains_key_and_temperature() -> None:
    assert list(make(2, objective="frozen").parameters()) == []
    assert {name for name, _ in make(2).named_parameters()} == {"key", "log_temperature"}


def test_slot_mixture__a_step_of_the_estimator_lowers_the_loss_and_leaves_the_gradient_of_z_alone() -> None:
    features, _ = known_features(4, mode_distance=1.0)
    z, y = features.z, features.labels
    surrogate = trained(make(4, bank_size=64), z, y, steps=10, lr=0.0).double().eval()
    leaf, labels = z[640:768].double().requires_grad_(), y[640:768]
    loss = surrogate(leaf, labels).rob_loss
    gradients = torch.autograd.grad(loss, [leaf, *surrogate.parameters()])
    alone = surrogate.requires_grad_(False)(leaf, labels).rob_loss
    torch.testing.assert_close(torch.autograd.grad(alone, leaf)[0], gradients[0])
    length = math.sqrt(sum(g.square().sum().item() for g in gradients[1:]))
    with torch.no_grad():
        for parameter, gradient in zip(surrogate.parameters(), gradients[1:], strict=True):
            parameter -= 1e-4 / length * gradient
        assert surrogate(leaf, labels).rob_loss < loss


def test_slot_mixture__two_ranks_with_the_gathered_batch_stay_bit_identical() -> None:
    features, _ = known_features(2)
    ranks = [trained(make(2, bank_size=64), features.z, features.labels, steps=20) for _ in range(2)]
    for name, value in ranks[0].state_dict().items():
        assert torch.equal(value, ranks[1].state_dict()[name]), name


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_slot_mixture__compiles_to_one_graph_and_computes_the_same(covariance: str) -> None:
    features, _ = known_features(2)
    eager = make(2, bank_size=64, covariance=covariance, reseed_every=10_000)
    trained(eager, features.z, features.labels, steps=3)
    twin = copy.deepcopy(eager)
    compiled = torch.compile(twin, fullgraph=True, backend="eager")
    for step in range(5, 7):  # calls at which the eager one does not reseed
        z, y = features.z[step * 64 :][:64], features.labels[step * 64 :][:64]
        torch.testing.assert_close(compiled(z, y).rob_loss, eager(z, y).rob_loss)
        twin.maintain()
        eager.maintain()
    torch.testing.assert_close(twin.slot_mean[:-1], eager.slot_mean[:-1])


def test_slot_mixture__a_promised_label_space_changes_nothing() -> None:
    features, _ = known_features(2, classes=4)
    free, promised = (make(1, classes=4, bank_size=32, label_space=space) for space in (None, 4))
    for step in range(6):
        part = slice(step * 9, step * 9 + 9)
        losses = [s(features.z[part], features.labels[part]).rob_loss for s in (free, promised)]
        torch.testing.assert_close(*losses)
    assert losses[0] > 0


def test_slot_mixture__segments_without_a_place_are_skipped() -> None:
    surrogate = SlotMixtureCEM(4, 2, num_slots=1)
    z, y = torch.randn(9, 4), torch.arange(9) % 3
    surrogate(z, y)
    output = surrogate(z, y)
    assert int(output.diagnostics["active_classes"]) == 2 and int(output.diagnostics["skipped_classes"]) == 1
    assert segment_classes(y).num_classes == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_slots": 0}, "num_slots.*0"),
        ({"num_iterations": 0}, "num_iterations.*0"),
        ({"covariance": "round"}, "covariance.*'round'"),
        ({"objective": "penalty"}, "objective.*'penalty'"),
        ({"mix_uniform": 1.0}, "mix_uniform.*1.0"),
        ({"variance_floor": 0.0}, "variance_floor.*0.0"),
        ({"reg_strength": 0.0}, "reg_strength.*0.0"),
        ({"shrinkage": 0.0}, "shrinkage.*0.0"),
        ({"reseed_every": 0}, "reseed_every.*0"),
        ({"num_classes": 0}, "classes.*0"),
        ({"feature_dim": 4096, "covariance": "full"}, "2048.*4096"),
    ],
)
def test_slot_mixture__bad_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SlotMixtureCEM(**{"feature_dim": 4, "num_classes": 2, **arguments})
