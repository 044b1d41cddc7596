"""Shared by the tests of the slot mixture: features of known entropy, and a way to show them to a surrogate."""

from functools import cache

import torch
from torch import Tensor

from attention_cem import (
    ConditionalEntropySurrogate,
    SlotMixtureCEM,
)
from attention_cem.data import gaussian_mixture_features
from attention_cem.data.gaussian_mixture import GaussianMixtureFeatures
from attention_cem.surrogates.mixture import noise_entropy

SIGMA, WIDTH, TRAINED = 0.1, 64, 16_000


@cache
def known_features(
    modes: int, classes: int = 2, mode_distance: float = 3.0, std_range: tuple[float, float] = (0.07, 0.2)
) -> tuple[GaussianMixtureFeatures, float]:
    """Features of known density, and their true nats per dimension above the noise floor."""
    features = gaussian_mixture_features(
        TRAINED + 4_000,
        num_classes=classes,
        modes_per_class=modes,
        dim=WIDTH,
        mode_distance=mode_distance,
        std_range=std_range,
        seed=1,
    )
    return features, true_nats(features)


def true_nats(features: GaussianMixtureFeatures) -> float:
    return features.conditional_entropy(SIGMA, num_samples=20_000).value / WIDTH - noise_entropy(SIGMA**2)


def trained(
    surrogate: SlotMixtureCEM, z: Tensor, y: Tensor, steps: int, batch: int = 64, start: int = 0, lr: float = 1e-3
) -> SlotMixtureCEM:
    """Show the surrogate so many batches of a stream; its own parameters follow its loss."""
    parameters = list(surrogate.parameters())
    optimiser = torch.optim.Adam(parameters, lr) if parameters else None
    for step in range(start, start + steps):
        part = slice(step * batch, (step + 1) * batch)
        loss = surrogate(z[part], y[part]).rob_loss
        if optimiser is not None:
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return surrogate


@torch.no_grad()
def reported(surrogate: ConditionalEntropySurrogate, z: Tensor, y: Tensor) -> float:
    """The loss of features that are not remembered."""
    surrogate.eval()
    loss = surrogate(z, y).rob_loss.item()
    surrogate.train()
    return loss


def make(slots: int, classes: int = 2, **arguments: object) -> SlotMixtureCEM:
    return SlotMixtureCEM(WIDTH, classes, num_slots=slots, reg_strength=SIGMA, **{"bank_size": 512, **arguments})
