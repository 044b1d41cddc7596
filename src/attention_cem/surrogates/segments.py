"""Per-class sums, softmax and contractions over classes of different sizes.

A batch holds classes of different sizes. Every function here works on all of them at once through a *row*
index: ``row[n]`` is the row of sample ``n``'s class in per-class tables. There is no Python loop over classes, no
padding to the largest class and no host synchronisation.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class ClassSegments(NamedTuple):
    """The classes of a batch as rows of per-class tables, the largest class first.

    There are ``R`` rows: one per active class, on CPU exactly, elsewhere up to the static bound
    ``N // min_count``, so that no size has to be read back from the device; and a last row that collects the
    samples of all inactive classes. Rows that hold no active class are computed along and masked at the end.
    """

    row: Tensor
    """(N,) int64: the row of each sample's class; the last row for samples of inactive classes."""
    size: Tensor
    """(R,) int64: samples of the row's class; 0 where not active."""
    active: Tensor
    """(R,) bool: whether the row holds an active class."""
    label: Tensor
    """(R,) int64: the class's label; 0 where not active."""
    num_classes: Tensor
    """() int64: distinct labels in the batch, active or not."""

    @property
    def num_rows(self) -> int:
        """R, a Python integer."""
        return self.size.shape[0]


def segment_classes(
    labels: Tensor, min_count: int = 1, only: Tensor | None = None, label_space: int | None = None
) -> ClassSegments:
    """Group a batch by label.

    Args:
        labels: (N,) int64, any values.
        min_count: classes with fewer samples are inactive.
        only: (N,) bool, false for every sample of a class that shall be inactive.
        label_space: a promise that labels are 0 … label_space - 1. Where that many rows are within the bound, the
            labels are the rows, and nothing has to be sorted.

    Ordering rows by class size makes ``N // min_count`` a bound on the active rows: the cost follows the classes
    that take part, never the label space.

    >>> s = segment_classes(torch.tensor([7, -3, 7, 5, 7, 5]), min_count=2)
    >>> s.label.tolist(), s.size.tolist(), s.row.tolist()
    ([7, 5, 0], [3, 2, 0], [0, 2, 0, 1, 0, 1])
    """
    n = labels.shape[0]
    if n == 0:
        nothing = labels.new_zeros(1)
        return ClassSegments(labels, nothing, nothing.bool(), nothing, nothing.sum())
    if label_space is not None:
        _check_promise(labels, label_space)
        if label_space <= n // min_count:
            return _label_rows(labels, min_count, only, label_space)
    ordered, order = torch.sort(labels, stable=True)
    starts = torch.cat([torch.ones_like(ordered[:1]), (ordered[1:] != ordered[:-1]).to(torch.int64)])
    group = starts.cumsum(0) - 1  # (N,) in label order
    size = torch.zeros_like(labels).scatter_add(0, group, torch.ones_like(labels))
    size, by_size = torch.sort(size, descending=True, stable=True)
    rank = torch.empty_like(by_size).scatter(0, by_size, torch.arange(n, device=labels.device))
    row = torch.empty_like(labels).scatter(0, order, rank.index_select(0, group))
    label = torch.zeros_like(labels).scatter(0, group, ordered).index_select(0, by_size)
    active = size >= min_count
    if only is not None:
        wanted = torch.zeros_like(labels).scatter(0, row, only.to(torch.int64)).bool()
        # chosen classes first: the bound on the active rows must hold for them
        size, first = torch.sort(torch.where(wanted, size, 0), descending=True, stable=True)
        place = torch.empty_like(first).scatter(0, first, torch.arange(n, device=labels.device))
        row, label = place.index_select(0, row), label.index_select(0, first)
        active = size >= min_count
    bound = n // min_count
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():
        bound = int(active.sum())
    row = torch.where(active.index_select(0, row), row, bound)
    active = torch.cat([active[:bound], active.new_zeros(1)])
    size, label = (torch.cat([t[:bound], t.new_zeros(1)]) * active for t in (size, label))
    return ClassSegments(row, size, active, label, starts.sum())


def _check_promise(labels: Tensor, label_space: int) -> None:
    """Refuse labels outside the promised space, where looking at them does not wait for a device."""
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest >= label_space:
            raise ValueError(f"labels must be 0 … {label_space - 1} (label_space), got {lowest} … {highest}")


def _label_rows(labels: Tensor, min_count: int, only: Tensor | None, label_space: int) -> ClassSegments:
    """The same with one row per possible label, which needs no sorting."""
    none = labels.new_zeros(1)
    count = torch.cat([labels.new_zeros(label_space).index_add(0, labels, torch.ones_like(labels)), none])
    active, row = count >= min_count, labels
    if only is not None:
        wanted = labels.new_zeros(label_space).index_add(0, labels, only.to(torch.int64))
        active = active & (torch.cat([wanted, none]) > 0)
    if only is not None or min_count > 1:
        row = torch.where(active.index_select(0, labels), labels, label_space)
    label = torch.arange(label_space + 1, device=labels.device)
    return ClassSegments(row, count * active, active, label * active, (count > 0).sum())


def split_segments(segments: ClassSegments, part: Tensor, parts: int) -> ClassSegments:
    """Cut each class of a batch into ``parts``, by the part (N,) of each sample: row ``r * parts + part``.

    >>> s = split_segments(segment_classes(torch.tensor([7, 7, 7, 5])), torch.tensor([0, 1, 0, 1]), 2)
    >>> s.row.tolist(), s.size.tolist()
    ([0, 1, 0, 3], [2, 1, 0, 1, 0, 0])
    """
    row = segments.row * parts + part
    size = class_sum(torch.ones_like(row), row, segments.num_rows * parts)
    return ClassSegments(row, size, size > 0, segments.label.repeat_interleave(parts), segments.num_classes)


def class_sum(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """Sum ``values`` (N, ...) over each class: (R, ...)."""
    return values.new_zeros(num_rows, *values.shape[1:]).index_add(0, row, values)


def class_weighted_sum(weight: Tensor, values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """Sum ``weight`` (N,) times ``values`` (N, D) over each class: (R, D)."""
    if num_rows <= 64:  # a product with so few rows is cheaper than scaling and scattering
        return class_weighted_sums(weight.unsqueeze(-1), values, row, num_rows).squeeze(1)
    return class_sum(weight.unsqueeze(-1) * values, row, num_rows)


def class_mean(values: Tensor, segments: ClassSegments) -> Tensor:
    """Mean of ``values`` (N, D) over each active class: (R, D); meaningless in other rows."""
    total = class_sum(values, segments.row, segments.num_rows)
    return total / segments.size.clamp_min(1).unsqueeze(-1)


def class_softmax(logits: Tensor, segments: ClassSegments) -> Tensor:
    """Softmax of ``logits`` (N,) over the samples of each row."""
    row, rows = segments.row, segments.num_rows
    lowest = logits.new_full((rows,), -torch.inf)
    peak = lowest.scatter_reduce(0, row, logits.detach(), "amax")
    weight = (logits - peak.index_select(0, row)).exp()
    return weight / class_sum(weight, row, rows).index_select(0, row)


@torch.no_grad()
def within_class_spread(values: Tensor, segments: ClassSegments) -> tuple[Tensor, Tensor]:
    r"""The parameter-free monitor of ``values`` (N, D), and a zero that bad values turn into not-a-number.

    Returns:
        :math:`\sum_c p_c\,\mathrm{MSE}_c` over the active classes; and a term to add to a loss so that
        values that are not finite stay visible in it, whatever the loss itself masks.
    """
    # in place: a fresh (N, D) buffer costs more than the arithmetic
    centred = class_mean(values, segments).index_select(0, segments.row).sub_(values)
    squared = torch.linalg.vector_norm(centred, dim=-1).square()
    active = segments.active.index_select(0, segments.row)
    return (squared * active).sum() / max(values.numel(), 1), squared.sum() * 0


def _prefers_dense(table: Tensor) -> bool:
    # Scoring against the whole table costs O(N·R·S) memory and is one matrix product; gathering each sample's
    # own entries costs O(N·S·d). The cheaper of the two keeps memory at O(N·S·min(R, d)).
    return table.shape[-3] <= table.shape[-1]


def class_scores(x: Tensor, table: Tensor, row: Tensor) -> Tensor:
    """Inner products of each sample with its own class's entries.

    Args:
        x: (..., N, d) samples.
        table: (..., R, S, d) per-class entries.
        row: (N,) row of each sample's class.

    Returns:
        (..., N, S)
    """
    if not _prefers_dense(table):
        return torch.einsum("...nd,...nsd->...ns", x, table.index_select(-3, row))
    *lead, rows, entries, width = table.shape
    scores = x @ table.reshape(*lead, rows * entries, width).transpose(-1, -2)  # (..., N, R*S)
    scores = scores.unflatten(-1, (rows, entries))
    index = row[:, None, None].expand(*scores.shape[:-2], 1, entries)
    return scores.gather(-2, index).squeeze(-2)


def spread_over_classes(weights: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """Place weights (..., N, S) at their sample's class: (..., N, R*S), zero elsewhere."""
    index = row[:, None, None].expand(*weights.shape[:-1], 1, weights.shape[-1])
    wide = weights.new_zeros(*weights.shape[:-1], num_rows, weights.shape[-1])
    return wide.scatter(-2, index, weights.unsqueeze(-2)).flatten(-2)


def class_weighted_sums(weights: Tensor, x: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """Weighted sums of samples per class and entry: (N, S), (N, d) → (R, S, d)."""
    if num_rows > x.shape[-1]:
        return class_sum(weights.unsqueeze(-1) * x.unsqueeze(-2), row, num_rows)
    return (spread_over_classes(weights, row, num_rows).mT @ x).unflatten(0, (num_rows, -1))


def class_mix(weights: Tensor, table: Tensor, row: Tensor) -> Tensor:
    """Mix each sample's own class entries: (..., N, S), (..., R, S, d) → (..., N, d)."""
    if not _prefers_dense(table):
        return torch.einsum("...ns,...nsd->...nd", weights, table.index_select(-3, row))
    return spread_over_classes(weights, row, table.shape[-3]) @ table.flatten(-3, -2)
