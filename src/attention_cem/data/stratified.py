"""Draw from every class in proportion, without a loop over the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention_cem.data.random_streams import generator_for

if TYPE_CHECKING:
    from attention_cem.data.image_set import ImageSet


def position_within_class(labels: Tensor) -> tuple[Tensor, Tensor]:
    """For every sample: how many of its class came before it, and how many its class has.

    Example:
        >>> position, size = position_within_class(torch.tensor([5, 2, 5, 5]))
        >>> position.tolist(), size.tolist()
        ([0, 0, 1, 2], [3, 1, 3, 3])
    """
    _, dense, counts = labels.unique(return_inverse=True, return_counts=True)
    by_class = dense.argsort(stable=True)
    first_of_class = counts.cumsum(0) - counts
    position = torch.empty_like(dense)
    position[by_class] = torch.arange(len(labels), device=labels.device) - first_of_class[dense[by_class]]
    return position, counts[dense]


def _draw_order(labels: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Shuffle, then rank: samples, their quantile within their class, whether they are their class's last.

    Sample r of a class of M has the quantile (r + ½)/M. Taking the n smallest quantiles of all takes, of
    every class, its proportional share rounded to a whole number.
    """
    shuffled = torch.randperm(len(labels), generator=generator_for("stratified", seed))
    position, size = position_within_class(labels[shuffled])
    return shuffled, (position + 0.5) / size, position == size - 1


def stratified_indices(labels: Tensor, n: int, seed: int) -> Tensor:
    """Choose ``n`` positions so that every class keeps its share to within one sample; sorted.

    Args:
        labels: ``(N,)`` on the CPU.
        n: how many to choose, at most N.
        seed: the only source of randomness.

    Example:
        >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
        >>> labels[stratified_indices(labels, 3, seed=0)].tolist()
        [0, 0, 1]
    """
    if not 0 <= n <= len(labels):
        raise ValueError(f"cannot choose {n} of {len(labels)} samples")
    shuffled, quantile, _ = _draw_order(labels, seed)
    return shuffled[quantile.argsort(stable=True)[:n]].sort().values


def split_validation(image_set: ImageSet, fraction: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """Carve a validation set out of a training set: stratified, disjoint, a pure function of ``seed``.

    Every class that has an image keeps at least one in the training part, so a class of one image is never
    validated on.

    Args:
        image_set: the training images.
        fraction: share of the images to validate on, in (0, 1).
        seed: the only source of randomness.

    Returns:
        The remaining training set and the validation set, both in the order of ``image_set``.

    Example:
        >>> from attention_cem.data import load_data
        >>> data = load_data("synthetic", limit=100)
        >>> train, validation = split_validation(data.train, 0.2, seed=0)
        >>> len(train), len(validation), validation.labels.bincount().tolist()
        (80, 20, [2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    if not 0 < fraction < 1:
        raise ValueError(f"the validation fraction must lie strictly between 0 and 1, got {fraction}")
    total = len(image_set)
    n = round(fraction * total)
    shuffled, quantile, must_stay = _draw_order(image_set.labels.cpu(), seed)
    spare = total - int(must_stay.sum())
    if not spare:
        raise ValueError(
            f"too few images: of {total} none can be spared for validation when every class keeps one for training; "
            "take more images, or raise the limit (data.limit)"
        )
    if not 0 < n <= spare:
        raise ValueError(
            f"a validation fraction of {fraction} asks for {n} of {total} images, but between 1 and {spare} can be "
            "spared when every class keeps one for training; change data.validation_fraction or take more images"
        )
    in_validation = torch.zeros(total, dtype=torch.bool)
    in_validation[shuffled[quantile.masked_fill(must_stay, torch.inf).argsort(stable=True)[:n]]] = True
    return image_set.subset((~in_validation).nonzero().flatten()), image_set.subset(in_validation.nonzero().flatten())
