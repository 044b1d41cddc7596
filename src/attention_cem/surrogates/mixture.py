"""Gaussian mixtures per class from soft assignments: attention assigns, these functions measure."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from attention_cem.surrogates.segments import class_scores

LEAST_MASS = 0.1


def mixture_statistics(x: Tensor, assigned: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Masses (R, S), means and variances (R, S, D) of samples x (R, K, D) under soft assignments (R, K, S).

    Moments are taken around the mean of all samples, which changes nothing but the rounding; only components with
    less than ``LEAST_MASS`` of a sample shrink towards that mean, so that no gradient is divided by almost nothing.
    """
    mass, share, centre, shifted = _around_centre(x, assigned)
    first = share @ shifted
    return mass, centre + first, (share @ shifted.square() - first.square()).clamp_min(0)


def mixture_means(x: Tensor, assigned: Tensor) -> tuple[Tensor, Tensor]:
    """Masses (R, S) and means (R, S, D), as `mixture_statistics` has them."""
    mass, share, centre, shifted = _around_centre(x, assigned)
    return mass, centre + share @ shifted


def _around_centre(x: Tensor, assigned: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mass = assigned.sum(1)
    with torch.no_grad():
        weight = assigned.sum(-1).unsqueeze(1)  # (R, 1, K)
        total = weight.sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        centre = weight @ x / total  # (R, 1, D)
    share = (assigned / mass.clamp_min(LEAST_MASS).unsqueeze(1)).mT  # (R, S, K)
    return mass, share, centre, x - centre


def component_share(mass: Tensor) -> Tensor:
    """Component weights (R, S) from masses; equal ones where a class has no samples."""
    some = mass + torch.finfo(mass.dtype).tiny
    return some / some.sum(-1, keepdim=True)


def degrees_of_freedom(assigned: Tensor) -> Tensor:
    r"""Samples (R, S) that tell of each component's variance: :math:`\sum_mr_m-\sum_mr_m^2/\sum_mr_m`.

    The latter is what the component's mean takes; for whole samples it is one.

    >>> degrees_of_freedom(torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]))
    tensor([[1., 0.]])
    """
    mass = assigned.sum(1)
    return mass - assigned.square().sum(1) / mass.clamp_min(torch.finfo(mass.dtype).tiny)


def within_component_scatter(x: Tensor, assigned: Tensor) -> Tensor:
    r"""Sum (D, D) of :math:`r(x-\mu_s)(x-\mu_s)^\top` over all samples (R, K, D), classes and components."""
    mass, mean, _ = mixture_statistics(x, assigned)
    weight = assigned.sum(-1, keepdim=True)
    centre = (weight * x).sum(1, keepdim=True) / weight.sum(1, keepdim=True).clamp_min(1e-12)
    shifted, mean = (x - centre).flatten(0, 1), (mean - centre).flatten(0, 1)
    return (weight.flatten(0, 1) * shifted).T @ shifted - (mass.flatten().unsqueeze(1) * mean).T @ mean


def shrink_variance(variance: Tensor, mass: Tensor, pooled: Tensor, strength: float) -> Tensor:
    """Predictive variances (R, S, D): towards the pooled one (D,) where a component holds few samples.

    ``strength`` counts as so many samples of the pooled variance; the factor 1 + 1/n is what a mean estimated from n
    samples adds to the error on the next one.
    """
    count = mass.unsqueeze(-1)
    held = (count + strength).reciprocal()
    return torch.addcmul(strength * pooled, count, variance) * (held + held.square())


class ClassMixtures(NamedTuple):
    """A Gaussian mixture for each of R classes."""

    share: Tensor
    """(R, S): component weights, summing to one."""
    mean: Tensor
    """(R, S, D)"""
    variance: Tensor
    """(R, S, D): diagonal, the noise included."""


def expected_log_density(z: Tensor, row: Tensor | None, mixtures: ClassMixtures, noise_variance: float) -> Tensor:
    r"""Lower bound on :math:`E_\epsilon\log b(z+\epsilon)`, :math:`\epsilon\sim N(0,\sigma_p^2 I)`, for each sample.

    .. math::
        \log\sum_s\pi_s N(z;\mu_s,V_s)\,e^{-\frac12\sum_d\sigma_p^2/V_{sd}}
        \;\le\; E_\epsilon\log\sum_s\pi_s N(z+\epsilon;\mu_s,V_s),

    by Jensen's inequality with component weights that do not depend on the noise; equal for one component. So its
    negative is an upper bound on the cross-entropy of the noisy feature, without drawing noise.

    Args:
        z: (N, D) with the rows (N,) of the samples' classes, or (R, K, D) and None.
        mixtures: of R classes. noise_variance: :math:`\sigma_p^2`.

    Returns:
        (N,) or (R, K)
    """
    width = z.shape[-1]
    share, mean, variance = mixtures
    precision = variance.reciprocal()
    origin = mean.detach().mean(1)  # per class; keeps the expanded square accurate
    shifted = z - (origin.unsqueeze(1) if row is None else origin.index_select(0, row))
    centre = mean - origin.unsqueeze(1)
    constant = (centre.square() * precision + variance.log() + noise_variance * precision).sum(-1)  # (R, S)
    both = torch.cat([shifted.square(), shifted], -1)
    table = torch.cat([precision, -2 * centre * precision], -1)
    offset = share.log() - 0.5 * (constant + width * math.log(2 * math.pi))
    if row is None:
        return (offset.unsqueeze(1) - 0.5 * both @ table.mT).logsumexp(-1)
    return (offset.index_select(0, row) - 0.5 * class_scores(both, table, row)).logsumexp(-1)


def noise_entropy(noise_variance: float) -> float:
    r"""Nats per dimension of the noise alone, :math:`\tfrac12\log(2\pi e\sigma_p^2)`."""
    return 0.5 * math.log(2 * math.pi * math.e * noise_variance)
