"""Cross-fitting in two folds: a sample is remembered in one and measured against the other.

Tables of classes and folds have the folds of a class in neighbouring rows: row ``2 r + fold``.
"""

import torch
from torch import Tensor

from attention_cem.surrogates.mixture import (
    LEAST_MASS,
    component_share,
    degrees_of_freedom,
    within_component_scatter,
)
from attention_cem.surrogates.noise import splitmix64

FOLDS = 2


def sample_fold(sample: Tensor) -> Tensor:
    """The folds (N,), 0 or 1, of the samples with the ids (N,) int64.

    Ids 2k and 2k + 1 are always in different folds, so that a class whose samples are numbered one after the other is
    cut into halves; which of the two is in which fold is a hash of k, so that no other pattern of ids (as every second
    one of a class) puts a class into one fold.

    >>> sample_fold(torch.arange(8)).view(4, 2).sum(1)
    tensor([1, 1, 1, 1])
    """
    return (sample ^ splitmix64(sample >> 1)) & 1


def by_fold(table: Tensor) -> Tensor:
    """Rows of alternating folds (2R, ...) as a table for each fold (2, R, ...)."""
    return table.unflatten(0, (-1, FOLDS)).transpose(0, 1)


def telling_samples(assigned: Tensor) -> tuple[Tensor, Tensor]:
    """How many samples of each row (R, K, S) tell of the spread within its slots (R,), and how many are missing (R,).

    Half a class may have hardly more samples than slots. A row with less than one degree of freedom a slot is short of
    them; where it has two samples, the spread of the whole row stands in for what is missing. Without that, slots of
    one sample each would agree on a variance of zero.
    """
    free, count = degrees_of_freedom(assigned).sum(-1), assigned.sum((1, 2))
    return free, (assigned.shape[-1] - free).clamp_min(0) * (count > 1.5)


def within_slot_variance(assigned: Tensor, mass: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Pooled variance within slots (2, D) of each fold's rows, and the samples (2, 1) it rests on."""
    free, missing = telling_samples(assigned)
    share, count = component_share(mass).unsqueeze(-1), mass.sum(-1)
    centre = (share * mean).sum(1, keepdim=True)
    whole = (share * (variance + (mean - centre).square())).sum(1) * (count / (count - 1).clamp_min(0.5)).unsqueeze(-1)
    scatter = (mass.unsqueeze(-1) * variance).sum(1) + missing.unsqueeze(-1) * whole  # (R, D)
    samples = by_fold(free + missing).sum(1, keepdim=True)
    return by_fold(scatter).sum(1) / samples.clamp_min(LEAST_MASS), samples


def within_slot_covariance(bank: Tensor, assigned: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of products (2, D, D) for the pooled covariance within slots of each fold, and the samples (2, 1, 1)."""
    free, missing = telling_samples(assigned)
    weight = assigned.sum(-1, keepdim=True)
    weight = weight * (missing / (weight.sum((1, 2)) - 1).clamp_min(0.5))[:, None, None]
    scatter = [
        within_component_scatter(x, slots) + within_component_scatter(x, whole)
        for x, slots, whole in zip(by_fold(bank), by_fold(assigned), by_fold(weight), strict=True)
    ]
    return torch.stack(scatter), by_fold(free + missing).sum(1)[:, None, None]


def for_rows(statistic: Tensor, rows: int) -> Tensor:
    """A statistic of each fold (2, ...) for ``rows`` rows of alternating folds (rows, ...)."""
    return statistic.repeat(rows // FOLDS, *[1] * (statistic.dim() - 1))


def rows_in_axes(x: Tensor, axes: Tensor) -> Tensor:
    """Rows of alternating folds (2R, K, D), each times the matrix of its fold (2, D, D)."""
    rotated = by_fold(x).flatten(1, 2) @ axes  # (2, R*K, D)
    return rotated.unflatten(1, (-1, x.shape[1])).transpose(0, 1).flatten(0, 1)


def samples_in_axes(z: Tensor, axes: Tensor, fold: Tensor) -> Tensor:
    """Samples (N, D), each times the matrix (2, D, D) of ``fold`` (N,)."""
    first, second = z @ axes[0], z @ axes[1]
    return torch.where(fold.bool().unsqueeze(1), second, first)
