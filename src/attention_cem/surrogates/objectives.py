"""What an estimator's own parameters are trained for, and the sound loss that goes with it."""

import warnings
from typing import Any

import torch
from torch import Tensor

from attention_cem.surrogates.mixture import ClassMixtures, expected_log_density, noise_entropy
from attention_cem.surrogates.segments import ClassSegments, class_mean, class_sum, class_weighted_sums

OBJECTIVES = ("penalty", "likelihood", "adversary", "frozen")


class StudyOnlyWarning(UserWarning):
    """The estimator minimises the penalty it measures, so it learns to report little instead of the truth."""


def warn_if_penalty(name: str, objective: str) -> None:
    """Warn about the one objective that deceives itself."""
    if objective == "penalty":
        warnings.warn(
            f"{name}(objective='penalty') trains its attention to make its own penalty small, as the source documents "
            "do: what it reports cannot be trusted, and slots end as no defence at all. For studies; to defend use "
            "objective='likelihood', 'adversary' or 'frozen', or SlotMixtureCEM.",
            StudyOnlyWarning,
            stacklevel=3,
        )


class ReverseGradient(torch.autograd.Function):
    """Identity whose gradient changes sign: what is behind it maximises what is in front of it minimises."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The input itself."""
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The negative gradient."""
        return -gradient


def slot_statistics(assigned: Tensor, x: Tensor, segments: ClassSegments) -> tuple[Tensor, Tensor, Tensor]:
    """Masses (R, S), means and variances (R, S, d) of samples x (N, d) under responsibilities (N, S).

    The variance is the second moment minus the squared mean, taken around the class mean: exact algebra that
    needs no (N, S, d) tensor, and the shift keeps the subtraction accurate in single precision. Neither result
    depends on the shift, so it needs no gradient.
    """
    row, rows = segments.row, segments.num_rows
    centre = class_mean(x.detach(), segments)
    shifted = x - centre.index_select(0, row)
    mass = class_sum(assigned, row, rows)
    share = torch.where(mass > 1e-20, mass, 1).unsqueeze(-1)  # rows and slots without samples
    first = class_weighted_sums(assigned, shifted, row, rows) / share
    second = class_weighted_sums(assigned, shifted.square(), row, rows) / share
    return mass, centre.unsqueeze(1) + first, second - first.square()


def assigned_nats(
    z: Tensor, assigned: Tensor, segments: ClassSegments, noise_variance: float, objective: str
) -> Tensor:
    r"""Nats per dimension above the noise of each class (R,), from assignments that do not carry z's gradient.

    .. math:: L_c = \sum_s \pi_s \frac1D\sum_d \tfrac12\log\left(1+\sigma^2_{sd}/\sigma_p^2\right)

    The client moves raw z and nothing else. The assignments (N, S) belong to the estimator: under ``adversary`` their
    gradient is reversed, under ``frozen`` there is none, and under ``likelihood`` they learn to explain the samples as
    a mixture (negative log-likelihood), which leaves the value as it is.
    """
    weights = ReverseGradient.apply(assigned) if objective == "adversary" else assigned.detach()
    mass, _, variance = slot_statistics(weights, z, segments)
    total = mass.sum(-1, keepdim=True)
    share = mass / torch.where(total > 0, total, 1)
    nats = (share * 0.5 * torch.log1p(variance.clamp_min(0) / noise_variance).mean(-1)).sum(-1)
    if objective == "likelihood":
        fixed = z.detach()
        mass, mean, variance = slot_statistics(assigned, fixed, segments)
        total = mass.sum(-1, keepdim=True)
        share = (mass + 1e-6) / (total + 1e-6 * mass.shape[-1])
        mixtures = ClassMixtures(share, mean, variance.clamp_min(0) + noise_variance)
        log_density = expected_log_density(fixed, segments.row, mixtures, noise_variance)
        fit = -class_sum(log_density, segments.row, segments.num_rows) / segments.size.clamp_min(1) / z.shape[-1]
        fit = fit - noise_entropy(noise_variance)
        nats = nats + fit - fit.detach()
    return nats
