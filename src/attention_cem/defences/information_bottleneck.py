"""Variational information bottleneck (Alemi et al., ICLR 2017, arXiv 1612.00410) at the cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from . import checks
from .base import FeatureDefence, PenaltyDefence, Stage
from .randomness import Draw, NoiseSource, normal_like
from .registry import register_defence

_LOG_VARIANCE_RANGE = (-14.0, 6.0)  # keeps exp() and its gradient finite; σ from 0.0009 to 20


def kl_to_standard_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """½ Σ_d (μ² + σ² − 1 − log σ²) per sample, in nats.

    Args:
        mean: ``(N, ...)``.
        log_variance: ``(N, ...)``.

    Returns:
        ``(N,)``.

    >>> kl_to_standard_normal(torch.ones(1, 3), torch.zeros(1, 3))
    tensor([1.5000])
    """
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).flatten(1).sum(dim=1)


@register_defence
class InformationBottleneck(FeatureDefence, PenaltyDefence):
    """z̃ = μ(z) + σ(z)·ε, with a penalty on KL(N(μ, σ²) ‖ N(0, I)).

    μ and log σ² are linear in the channels (a 1×1 convolution, or a linear layer on the last axis). At the
    start μ is the identity and σ is ``initial_std``, so that adding the bottleneck does not disturb a trained
    client. Its layers belong to the client and are trained with it.

    Args:
        z_shape: ``(C, H, W)``, ``(tokens, D)`` or ``(D,)``.
        weight: weight β of the mean KL (nats per sample) in the client's loss.
        initial_std: σ at the start, in the units of z.

    Shape: ``(N, *z_shape)`` → the same.

    >>> defence = InformationBottleneck(z_shape=(8, 4, 4), weight=1e-3)
    >>> defence(torch.zeros(2, 8, 4, 4)).shape
    torch.Size([2, 8, 4, 4])
    """

    name: ClassVar[str] = "information_bottleneck"
    stage: ClassVar[Stage] = Stage.EMISSION

    def __init__(self, z_shape: Sequence[int], weight: float, initial_std: float = 0.1) -> None:
        super().__init__()
        self.z_shape = checks.shape("z_shape", z_shape, ranks=(1, 2, 3))
        self.weight = checks.not_negative("weight", weight)
        self.initial_std = checks.positive("initial_std", initial_std)
        convolves = len(self.z_shape) == 3
        width = self.z_shape[0] if convolves else self.z_shape[-1]
        self.mean_layer: nn.Module = nn.Conv2d(width, width, 1) if convolves else nn.Linear(width, width)
        self.spread_layer: nn.Module = nn.Conv2d(width, width, 1) if convolves else nn.Linear(width, width)
        state = {
            "mean_layer.weight": torch.eye(width),
            "mean_layer.bias": torch.zeros(width),
            "spread_layer.weight": torch.zeros(width, width),
            "spread_layer.bias": torch.full((width,), 2 * math.log(self.initial_std)),
        }
        with torch.no_grad():
            for key, parameter in self.named_parameters():
                parameter.copy_(state[key].reshape(parameter.shape))

    def statistics(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the released feature, each ``(N, *z_shape)``."""
        if checks.features(z).shape[1:] != self.z_shape:
            raise ValueError(f"z must have shape (N, *{self.z_shape}), received {tuple(z.shape)}")
        return self.mean_layer(z), self.spread_layer(z).clamp(*_LOG_VARIANCE_RANGE)

    def forward(self, z: Tensor, source: NoiseSource = None) -> Tensor:
        """Sample the released feature, in training and evaluation alike."""
        mean, log_variance = self.statistics(z)
        return mean + (0.5 * log_variance).exp() * normal_like(mean, source)

    def draws(self) -> tuple[Draw, ...]:
        """One normal draw."""
        return ("normal",)

    def emission(self, z: Tensor) -> Tensor:
        """μ(z): what the client would release without noise."""
        return self.statistics(z)[0]

    def term(self, x: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """Mean KL over the batch in nats per sample; ``x`` and ``y`` are not used."""
        mean, log_variance = self.statistics(z)
        return kl_to_standard_normal(mean.float(), log_variance.float()).sum() / max(z.shape[0], 1)

    def noise_variance(self) -> None:
        """None: the noise depends on the input."""
        return None

    def config(self) -> dict[str, Any]:
        """Shape, weight and the starting spread."""
        return {"z_shape": list(self.z_shape), "weight": self.weight, "initial_std": self.initial_std}

    def guarantee(self) -> str:
        """A bound on the average information, valid where it is measured."""
        return (
            "On average over the data on which it is measured, the mean KL term bounds the mutual "
            "information of input and one released feature from above, in nats. A single input may reveal "
            "more, and the term is only as small as training made it."
        )
