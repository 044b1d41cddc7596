"""Cross-fitting in two folds: a sample is remembered in one and measured against the other.

Tables of classes and folds have the folds of a class in neighbouring rows: row ``2 r + fold``.
"""

import torch
from torch import Tensor

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
