r"""Random crop, mirror and rotation of a whole batch at once, on the device the images are on.

What is drawn is kept apart from what is done with it, so that several processes can draw for their common
batch and each apply its own part: the images are then those a single process would see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attention_cem.data.pixels import to_float


class AugmentDraw(NamedTuple):
    """What is drawn for N images: crop ``offset`` (N, 2), ``mirrored`` (N,), ``angle`` (N,) in radians."""

    offset: Tensor
    mirrored: Tensor
    angle: Tensor

    def part(self, start: int, stop: int) -> AugmentDraw:
        """Return the numbers of images ``start`` to ``stop``."""
        return AugmentDraw(self.offset[start:stop], self.mirrored[start:stop], self.angle[start:stop])


@dataclass(frozen=True)
class Augment:
    """Crop, mirror, rotate: uint8 images in, float images in [0, 1] out.

    Args:
        crop_padding: black pixels added on every side before a crop of the original size; 0 for none.
        flip: mirror left to right with probability one half.
        rotation_degrees: rotate about the centre by an angle uniform in ± this, black outside; 0 for none.

    Example:
        >>> images = torch.full((2, 3, 8, 8), 255, dtype=torch.uint8)
        >>> Augment(crop_padding=0, flip=True)(images, torch.Generator().manual_seed(0)).mean()
        tensor(1.)
    """

    crop_padding: int = 4
    flip: bool = True
    rotation_degrees: float = 0.0

    def __post_init__(self) -> None:
        if self.crop_padding < 0:
            raise ValueError(f"crop_padding must not be negative, got {self.crop_padding}")
        if not 0 <= self.rotation_degrees <= 180:
            raise ValueError(f"rotation_degrees must lie in [0, 180], got {self.rotation_degrees}")

    def draw(self, n: int, generator: torch.Generator) -> AugmentDraw:
        """Draw for ``n`` images on the generator's device."""
        device = generator.device
        offset = torch.randint(2 * self.crop_padding + 1, (n, 2), generator=generator, device=device)
        coin, angle = torch.rand(2, n, generator=generator, device=device)
        mirrored = (coin < 0.5) if self.flip else torch.zeros_like(coin, dtype=torch.bool)
        return AugmentDraw(offset, mirrored, (2 * angle - 1) * math.radians(self.rotation_degrees))

    def apply(self, images: Tensor, draw: AugmentDraw) -> Tensor:
        """Augment ``images`` ``(N, C, H, W)`` uint8 by what was drawn; float32 in [0, 1], the same shape."""
        if self.crop_padding or self.flip:
            images = crop_and_mirror(images, draw.offset, draw.mirrored, self.crop_padding)
        result = to_float(images)
        return rotate(result, draw.angle) if self.rotation_degrees else result

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Draw and apply."""
        return self.apply(images, self.draw(len(images), generator))


def crop_and_mirror(images: Tensor, offset: Tensor, mirrored: Tensor, padding: int) -> Tensor:
    """Cut each image out of its padded self at ``offset`` ``(N, 2)``, then mirror it where ``mirrored``.

    Example:
        >>> image = torch.arange(4, dtype=torch.uint8).reshape(1, 1, 2, 2)
        >>> crop_and_mirror(image, torch.tensor([[2, 1]]), torch.tensor([False]), padding=1)
        tensor([[[[2, 3],
                  [0, 0]]]], dtype=torch.uint8)
    """
    n, channels, height, width = images.shape
    padded = F.pad(images, (padding, padding, padding, padding))
    rows = offset[:, :1] + torch.arange(height, device=images.device)
    column = torch.arange(width, device=images.device)
    columns = offset[:, 1:] + torch.where(mirrored[:, None], width - 1 - column, column)
    cut = padded.gather(2, rows[:, None, :, None].expand(n, channels, height, padded.shape[3]))
    return cut.gather(3, columns[:, None, None, :].expand(n, channels, height, width))


def rotate(images: Tensor, angle: Tensor) -> Tensor:
    """Rotate float images ``(N, C, H, W)`` counter-clockwise by ``angle`` ``(N,)`` radians."""
    height, width = images.shape[-2:]
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # affine_grid works in units of half the width and half the height; the ratio keeps the rotation rigid.
    to_source = torch.stack(
        [
            torch.stack([cos, -sin * (height / width), zero], dim=1),
            torch.stack([sin * (width / height), cos, zero], dim=1),
        ],
        dim=1,
    )
    grid = F.affine_grid(to_source, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
