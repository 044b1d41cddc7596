"""Images in memory: one uint8 tensor, one label tensor, the names of the classes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attention_cem.data.stratified import stratified_indices


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images as tensors that live on one device.

    Args:
        images: uint8 tensor of shape ``(N, C, H, W)`` with C = 1 (grey) or 3 (RGB).
        labels: int64 tensor of shape ``(N,)``, values in ``[0, len(class_names))``.
        class_names: one name per class, in the order of the labels.

    Example:
        >>> images = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
        >>> pets = ImageSet(images, torch.tensor([0, 1, 0, 1]), ("cat", "dog"))
        >>> len(pets), pets.num_classes, pets.image_shape
        (4, 2, (3, 8, 8))
        >>> pets.subset(torch.tensor([1, 3])).labels.tolist()
        [1, 1]
    """

    images: Tensor
    labels: Tensor
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_image_set(self.images, self.labels, self.class_names)

    def __len__(self) -> int:
        return self.images.shape[0]

    @property
    def num_classes(self) -> int:
        """How many classes there are, including those without an image in this set."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def device(self) -> torch.device:
        """Where the images live."""
        return self.images.device

    def to(self, device: torch.device | str) -> ImageSet:
        """Return the same set on ``device``."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def subset(self, indices: Tensor) -> ImageSet:
        """Return the images at ``indices`` (1-D int64), in that order."""
        if indices.dtype != torch.int64 or indices.ndim != 1:
            raise ValueError(
                f"subset expects a 1-D int64 tensor of positions, got {indices.dtype} of shape "
                f"{tuple(indices.shape)}; a mask becomes positions with mask.nonzero().flatten()"
            )
        indices = indices.to(self.device)
        return replace(self, images=self.images[indices], labels=self.labels[indices])

    def limit(self, n: int, seed: int = 0) -> ImageSet:
        """Return at most ``n`` images, drawn so that every class keeps its share.

        The choice depends on ``seed`` alone; the images kept stay in their order. With ``n`` at least the
        size of the set, the set itself comes back.
        """
        if n < 1:
            raise ValueError(f"limit expects at least 1 image, got {n}")
        if n >= len(self):
            return self
        return self.subset(stratified_indices(self.labels.cpu(), n, seed))


@dataclass(frozen=True, eq=False)
class ImageData:
    """A named data set: its training and its test images.

    Args:
        name: the name it was loaded by.
        train: training images.
        test: test images; scored once, never trained or tuned on.
        source: where the images came from, in words fit for a report.
    """

    name: str
    train: ImageSet
    test: ImageSet
    source: str = ""

    def __post_init__(self) -> None:
        if self.train.image_shape != self.test.image_shape:
            raise ValueError(
                f"data set {self.name!r}: training images are {self.train.image_shape}, "
                f"test images {self.test.image_shape}; they must agree"
            )
        if self.train.class_names != self.test.class_names:
            raise ValueError(f"data set {self.name!r}: train and test must name the same classes in one order")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        return self.train.image_shape

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return self.train.num_classes

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name per class, in the order of the labels."""
        return self.train.class_names

    def to(self, device: torch.device | str) -> ImageData:
        """Return the same data on ``device``."""
        return replace(self, train=self.train.to(device), test=self.test.to(device))


def _check_image_set(images: Tensor, labels: Tensor, class_names: tuple[str, ...]) -> None:
    for what, value in (("images", images), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise ValueError(f"{what} must be a torch tensor, got {type(value).__name__}; use torch.as_tensor")
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(
            f"images must be uint8 of shape (N, C, H, W), got {images.dtype} of shape {tuple(images.shape)}"
        )
    if images.shape[1] not in (1, 3):
        raise ValueError(
            f"images must have 1 (grey) or 3 (RGB) channels in dimension 1, got shape {tuple(images.shape)}; "
            "channels-last images need .permute(0, 3, 1, 2)"
        )
    if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"labels must be int64 of shape ({images.shape[0]},), got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    if labels.device != images.device:
        raise ValueError(f"images are on {images.device} but labels on {labels.device}; move both with .to(device)")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(class_names):
        raise ValueError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, but there are {len(class_names)} class names"
        )
