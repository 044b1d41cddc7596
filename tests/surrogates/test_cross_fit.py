"""Cross-fitting: samples that return every epoch are never measured against themselves."""

import copy
import math
from collections import defaultdict, deque
from statistics import fmean
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention_cem import ConditionalEntropySurrogate, GatedAttentionCEM, HybridCEM, SlotMixtureCEM
from attention_cem.surrogates.folds import sample_fold
from attention_cem.surrogates.mixture import noise_entropy
from attention_cem.testing import SurrogateContract
from tests.surrogates.known_mixtures import TRAINED, known_features, make

COVARIANCES = ["diagonal", "isotropic", "low_rank", "full"]
CLASSES, SAMPLES, WIDTH, SIGMA, SPREAD = 40, 12, 16, 0.1, 0.3


class CrossFitContract(SurrogateContract):
    covariance = "diagonal"

    def make(self) -> SlotMixtureCEM:
        return SlotMixtureCEM(6, 8, num_slots=2, bank_size=16, rank=2, covariance=self.covariance, cross_fit=True)

    def warm_up(self, surrogate: ConditionalEntropySurrogate) -> None:
        for seed in range(40, 43):
            self.call(surrogate, *self.batch(48, seed=seed))

    def renamed(self, surrogate: ConditionalEntropySurrogate, z: Tensor, y: Tensor, names: dict[int, int]) -> Tensor:
        assert isinstance(surrogate, SlotMixtureCEM)
        for place, label in enumerate(surrogate.memory.label.tolist()):
            surrogate.memory.label[place] = names.get(label, label)
        return super().renamed(surrogate, z, y, names)


class TestCrossFitContract(CrossFitContract):
    pass


class TestCrossFitFullContract(CrossFitContract):
    covariance = "full"


class Fitted(NamedTuple):
    """What the slots of one memory hold."""

    masses: list[float]
    means: list[Tensor]
    spreads: list[Tensor]
    free: float

    def pooled(self) -> tuple[float | Tensor, float]:
        """Squares around the slots' means, and the samples they count for; the whole memory stands in for few."""
        slots, count = len(self.masses), sum(self.masses)
        missing = max(slots - self.free, 0.0) if count > 1.5 else 0.0
        centre = sum(m * mean for m, mean in zip(self.masses, self.means, strict=True)) / count
        around = [v + (mean - centre) ** 2 for v, mean in zip(self.spreads, self.means, strict=True)]
        whole = sum(m * each for m, each in zip(self.masses, around, strict=True)) / max(count - 1, 0.5)
        within = sum(m * v for m, v in zip(self.masses, self.spreads, strict=True))
        return within + missing * whole, self.free + missing


class Oracle:
    """The diagonal surrogate with dictionaries by (class, fold): a sample, a slot and a memory at a time."""

    def __init__(self, surrogate: SlotMixtureCEM, ring: int) -> None:
        self.s, self.noise = surrogate, surrogate.noise_variance
        self.memory: dict[tuple[int, int], deque[tuple[int, Tensor] | None]] = defaultdict(lambda: deque(maxlen=ring))
        self.slots: dict[tuple[int, int], tuple[list[Tensor], list[float]]] = {}
        self.pooled = [torch.zeros(surrogate.feature_dim).double() for _ in range(2)]

    def bank(self, home: tuple[int, int]) -> list[Tensor]:
        return [entry[1] for entry in self.memory[home] if entry is not None]

    def attended(self, home: tuple[int, int]) -> Fitted:
        """A memory's slots, some rounds after its last ones."""
        s, bank, (means, shares) = self.s, self.bank(home), self.slots[home]
        unit = (self.pooled[home[1]].mean() + self.noise) * s.key.square().sum(1).mean() * s.log_temperature.exp()
        centre = sum(bank) / len(bank)
        for turn in range(s.num_iterations):
            epsilon = 0.0 if turn + 1 == s.num_iterations else s.mix_uniform
            assigned = []
            for f in bank:
                distance = torch.stack([(s.key @ (f - mean)).square().sum() for mean in means])
                soft = (torch.tensor(shares, dtype=torch.float64).log() - distance / unit / 2).softmax(0)
                assigned.append(((1 - epsilon) * soft + epsilon / s.num_slots).tolist())
            masses = [sum(a[k] for a in assigned) for k in range(s.num_slots)]
            shares = [mass / len(bank) for mass in masses]
            weights = [[a[k] / max(masses[k], 0.1) for a in assigned] for k in range(s.num_slots)]
            first = [sum(w * (f - centre) for w, f in zip(row, bank, strict=True)) for row in weights]
            second = [sum(w * (f - centre) ** 2 for w, f in zip(row, bank, strict=True)) for row in weights]
            means = [centre + each for each in first]
        spreads = [(b - a**2).clamp_min(0) for a, b in zip(first, second, strict=True)]
        free = sum(mass - sum(a[k] ** 2 for a in assigned) / mass for k, mass in enumerate(masses) if mass)
        return Fitted(masses, means, spreads, free)

    def step(self, z: Tensor, y: list[int], fold: list[int], sample: list[int]) -> tuple[float, int]:
        """The loss of a batch, and how many samples had no mixture; then the batch is remembered."""
        s = self.s
        homes = sorted({(label, side) for label in y for side in (0, 1)})
        found = {home: self.attended(home) for home in homes if self.bank(home)}
        for side, old in enumerate(self.pooled):
            here = [each.pooled() for home, each in found.items() if home[1] == side]
            free = sum(count for _, count in here)
            if free > 0.1:
                scatter = sum(squares for squares, _ in here)
                keep = (
                    torch.tensor(0.9).item() if old.sum() > 0 else 0.0
                )  # in single precision, as the surrogate has it
                self.pooled[side] = (1 - keep) * scatter / free + keep * old
        nats = [self.nats(found.get((label, 1 - side)), 1 - side, v) for v, label, side in zip(z, y, fold, strict=True)]
        for home in homes:
            if home in found:
                share = [mass / sum(found[home].masses) for mass in found[home].masses]
                mixed = [(1 - s.mix_uniform) * each + s.mix_uniform / s.num_slots for each in share]
                self.slots[home] = found[home].means, mixed
            else:
                own = [v for v, *at in zip(z, y, fold, strict=True) if tuple(at) == home]
                mean = sum(own) / max(len(own), 1)
                spread = s.scatter * self.pooled[home[1]].mean().sqrt()
                self.slots[home] = [mean + each for each in spread], [1 / s.num_slots] * s.num_slots
        for entries in self.memory.values():  # of a sample that returns only the newest feature stays
            for place, entry in enumerate(entries):
                entries[place] = None if entry is not None and entry[0] in sample else entry
        for v, label, side, number in zip(z, y, fold, sample, strict=True):
            self.memory[label, side].append((number, v))
        return sum(each or 0.0 for each in nats) / len(y), sum(each is None for each in nats)

    def nats(self, found: Fitted | None, side: int, v: Tensor) -> float | None:
        if found is None:
            return None
        s, terms = self.s, []
        for mass, mean, spread in zip(*found[:3], strict=True):
            count = mass + s.shrinkage
            variance = (mass * spread + s.shrinkage * self.pooled[side]) / count * (1 + 1 / count) + self.noise
            share = (1 - s.mix_uniform) * mass / sum(found.masses) + s.mix_uniform / s.num_slots
            quadratic = ((v - mean) ** 2 + self.noise) / variance + (2 * math.pi * variance).log()
            terms.append(math.log(share) - 0.5 * quadratic.sum())
        return -torch.stack(terms).logsumexp(0).item() / len(v) - noise_entropy(self.noise)


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=9), min_size=3, max_size=6),
    st.integers(1, 3),
    st.integers(1, 7),
    st.sampled_from([None, 4]),
    st.integers(0, 99),
)
def test_cross_fit__equals_dictionaries_by_class_and_fold(
    stream: list[list[int]], slots: int, bank_size: int, label_space: int | None, seed: int
) -> None:
    surrogate = SlotMixtureCEM(
        4, 4, num_slots=slots, key_dim=3, bank_size=bank_size, reg_strength=0.3, cross_fit=True, label_space=label_space
    ).double()
    surrogate._maintain_if_due = lambda z: None  # type: ignore[method-assign]
    oracle = Oracle(surrogate, ring=math.ceil(bank_size / 2))
    generator = torch.Generator().manual_seed(seed)
    for ids in stream:
        z = torch.randn(len(ids), 4, dtype=torch.float64, generator=generator)
        sample = torch.tensor(ids)
        with torch.no_grad():
            output = surrogate(z, sample % 4, sample=sample)
            loss, skipped = oracle.step(z, (sample % 4).tolist(), sample_fold(sample).tolist(), ids)
        assert output.rob_loss.item() == pytest.approx(loss, rel=1e-9, abs=1e-12)
        assert int(output.diagnostics["skipped_samples"]) == skipped


class Returning:
    """Classes of 12 fixed samples each, shown in shuffled epochs; fresh samples of the same distribution."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.centre = torch.randn(CLASSES, WIDTH, generator=self.generator)
        self.y = torch.arange(CLASSES).repeat(SAMPLES)
        self.z = self.fresh(self.y)
        # z given y is Gaussian: its nats above the noise floor in closed form
        self.truth = 0.5 * math.log((SPREAD**2 + SIGMA**2) / SIGMA**2)

    def fresh(self, y: Tensor) -> Tensor:
        return self.centre[y] + SPREAD * torch.randn(len(y), WIDTH, generator=self.generator)

    def shown(self, surrogate: SlotMixtureCEM, epochs: int, counted: int = 3) -> float:
        """Mean loss of the last epochs."""
        parameters = list(surrogate.parameters())
        optimiser = torch.optim.Adam(parameters, 1e-2) if parameters else None
        losses = []
        for epoch in range(epochs):
            for part in torch.randperm(len(self.y), generator=self.generator).split(48):
                loss = surrogate(self.z[part], self.y[part], sample=part).rob_loss
                if optimiser is not None:
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                if epoch >= epochs - counted:
                    losses.append(loss.item())
        return fmean(losses)

    @torch.no_grad()
    def held_out(self, surrogate: SlotMixtureCEM) -> float:
        """The loss of many samples that were never remembered."""
        y = torch.arange(CLASSES).repeat(100)
        surrogate.eval()
        loss = surrogate(self.fresh(y), y, sample=torch.arange(len(y)) * 2654435761).rob_loss.item()
        surrogate.train()
        return loss


@pytest.mark.parametrize(
    ("slots", "objective", "below"), [(1, "frozen", 0.99), (4, "frozen", 0.85), (4, "likelihood", 0.85)]
)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_cross_fit__is_not_below_the_truth_where_the_plain_estimate_is(
    covariance: str, slots: int, objective: str, below: float
) -> None:
    ratio = {}
    for cross_fit in (False, True):
        returning = Returning()
        surrogate = SlotMixtureCEM(
            WIDTH,
            CLASSES,
            num_slots=slots,
            reg_strength=SIGMA,
            bank_size=24,
            covariance=covariance,
            rank=4,
            objective=objective,
            cross_fit=cross_fit,
        )
        shown = returning.shown(surrogate, epochs=12)
        ratio[cross_fit] = shown / returning.truth, returning.held_out(surrogate) / returning.truth
    (plain, plain_fresh), (crossed, crossed_fresh) = ratio[False], ratio[True]
    print(
        f"{covariance}, {slots} slots, {objective}: plain {plain:.3f} of the truth (fresh samples {plain_fresh:.3f}), "
        f"cross-fitted {crossed:.3f} (fresh samples {crossed_fresh:.3f})"
    )
    assert plain < below and plain < 0.95 * plain_fresh
    assert crossed >= 0.99 and abs(crossed / crossed_fresh - 1) < 0.05


def small(**arguments: object) -> SlotMixtureCEM:
    return SlotMixtureCEM(6, 3, **{"num_slots": 2, "bank_size": 12, "rank": 2, "reg_strength": 0.2, **arguments})


@pytest.mark.parametrize("cross_fit", [True, False])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_cross_fit__the_past_of_a_sample_has_no_influence_on_its_own_measure(covariance: str, cross_fit: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    y, sample, now = torch.arange(24) % 3, torch.arange(24), torch.randn(24, 6, generator=generator)
    differ = 0
    for own in range(4):
        measures = []
        for past in (0.0, 5.0):
            stream = torch.Generator().manual_seed(1)
            surrogate = small(covariance=covariance, objective="frozen", cross_fit=cross_fit, reseed_every=3)
            for _ in range(8):
                z = torch.randn(24, 6, generator=stream)
                z[own] += past
                surrogate(z, y, sample=sample)
            one = slice(own, own + 1)
            measures.append(surrogate.eval()(now[one], y[one], sample=sample[one]).rob_loss)
        differ += not torch.equal(*measures)
    assert differ == (0 if cross_fit else 4)


def test_cross_fit__without_it_nothing_is_different() -> None:
    plain, told = small(), small(cross_fit=False)
    crossed = small(cross_fit=True).state_dict()
    y = torch.arange(24) % 3
    for seed in range(6):
        z = torch.randn(24, 6, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(plain(z, y).rob_loss, told(z, y, sample=torch.arange(24)).rob_loss)
    shapes = {name: tuple(value.shape) for name, value in plain.state_dict().items()}
    assert shapes.keys() == told.state_dict().keys() and "memory.sample" not in shapes
    assert shapes["memory.feature"] == (4, 12, 6) and crossed["memory.feature"].shape == (8, 6, 6)
    assert shapes["pooled_variance"] == (6,) and shapes["slot_mean"] == (4, 2, 6) and shapes["memory.cursor"] == (4,)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, told.state_dict()[name]), name


@pytest.mark.parametrize("stride", [1, 2, 3, 7, 10, 64, 1000])
def test_sample_fold__no_pattern_of_ids_puts_a_class_into_one_fold(stride: int) -> None:
    ids = torch.arange(4000) * stride + 5
    share = sample_fold(ids).double().mean().item()
    assert abs(share - 0.5) < 4 * 0.5 / 4000**0.5
    assert set(sample_fold(-ids).tolist()) == {0, 1}


def test_sample_fold__ids_in_a_row_are_cut_into_halves() -> None:
    for start in range(0, 200, 2):
        assert sample_fold(torch.arange(start, start + 10)).sum() == 5


def test_cross_fit__a_class_in_one_fold_is_skipped_and_said_so() -> None:
    surrogate, ids = small(cross_fit=True), torch.arange(40)
    first, second = ids[sample_fold(ids) == 0][:6], ids[sample_fold(ids) == 1][:2]
    y = torch.zeros(6, dtype=torch.int64)
    for _ in range(3):
        z = torch.randn(6, 6, requires_grad=True)
        output = surrogate(z, y, sample=first)
        (gradient,) = torch.autograd.grad(output.rob_loss, z)
        assert output.rob_loss == 0 and not gradient.any()
        assert [int(output.diagnostics[k]) for k in ("active_classes", "skipped_classes", "skipped_samples")] == [
            0,
            1,
            6,
        ]
    output = surrogate(torch.randn(4, 6), y[:4], sample=torch.cat([first[:2], second]))
    # the newcomers meet the others' memory; the others still meet nothing
    assert [int(output.diagnostics[k]) for k in ("active_classes", "skipped_classes", "skipped_samples")] == [1, 0, 2]
    output = surrogate(torch.randn(4, 6), y[:4], sample=torch.cat([first[:2], second]))
    assert int(output.diagnostics["skipped_samples"]) == 0


def test_cross_fit__one_sample_per_class_of_a_thousand_classes() -> None:
    surrogate = SlotMixtureCEM(16, 1000, num_slots=2, bank_size=4, reg_strength=SIGMA, cross_fit=True)
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(1000, 16, generator=generator)
    skipped = []
    for epoch in range(6):
        for y in torch.randperm(1000, generator=generator).split(125):
            z = (centre[y] + 0.1 * torch.randn(125, 16, generator=generator)).requires_grad_()
            output = surrogate(z, y, sample=1000 * (epoch % 4) + y)  # four samples a class
            (gradient,) = torch.autograd.grad(output.rob_loss, z)
            assert output.rob_loss.isfinite() and gradient.isfinite().all()
            assert int(output.diagnostics["active_classes"]) == 125 - int(output.diagnostics["skipped_samples"])
            assert (gradient.norm(dim=1) > 0).sum() == output.diagnostics["active_classes"]
            skipped.append(int(output.diagnostics["skipped_samples"]))
    epochs = [sum(skipped[start : start + 8]) for start in range(0, 48, 8)]
    print(f"of a thousand samples without a mixture, epoch after epoch: {epochs}")
    assert skipped[:8] == [125] * 8
    # four ids at random leave one fold of a class empty with probability 1/8
    assert epochs[-1] / 1000 < 1 / 8 + 4 * (1 / 8 * 7 / 8 / 1000) ** 0.5


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_cross_fit__compiles_to_one_graph_and_computes_the_same(covariance: str) -> None:
    eager = small(cross_fit=True, covariance=covariance, reseed_every=10_000, label_space=3)
    y, sample = torch.arange(24) % 3, torch.arange(24)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        eager(torch.randn(24, 6, generator=generator), y, sample=sample)
    twin = copy.deepcopy(eager)
    compiled = torch.compile(twin, fullgraph=True, backend="eager")
    for _ in range(5, 7):  # calls at which the eager one does not reseed
        z = torch.randn(24, 6, generator=generator)
        torch.testing.assert_close(compiled(z, y, sample=sample).rob_loss, eager(z, y, sample=sample).rob_loss)
        twin.maintain()
        eager.maintain()
    for name in ("slot_mean", "pooled_variance", "memory.feature", "memory.sample", "memory.written"):
        ours, theirs = twin.get_buffer(name), eager.get_buffer(name)
        torch.testing.assert_close(ours[:6], theirs[:6], msg=lambda m, n=name: f"{n}: {m}")


def test_cross_fit__a_promised_label_space_changes_nothing() -> None:
    free, promised = (small(cross_fit=True, label_space=space) for space in (None, 3))
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        z, sample = torch.randn(9, 6, generator=generator), torch.randint(0, 30, (9,), generator=generator)
        losses = [surrogate(z, sample % 3, sample=sample).rob_loss for surrogate in (free, promised)]
        torch.testing.assert_close(*losses)
    assert losses[0] > 0


def test_cross_fit__the_folds_of_a_class_come_and_go_together() -> None:
    surrogate = SlotMixtureCEM(4, 5, num_slots=1, bank_size=6, cross_fit=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        sample = torch.randperm(90, generator=generator)[:5]
        y = sample % 9
        surrogate(torch.randn(5, 4, generator=generator), y, sample=sample)
        written, label = surrogate.memory.written.view(6, -1)[:-1] >= 0, surrogate.memory.label[:-1]
        for held, ids, name in zip(written, surrogate.memory.sample.view(6, -1), label, strict=False):
            assert (ids[held] % 9 == name).all(), "a place holds samples of its class alone"
            assert len(ids[held].unique()) == held.sum(), "and each of them once"


def test_cross_fit__bank_size_counts_both_folds_and_memory_does_not_grow() -> None:
    plain, crossed = small(bank_size=12), small(bank_size=12, cross_fit=True)
    assert plain.memory.feature.numel() == crossed.memory.feature.numel()
    assert small(bank_size=7, cross_fit=True).memory.ring_size == 4
    with pytest.raises(ValueError, match="cross_fit.*'yes'"):
        small(cross_fit="yes")
    with pytest.raises(RuntimeError, match="size mismatch"):
        crossed.load_state_dict(plain.state_dict() | {"memory.sample": crossed.memory.sample})


def test_hybrid__hands_the_samples_to_a_cross_fitted_part() -> None:
    hybrid = HybridCEM(6, 3, quota=3, cross_fit=True, bank_size=12, reg_strength=0.2)
    alone = SlotMixtureCEM(6, 3, bank_size=12, reg_strength=0.2, cross_fit=True)
    y, sample = torch.arange(24) % 3, torch.arange(24)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        z = torch.randn(24, 6, generator=generator)
        both = hybrid(z, y, sample=sample), alone(z, y, sample=sample)
    torch.testing.assert_close(both[0].rob_loss, both[1].rob_loss)
    assert hybrid.uses_sample and both[1].rob_loss > 0
    with pytest.raises(ValueError, match="sample="):
        hybrid(z, y)
    assert not HybridCEM(6, 3).uses_sample and not GatedAttentionCEM(6).uses_sample


@pytest.mark.parametrize("modes", [1, 4, 8])
def test_cross_fit__bounds_the_entropy_of_large_classes_as_tightly(modes: int) -> None:
    features, truth = known_features(modes)
    surrogate = make(modes, cross_fit=True)
    optimiser = torch.optim.Adam(surrogate.parameters(), 1e-3)
    for part in torch.arange(64 * 60).split(64):
        optimiser.zero_grad()
        surrogate(features.z[part], features.labels[part], sample=part).rob_loss.backward()
        optimiser.step()
    fresh = torch.arange(TRAINED, TRAINED + 4_000)
    with torch.no_grad():
        loss = surrogate.eval()(features.z[fresh], features.labels[fresh], sample=fresh).rob_loss.item()
    print(f"{modes} modes: {loss / truth:.4f} of the true {truth:.4f} nats per dimension above the floor")
    assert 0.99 <= loss / truth <= 1.05
