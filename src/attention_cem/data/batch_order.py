"""The order in which an epoch visits the images: a pure function of seed and epoch."""

from __future__ import annotations

import torch
from torch import Tensor

from attention_cem.data.random_streams import generator_for
from attention_cem.data.stratified import position_within_class


def shuffled_order(n: int, seed: int, epoch: int) -> Tensor:
    """Return a permutation of ``n`` positions.

    Example:
        >>> sorted(shuffled_order(5, seed=0, epoch=1).tolist())
        [0, 1, 2, 3, 4]
    """
    return torch.randperm(n, generator=generator_for("order", seed, epoch))


def balanced_order(
    labels: Tensor, classes_per_batch: int, images_per_class: int, num_batches: int, seed: int, epoch: int
) -> Tensor:
    """Return an order whose every batch holds P classes with K images each.

    A batch's classes are distinct and uniform over the classes that have images. A class hands out its images
    in a shuffled circle, so none comes twice before all came once; a class with fewer than K images repeats
    them within a batch.

    Args:
        labels: ``(N,)`` on the CPU.
        classes_per_batch: P.
        images_per_class: K.
        num_batches: batches in the epoch.
        seed: with ``epoch``, the only source of randomness.
        epoch: number of the epoch.

    Returns:
        ``(num_batches · P · K,)`` positions, batch after batch.

    Example:
        >>> labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
        >>> order = balanced_order(labels, 2, 2, num_batches=2, seed=0, epoch=0)
        >>> [len(set(batch.tolist())) for batch in labels[order].split(4)]
        [2, 2]
    """
    generator = generator_for("balanced order", seed, epoch)
    shuffled = torch.randperm(len(labels), generator=generator)
    present, counts = labels.unique(return_counts=True)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    first_of_class = counts.cumsum(0) - counts

    keys = torch.rand(num_batches, len(present), generator=generator)
    chosen = keys.argsort(dim=1)[:, :classes_per_batch].flatten()  # (batches · P,) rows of `present`
    turn, _ = position_within_class(chosen)
    place_in_circle = turn[:, None] * images_per_class + torch.arange(images_per_class)
    return by_class[first_of_class[chosen, None] + place_in_circle % counts[chosen, None]].flatten()
