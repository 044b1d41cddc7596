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
        noisy: ``(N, *z)`` one draw, or the mean of several.
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
        # Of these classes themselves the density is known; what a subclass of one's own adds is not.
        if type(stage) is InformationBottleneck:
            return stage.statistics(z)[0], stage
        if type(stage) is GaussianNoise or type(stage) is LaplaceNoise:
            return z, stage
        if type(stage) is LocalDP:
            return clip_per_sample(z, stage.clip_norm, order=2 if stage.mechanism == "gaussian" else 1), stage
        if isinstance(stage, FeatureDefence):
            z = stage(z)
    raise ValueError("the defence adds no noise of known density, so what a release tells is not bounded")


@torch.no_grad()
def noisy_release(stack: DefenceStack, z: Tensor, releases: int = 1) -> NoisyRelease:
    """Send client outputs ``(N, *z)`` through the stack up to and including its first noisy stage.

    Several releases of one image tell together what their mean tells, if each is the same value plus Gaussian noise of
    one variance: one release with that variance divided by their number.

    Raises:
        ValueError: no noise of known density, or several releases whose mean does not tell all.

    >>> release = noisy_release(DefenceStack([GaussianNoise(0.5)]), torch.zeros(2, 4))
    >>> release.gaussian_variance, release.conditional_entropy.shape
    (0.25, torch.Size([2]))
    """
    clean, stage = before_noise(stack, z.float())
    if releases > 1 and not _mean_tells_all(stack, stage):
        raise ValueError(
            f"{releases} releases of each image are seen; what they tell together is bounded for Gaussian noise only, "
            "with nothing random before it"
        )
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
        variance /= releases
        each = 0.5 * math.log(2 * math.pi * math.e * variance)
    entropy = torch.full((len(z),), each * clean[0].numel(), dtype=torch.float64, device=z.device)
    noisy = stage(clean)
    for _ in range(releases - 1):
        noisy = noisy + stage(clean)
    return NoisyRelease(clean, noisy / releases, entropy, None if laplace else variance)


def _mean_tells_all(stack: DefenceStack, stage: FeatureDefence) -> bool:
    """Whether the mean of several releases is a sufficient statistic for what the noise is added to."""
    for each in stack.defences.values():
        if each is stage:
            break
        if isinstance(each, FeatureDefence) and each.draws():
            return False
    return isinstance(stage, GaussianNoise) or (isinstance(stage, LocalDP) and stage.mechanism == "gaussian")
