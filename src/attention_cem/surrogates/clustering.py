"""k-means of every class at once: k-means++ start, Lloyd rounds, no loop over classes or samples."""

from typing import NamedTuple

import torch
from torch import Tensor

from attention_cem.surrogates.segments import class_scores, class_sum, class_weighted_sums


class ClassClusters(NamedTuple):
    """Clusters of R classes; a cluster with weight 0 is empty and its other entries mean nothing."""

    centroid: Tensor
    """(R, K, D)"""
    variance: Tensor
    """(R, K, D): per-dimension variance around the centroid."""
    weight: Tensor
    """(R, K): share of the class's samples; each class that has samples sums to one."""


def nearest_centroid(x: Tensor, centroid: Tensor, usable: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """Index (N,) of, and squared distance (N,) to, the nearest usable centroid of each sample's own class.

    Args:
        x: (N, D). centroid: (R, K, D). usable: (R, K) bool, at least one per class that has samples. row: (N,).
    """
    # distances from the class's first centroid: the shift keeps |x|² - 2xc + |c|² accurate
    origin = centroid[:, :1]
    shifted, table = x - origin[row, 0], centroid - origin
    squared = shifted.square().sum(-1, keepdim=True) - 2 * class_scores(shifted, table, row)
    squared = squared + table.square().sum(-1)[row]
    squared = squared.masked_fill(~usable[row], torch.inf)
    distance, index = squared.min(-1)
    return index, distance.clamp_min(0)


def plus_plus_start(x: Tensor, row: Tensor, num_rows: int, num_clusters: int, generator: torch.Generator) -> Tensor:
    """k-means++ centroids (R, K, D) of every class (Arthur and Vassilvitskii, SODA 2007).

    Sampling in proportion to the squared distance is the arg-max of its logarithm plus Gumbel noise, which a
    per-class maximum finds for all classes together.
    """
    distance = torch.ones_like(row, dtype=x.dtype)
    centroid = x.new_zeros(num_rows, num_clusters, x.shape[-1])
    usable = torch.zeros(num_rows, num_clusters, dtype=torch.bool, device=x.device)
    for k in range(num_clusters):
        uniform = torch.rand(row.shape, generator=generator, device=x.device, dtype=torch.float64)
        score = distance.double().log() - (-uniform.clamp_min(1e-300).log()).log()
        index, found = class_argmax(score, row, num_rows)
        centroid[:, k] = x[index]
        usable[:, k] = found & (distance[index] > 0)
        usable[:, 0] |= found & (k == 0)
        distance = nearest_centroid(x, centroid, usable, row)[1]
    return centroid


def class_argmax(score: Tensor, row: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """Index (R,) of each class's largest score (N,), and whether the class has any samples (R,)."""
    best = score.new_full((num_rows,), -torch.inf).scatter_reduce(0, row, score, "amax")
    count = torch.zeros(num_rows, dtype=torch.int64, device=row.device).scatter_add(0, row, torch.ones_like(row))
    position = torch.arange(row.shape[0], device=row.device)
    position = torch.where(score == best[row], position, row.shape[0] - 1)
    first = torch.full_like(count, max(row.shape[0] - 1, 0)).scatter_reduce(0, row, position, "amin")
    return first, count > 0


def cluster_classes(
    x: Tensor, row: Tensor, centroid: Tensor, num_iterations: int, generator: torch.Generator | None = None
) -> ClassClusters:
    """Lloyd's algorithm on every class from given centroids (R, K, D).

    A cluster that loses all its samples is moved to the sample of its class that lies farthest from its centroid,
    so that a stale centroid cannot stay dead; with fewer distinct samples than clusters the rest stay empty.
    """
    num_rows, num_clusters, _ = centroid.shape
    usable = torch.ones(num_rows, num_clusters, dtype=torch.bool, device=x.device)
    centroid = centroid.clone()
    for _ in range(num_iterations):
        index, distance = nearest_centroid(x, centroid, usable, row)
        chosen = torch.nn.functional.one_hot(index, num_clusters).to(x.dtype)
        count = class_sum(chosen, row, num_rows)
        mean = class_weighted_sums(chosen, x, row, num_rows) / count.clamp_min(1).unsqueeze(-1)
        empty = count == 0
        centroid = torch.where(empty.unsqueeze(-1), centroid, mean)
        farthest, _ = class_argmax(distance, row, num_rows)
        # one empty cluster a round: several would land on the same sample
        slot = empty.to(torch.int64).argmax(-1)
        class_index = torch.arange(num_rows, device=x.device)
        revive = empty.any(-1) & (distance[farthest] > 0) & (count.sum(-1) > 0)
        current = centroid[class_index, slot]
        centroid[class_index, slot] = torch.where(revive[:, None], x[farthest], current)
    index, _ = nearest_centroid(x, centroid, usable, row)
    chosen = torch.nn.functional.one_hot(index, num_clusters).to(x.dtype)
    count = class_sum(chosen, row, num_rows)
    mean = class_weighted_sums(chosen, x, row, num_rows) / count.clamp_min(1).unsqueeze(-1)
    centroid = torch.where((count == 0).unsqueeze(-1), centroid, mean)
    squared = (x - centroid[row, index]).square()
    variance = class_weighted_sums(chosen, squared, row, num_rows) / count.clamp_min(1).unsqueeze(-1)
    return ClassClusters(centroid, variance, count / count.sum(-1, keepdim=True).clamp_min(1))
