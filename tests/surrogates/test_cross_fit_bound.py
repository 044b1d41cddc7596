"""What cross-fitting reports against the truth: samples that return every epoch, and large classes."""

import math
from statistics import fmean

import pytest
import torch
from torch import Tensor

from attention_cem import SlotMixtureCEM
from tests.surrogates.known_mixtures import TRAINED, known_features, make

COVARIANCES = ["diagonal", "isotropic", "low_rank", "full"]
CLASSES, SAMPLES, WIDTH, SIGMA, SPREAD = 40, 12, 16, 0.1, 0.3


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
