"""Per-class memory of recent features: fixed shapes, no loops, no host synchronisation."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attention_cem.surrogates.base import require_positive_int
from attention_cem.surrogates.segments import ClassSegments, class_sum

NEVER = -1
_LARGEST_TABLE = 1 << 17


class Places(NamedTuple):
    """Where the rows of a batch's classes are kept."""

    place: Tensor
    """(R,) int64: the class's place; the spare last place where it has none."""
    known: Tensor
    """(R,) bool: whether the class has a place already."""


class Folded(NamedTuple):
    """The samples of a batch in the folds of their classes."""

    segments: ClassSegments
    """The classes of the batch, split by fold."""
    sample: Tensor
    """(N,) int64: by which number each sample is known."""


class ClassMemory(nn.Module):
    """The last ``bank_size`` detached features of each of up to ``max_classes`` classes.

    Classes are found by label, whatever the labels are. A class seen for the first time takes a free place or, when
    all are taken, that of the class that was seen least recently. Everything is a persistent buffer of a shape known
    at construction. Read before you write: what is read never contains the batch at hand.

    Args:
        feature_dim: D. max_classes: budget of places. bank_size: K, features kept per class.
        max_age: features written more than so many steps ago are not read; None: no limit.
        label_space: a promise that labels are 0 … label_space - 1. Where there is a place for each, the label is the
            place, and nothing has to be searched.
        folds: rings of ``bank_size / folds`` features, rounded up, that each class's bank is cut into. The rings of
            place p are ``p * folds`` and those after it: they come and go together. With several folds samples have
            ids, and of a sample that returns only the newest feature is kept: a second one would count as a second
            sample, though it tells nothing new.
    """

    feature: Tensor
    written: Tensor
    label: Tensor
    last_seen: Tensor
    cursor: Tensor
    sample: Tensor

    def __init__(
        self,
        feature_dim: int,
        max_classes: int,
        bank_size: int,
        max_age: int | None = None,
        label_space: int | None = None,
        folds: int = 1,
    ) -> None:
        super().__init__()
        require_positive_int("max_classes", max_classes)
        require_positive_int("bank_size", bank_size)
        self.folds = require_positive_int("folds", folds)
        if max_age is not None:
            require_positive_int("max_age", max_age)
        self.max_classes, self.bank_size, self.max_age = max_classes, bank_size, max_age
        self.place_is_label = label_space is not None and label_space <= max_classes
        # the last place takes writes that must have no effect, so that every step has the same shapes
        places = max_classes + 1
        rings, self.ring_size = places * folds, -(-bank_size // folds)
        self.register_buffer("feature", torch.zeros(rings, self.ring_size, feature_dim))
        self.register_buffer("written", torch.full((rings, self.ring_size), NEVER))
        self.register_buffer("label", torch.zeros(places, dtype=torch.int64))
        self.register_buffer("last_seen", torch.full((places,), NEVER))
        self.register_buffer("cursor", torch.zeros(rings, dtype=torch.int64))
        if folds > 1:
            self.register_buffer("sample", torch.zeros(rings, self.ring_size, dtype=torch.int64))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        label, last_seen = (state_dict.get(prefix + name) for name in ("label", "last_seen"))
        if self.place_is_label and label is not None and last_seen is not None and label.shape == last_seen.shape:
            at_home = label == torch.arange(label.shape[0], device=label.device)
            if not bool((at_home | (last_seen == NEVER))[:-1].all()):
                raise ValueError(
                    "this memory was written without label_space: its classes are not at the places of their labels; "
                    "load it into a memory without label_space"
                )
        super()._load_from_state_dict(state_dict, prefix, *args)

    def locate(self, segments: ClassSegments) -> Places:
        """The places of a batch's classes."""
        if self.place_is_label:
            place = torch.where(segments.active, segments.label, self.max_classes)
            return Places(place, segments.active & (self.last_seen.index_select(0, place) != NEVER))
        match = segments.label.unsqueeze(1) == self.label[:-1]  # (R, C)
        match &= (self.last_seen[:-1] != NEVER) & segments.active.unsqueeze(1)
        known, index = match.to(torch.uint8).max(1)
        known = known.bool()
        return Places(torch.where(known, index, self.max_classes), known)

    def rings(self, place: Tensor) -> Tensor:
        """The rings (R * folds,) of the classes at ``place`` (R,), those of a class side by side."""
        if self.folds == 1:
            return place
        return (place.unsqueeze(1) * self.folds + torch.arange(self.folds, device=place.device)).flatten()

    def read(self, ring: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Features (R, K, D) in the rings ``ring`` (R,), and which of them count (R, K)."""
        written = self.written.index_select(0, ring)
        valid = written != NEVER
        if self.max_age is not None:
            valid = valid & (written >= step - self.max_age)
        return self.feature.index_select(0, ring), valid & (ring < self.max_classes * self.folds).unsqueeze(1)

    @torch.no_grad()
    def write(
        self, z: Tensor, segments: ClassSegments, places: Places, step: Tensor, folded: Folded | None = None
    ) -> Places:
        """Store a batch z (N, D); returns the places its classes have now.

        ``folded`` is needed where there are several folds. Of a ring with more samples than it holds, the last ones
        are kept.
        """
        if (folded is None) != (self.folds == 1):
            raise ValueError(
                f"a memory of {self.folds} fold(s) is written with the samples' folds where it has several"
            )
        index = places.place if self.place_is_label else self._granted(segments, places, step)
        self.label.index_copy_(0, index, segments.label)
        self.last_seen.index_copy_(0, index, step.expand_as(index))

        parts, rings = segments if folded is None else _without_repeats(folded), self.rings(index)
        position = rank_within_class(parts)
        size = parts.size.index_select(0, parts.row)
        keep = (position >= size - self.ring_size) & storable(z)
        ring = torch.where(keep, rings.index_select(0, parts.row), self.max_classes * self.folds)
        column = (self.cursor.index_select(0, ring) + position) % self.ring_size
        flat = ring * self.ring_size + column
        if folded is not None:
            self._forget(folded.sample, ring)
            self.sample.flatten().index_copy_(0, flat, folded.sample)
        stored = torch.where(keep[:, None], z.detach(), 0).to(self.feature.dtype)
        self.feature.flatten(0, 1).index_copy_(0, flat, stored)
        self.written.flatten().index_copy_(0, flat, step.expand_as(flat))
        self.cursor.index_add_(0, rings, parts.size)
        return Places(index, segments.active & (index < self.max_classes))

    def _forget(self, sample: Tensor, ring: Tensor) -> None:
        """Forget what the rings (N,) still hold of the samples (N,)."""
        cell = ring.unsqueeze(1) * self.ring_size + torch.arange(self.ring_size, device=ring.device)  # (N, K)
        held = self.sample.flatten()[cell] == sample.unsqueeze(1)
        spare = self.max_classes * self.folds * self.ring_size
        self.written.flatten().index_fill_(0, torch.where(held, cell, spare).flatten(), NEVER)

    def _granted(self, segments: ClassSegments, places: Places, step: Tensor) -> Tensor:
        """The places of all classes of a batch, new ones included; least recently seen classes give way."""
        spare, missing = self.max_classes, segments.active & ~places.known
        taken = torch.zeros_like(self.last_seen).index_fill(0, places.place, 1)[:-1]
        oldest = torch.argsort(self.last_seen[:-1] + taken * (step + 2), stable=True)
        turn = missing.to(torch.int64).cumsum(0) - 1
        granted = missing & (turn < spare - taken.sum())
        new_place = oldest.index_select(0, turn.clamp(0, spare - 1))
        index = torch.where(granted, new_place, places.place)
        fresh = self.rings(torch.where(granted, new_place, spare))
        self.written.index_fill_(0, fresh, NEVER)
        self.cursor.index_fill_(0, fresh, 0)
        return index


def storable(z: Tensor) -> Tensor:
    """Which features (N, D) may be remembered (N,): one that overflows when squared would poison its class for ever."""
    return torch.isfinite(z.detach().square().sum(-1))


def _without_repeats(folded: Folded) -> ClassSegments:
    """The segments without those samples that stand once more behind in the batch."""
    segments, sample = folded
    repeated = (sample.unsqueeze(1) == sample).triu(1).any(1)
    row = torch.where(repeated, segments.num_rows - 1, segments.row)
    return segments._replace(row=row, size=class_sum((~repeated).to(row.dtype), row, segments.num_rows))


def rank_within_class(segments: ClassSegments) -> Tensor:
    """For each sample (N,), how many samples of its class stand before it in the batch."""
    rows, samples = segments.num_rows, segments.row.shape[0]
    if rows * samples <= _LARGEST_TABLE:  # a sort costs a dozen kernels on a GPU, a running count three
        is_class = segments.row == torch.arange(rows, device=segments.row.device).unsqueeze(1)  # (R, N)
        return is_class.cumsum(1).gather(0, segments.row.unsqueeze(0)).squeeze(0) - 1
    order = torch.argsort(segments.row, stable=True)
    first = segments.size.cumsum(0) - segments.size
    steps = torch.arange(order.shape[0], device=order.device) - first.index_select(0, segments.row[order])
    return torch.empty_like(order).scatter(0, order, steps)
