"""Batches straight out of a tensor: no worker processes, an order that needs no state to resume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from attention_cem.data.augment import Augment
from attention_cem.data.batch_order import balanced_order, shuffled_order
from attention_cem.data.image_set import ImageSet
from attention_cem.data.pixels import to_float
from attention_cem.data.random_streams import generator_for


class Batch(NamedTuple):
    """Float images in [0, 1] ``(n, C, H, W)`` and int64 labels ``(n,)`` on the device."""

    images: Tensor
    labels: Tensor


class NumberedBatch(NamedTuple):
    """A `Batch`, and the number ``(n,)`` int64 by which each image is known in every epoch."""

    images: Tensor
    labels: Tensor
    sample: Tensor


class Batches:
    """Batches of an image set, as a function of the epoch.

    Order and augmentation are pure functions of (seed, epoch, batch): to resume, call again with the epoch
    and the batch to start at. With several processes every rank gets its own slice of the same global batch,
    augmented as one process would. A last batch smaller than ``world_size`` leaves some ranks an empty slice.

    Args:
        image_set: the images. Put them on the device first (``image_set.to(device)``) unless they do not fit.
        batch_size: images in a global batch, over all ranks together.
        seed: with epoch and batch, the only source of randomness.
        shuffle: a new order every epoch; otherwise the order of the set.
        drop_last: leave out a last, smaller batch. Training wants it; scoring must not have it.
        augment: how to vary the images; None to leave them as they are.
        classes_per_batch: P, for batches of P classes with ``batch_size / P`` images each (many-class data).
        rank: number of this process.
        world_size: how many processes share a global batch.
        device: where the batches are wanted; by default where the images are.
        channels_last: give the images the channels-last memory layout.

    Example:
        >>> from attention_cem.data import load_data
        >>> batches = Batches(load_data("synthetic", limit=100).train, 32, seed=1)
        >>> [len(labels) for images, labels in batches(epoch=0)]
        [32, 32, 32, 4]
        >>> resumed = next(batches(epoch=0, start_batch=2))
        >>> torch.equal(resumed.images, list(batches(epoch=0))[2].images)
        True
    """

    def __init__(
        self,
        image_set: ImageSet,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        augment: Augment | None = None,
        classes_per_batch: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        channels_last: bool = False,
    ) -> None:
        _check_sharing(batch_size, rank, world_size)
        self.image_set = image_set
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last or classes_per_batch is not None
        self.augment = augment
        self.classes_per_batch = classes_per_batch
        self.rank = rank
        self.world_size = world_size
        self.device = image_set.device if device is None else torch.device(device)
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self._labels = image_set.labels.cpu()
        self._sample: Tensor | None = None
        if classes_per_batch is not None:
            _check_balance(self._labels, batch_size, classes_per_batch, shuffle)
        if not len(self):
            raise ValueError(
                f"{len(image_set)} images give no batch of {batch_size}; lower the batch size (train.batch_size) to "
                "at most the number of training images, or take more images"
            )

    def __len__(self) -> int:
        """Batches in an epoch, the same on every rank."""
        whole, rest = divmod(len(self.image_set), self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def order(self, epoch: int) -> Tensor:
        """Positions of all images of an epoch, global batch after global batch, on the CPU."""
        n = len(self.image_set)
        if self.classes_per_batch is not None:
            per_class = self.batch_size // self.classes_per_batch
            return balanced_order(self._labels, self.classes_per_batch, per_class, len(self), self.seed, epoch)
        order = shuffled_order(n, self.seed, epoch) if self.shuffle else torch.arange(n)
        return order[: len(self) * self.batch_size]

    @property
    def sample(self) -> Tensor:
        """A number for each image of the set, int64 on the images' device; those of a class follow one another."""
        if self._sample is None:
            self._sample = numbers_by_class(self._labels).to(self.image_set.device)
        return self._sample

    def __call__(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """Yield this rank's part of the batches of ``epoch``, from ``start_batch`` on."""
        return (batch for _, batch in self._checked(epoch, start_batch))

    def numbered(self, epoch: int, start_batch: int = 0) -> Iterator[NumberedBatch]:
        """The same, each with the numbers of its images."""
        batches = self._checked(epoch, start_batch)
        return (NumberedBatch(*batch, self._to_device(self.sample[positions])) for positions, batch in batches)

    def _checked(self, epoch: int, start_batch: int) -> Iterator[tuple[Tensor, Batch]]:
        if epoch < 0 or not 0 <= start_batch <= len(self):
            raise ValueError(f"expected epoch ≥ 0 and start_batch in [0, {len(self)}], got {epoch} and {start_batch}")
        return self._iterate(epoch, start_batch)

    def _iterate(self, epoch: int, start_batch: int) -> Iterator[tuple[Tensor, Batch]]:
        global_batches = self.order(epoch).to(self.image_set.device).split(self.batch_size)
        for number in range(start_batch, len(self)):
            n = len(global_batches[number])
            start, stop = self.rank * n // self.world_size, (self.rank + 1) * n // self.world_size
            positions = global_batches[number][start:stop]
            images = self._to_device(self.image_set.images[positions])
            labels = self._to_device(self.image_set.labels[positions])
            if self.augment is None:
                images = to_float(images)
            else:
                generator = generator_for("augment", self.seed, epoch, number, device=self.device)
                images = self.augment.apply(images, self.augment.draw(n, generator).part(start, stop))
            yield positions, Batch(images.contiguous(memory_format=self.memory_format), labels)

    def _to_device(self, tensor: Tensor) -> Tensor:
        if tensor.device == self.device:
            return tensor
        # Pinned memory lets the copy overlap with the work queued before it.
        source = tensor.pin_memory() if self.device.type == "cuda" else tensor
        return source.to(self.device, non_blocking=True)


def numbers_by_class(labels: Tensor) -> Tensor:
    """A number (N,) for each image that depends on the set alone and runs on within a class, from an even one.

    >>> numbers_by_class(torch.tensor([0, 1, 0, 1, 1]))
    tensor([0, 4, 1, 5, 6])
    """
    order = torch.argsort(labels, stable=True)
    count = torch.bincount(labels)
    start = (count.cumsum(0) - count)[labels[order]]
    width = int(count.max()) + int(count.max()) % 2 if len(labels) else 0
    number = labels[order] * width + torch.arange(len(labels)) - start
    return torch.empty_like(order).scatter(0, order, number)


def _check_sharing(batch_size: int, rank: int, world_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if not 0 <= rank < world_size:
        raise ValueError(f"expected 0 ≤ rank < world_size, got rank {rank} and world_size {world_size}")
    if batch_size % world_size:
        raise ValueError(
            f"batch_size {batch_size} is the global batch and must be a multiple of world_size {world_size}"
        )


def _check_balance(labels: Tensor, batch_size: int, classes_per_batch: int, shuffle: bool) -> None:
    present = len(labels.unique())
    if not 1 <= classes_per_batch <= present:
        raise ValueError(
            f"classes_per_batch must lie in [1, {present}], the classes with images; got {classes_per_batch}"
        )
    if batch_size % classes_per_batch:
        raise ValueError(f"batch_size {batch_size} must be a multiple of classes_per_batch {classes_per_batch}")
    if not shuffle:
        raise ValueError("class-balanced batches are drawn at random; they need shuffle=True")
