"""Cross-fitting against dictionaries by class and fold."""

import math
from collections import defaultdict, deque
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention_cem import SlotMixtureCEM
from attention_cem.surrogates.folds import sample_fold
from attention_cem.surrogates.mixture import noise_entropy


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
        for place, (v, label, side, number) in enumerate(zip(z, y, fold, sample, strict=True)):
            if number not in sample[place + 1 :]:
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
