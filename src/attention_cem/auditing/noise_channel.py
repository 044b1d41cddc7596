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


def before_noise(stack: DefenceStack, z: Tensor) -> tuple[Tensor, FeatureDefence]:
    """What the first noisy stage adds its noise to, differentiable in ``z``, and that stage.

    Raises:
        ValueError: the stack adds no noise whose density is known: the information is then not bounded.
    """
    for stage in stack.defences.values():
        if isinstance(stage, InformationBottleneck):
            return stage.statistics(z)[0], stage
        if isinstance(stage, GaussianNoise | LaplaceNoise):
            return z, stage
        if isinstance(stage, LocalDP):
            return clip_per_sample(z, stage.clip_norm, order=2 if stage.mechanism == "gaussian" else 1), stage
        if isinstance(stage, FeatureDefence):
            z = stage(z)
    raise ValueError("the defence adds no noise of known density, so what a release tells is not bounded")


@torch.no_grad()
def noisy_release(stack: DefenceStack, z: Tensor) -> NoisyRelease:
    """Send client outputs ``(N, *z)`` through the stack up to and including its first noisy stage.

    >>> release = noisy_release(DefenceStack([GaussianNoise(0.5)]), torch.zeros(2, 4))
    >>> release.gaussian_variance, release.conditional_entropy.shape
    (0.25, torch.Size([2]))
    """
    clean, stage = before_noise(stack, z.float())
    if isinstance(stage, InformationBottleneck):
        _, log_variance = stage.statistics(z.float())
        entropy = 0.5 * (math.log(2 * math.pi * math.e) + log_variance.double()).flatten(1).sum(1)
        return NoisyRelease(clean, clean + (0.5 * log_variance).exp() * torch.randn_like(clean), entropy, None)
    variance = stage.noise_variance()
    if variance is None:
        raise ValueError(f"the noise of {stage.name} depends on its input; its density is not known here")
    laplace = isinstance(stage, LaplaceNoise) or (isinstance(stage, LocalDP) and stage.mechanism == "laplace")
    if laplace:
        each = math.log(2 * math.e * math.sqrt(variance / 2))
    else:
        each = 0.5 * math.log(2 * math.pi * math.e * variance)
    entropy = torch.full((len(z),), each * clean[0].numel(), dtype=torch.float64, device=z.device)
    return NoisyRelease(clean, stage(clean), entropy, None if laplace else variance)
