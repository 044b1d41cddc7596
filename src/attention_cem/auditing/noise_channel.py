"""The first noisy stage of a defence: where information is lost for good, and how much entropy the noise brings.

Whatever follows it (dropout, pruning, clipping) only processes its output, so a bound at this stage holds for the
release (data-processing inequality).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_cem.defences import (
    DefenceStack,
    FeatureDefence,
    GaussianNoise,
    InformationBottleneck,
    LaplaceNoise,
    LocalDP,
)
from attention_cem.defences.local_dp import clip_per_sample


@dataclass(frozen=True, eq=False)
class NoisyRelease:
    """Features around the first noisy stage.

    Args:
        clean: ``(N, *z)`` what the noise is added to.
        noisy: ``(N, *z)`` one draw.
        conditional_entropy: ``(N,)`` h(noisy | clean) in nats.
        gaussian_variance: the variance per coordinate if the noise is Gaussian and the same for all, else None.
    """

    clean: Tensor
    noisy: Tensor
    conditional_entropy: Tensor
    gaussian_variance: float | None


def noisy_release(stack: DefenceStack, z: Tensor) -> NoisyRelease:
    """Send client outputs through the stack up to and including its first noisy stage.

    Raises:
        ValueError: the stack adds no noise whose density is known: the information is then not bounded.

    >>> release = noisy_release(DefenceStack([GaussianNoise(0.1)]), torch.zeros(2, 4))
    >>> release.gaussian_variance, release.conditional_entropy.shape
    (0.010000000000000002, torch.Size([2]))
    """
    with torch.no_grad():
        for stage in stack.defences.values():
            if not isinstance(stage, FeatureDefence):
                continue
            if isinstance(stage, InformationBottleneck):
                mean, log_variance = stage.statistics(z)
                entropy = 0.5 * (math.log(2 * math.pi * math.e) + log_variance).flatten(1).sum(1)
                return NoisyRelease(mean, mean + (0.5 * log_variance).exp() * torch.randn_like(mean), entropy, None)
            if isinstance(stage, GaussianNoise):
                return NoisyRelease(z, stage(z), _gaussian_entropy(z, stage.sigma), stage.sigma**2)
            if isinstance(stage, LaplaceNoise):
                return NoisyRelease(z, stage(z), _laplace_entropy(z, (stage.noise_variance() / 2) ** 0.5), None)
            if isinstance(stage, LocalDP):
                gaussian = stage.mechanism == "gaussian"
                clipped = clip_per_sample(z.float(), stage.clip_norm, order=2 if gaussian else 1)
                entropy_of = _gaussian_entropy if gaussian else _laplace_entropy
                variance = stage.noise_scale**2 if gaussian else None
                return NoisyRelease(clipped, stage(z), entropy_of(z, stage.noise_scale), variance)
            z = stage(z)
    raise ValueError("the defence adds no noise of known density, so what a release tells is not bounded")


def _gaussian_entropy(z: Tensor, sigma: float) -> Tensor:
    width = z[0].numel()
    return torch.full((len(z),), 0.5 * width * math.log(2 * math.pi * math.e * sigma**2), dtype=torch.float64).to(
        z.device
    )


def _laplace_entropy(z: Tensor, scale: float) -> Tensor:
    width = z[0].numel()
    return torch.full((len(z),), width * math.log(2 * math.e * scale), dtype=torch.float64).to(z.device)
