"""From stored bytes to what a model sees: floats in [0, 1], normalised only when asked."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def to_float(images: Tensor) -> Tensor:
    """Turn uint8 pixels into float32 in [0, 1].

    Example:
        >>> to_float(torch.tensor([0, 51, 255], dtype=torch.uint8))
        tensor([0.0000, 0.2000, 1.0000])
    """
    if images.dtype != torch.uint8:
        raise ValueError(f"to_float expects uint8 images, got {images.dtype}; float images are already converted")
    return images.to(torch.float32) / 255


def to_uint8(images: Tensor) -> Tensor:
    """Round floats in [0, 1] to the nearest of the 256 stored levels; values outside are clipped.

    Example:
        >>> to_uint8(torch.tensor([-0.1, 0.2, 1.0]))
        tensor([  0,  51, 255], dtype=torch.uint8)
    """
    if not images.is_floating_point():
        raise ValueError(f"to_uint8 expects float images, got {images.dtype}")
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)


class Normalise(nn.Module):
    r"""Shift and scale each channel, :math:`(x_c - m_c)/s_c`; it can be the first layer of a client.

    Args:
        mean: one value per channel, in the units of the [0, 1] image.
        std: one positive value per channel.

    Example:
        >>> Normalise(mean=[0.5], std=[0.25])(torch.ones(1, 1, 1, 2))
        tensor([[[[2., 2.]]]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: list[float] | tuple[float, ...], std: list[float] | tuple[float, ...]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean:
            raise ValueError(f"Normalise needs one mean and one std per channel, got {len(mean)} and {len(std)}")
        if min(std) <= 0:
            raise ValueError(f"every std must be positive, got {list(std)}")
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Normalise ``(N, C, H, W)`` floats."""
        if images.ndim != 4 or images.shape[1] != len(self.mean):
            raise ValueError(f"expected (N, {len(self.mean)}, H, W) images, got shape {tuple(images.shape)}")
        return (images - self.mean) / self.std
