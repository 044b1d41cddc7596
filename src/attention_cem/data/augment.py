r"""Random crop, mirror and rotation of a whole batch at once, on the device the images are on.

What is drawn is kept apart from what is done with it, so that several processes can draw for their common
batch and each apply its own part: the images are then those a single process would see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from attention_cem.data.pixels import to_float

Edges = Literal["black", "mirrored"]


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
        crop_padding: pixels added on every side before a crop of the original size; 0 for none.
        flip: mirror left to right with probability one half.
        rotation_degrees: rotate about the centre by an angle uniform in ± this; 0 for none.
        edges: what lies outside the image: ``black``, or ``mirrored``, the image itself. A client that is blind to
            slow waves sees the brightness of an image in the step at a black edge, in training alone.

    Example:
        >>> images = torch.full((2, 3, 8, 8), 255, dtype=torch.uint8)
        >>> Augment(crop_padding=0, flip=True)(images, torch.Generator().manual_seed(0)).mean()
        tensor(1.)
    """

    crop_padding: int = 4
    flip: bool = True
    rotation_degrees: float = 0.0
    edges: Edges = "black"

    def __post_init__(self) -> None:
        if self.crop_padding < 0:
            raise ValueError(f"crop_padding must not be negative, got {self.crop_padding}")
        if not 0 <= self.rotation_degrees <= 180:
            raise ValueError(f"rotation_degrees must lie in [0, 180], got {self.rotation_degrees}")
        if self.edges not in get_args(Edges):
            raise ValueError(f"edges must be {' or '.join(get_args(Edges))}, got {self.edges!r}")

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
            images = crop_and_mirror(images, draw.offset, draw.mirrored, self.crop_padding, self.edges)
        result = to_float(images)
        return rotate(result, draw.angle, self.edges) if self.rotation_degrees else result

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Draw and apply."""
        return self.apply(images, self.draw(len(images), generator))


def crop_and_mirror(images: Tensor, offset: Tensor, mirrored: Tensor, padding: int, edges: Edges = "black") -> Tensor:
    """Cut each image out of its padded self at ``offset`` ``(N, 2)``, then mirror it where ``mirrored``.

    Example:
        >>> image = torch.arange(4, dtype=torch.uint8).reshape(1, 1, 2, 2)
        >>> crop_and_mirror(image, torch.tensor([[2, 1]]), torch.tensor([False]), padding=1)
        tensor([[[[2, 3],
                  [0, 0]]]], dtype=torch.uint8)
        >>> crop_and_mirror(image, torch.tensor([[2, 1]]), torch.tensor([False]), padding=1, edges="mirrored")
        tensor([[[[2, 3],
                  [0, 1]]]], dtype=torch.uint8)
    """
    n, channels, height, width = images.shape
    rows = offset[:, :1] + torch.arange(height, device=images.device)
    column = torch.arange(width, device=images.device)
    columns = offset[:, 1:] + torch.where(mirrored[:, None], width - 1 - column, column)
    if edges == "mirrored":
        source, rows, columns = images, _folded(rows - padding, height), _folded(columns - padding, width)
    else:
        source = F.pad(images, (padding, padding, padding, padding))
    cut = source.gather(2, rows[:, None, :, None].expand(n, channels, height, source.shape[3]))
    return cut.gather(3, columns[:, None, None, :].expand(n, channels, height, width))


def _folded(place: Tensor, size: int) -> Tensor:
    """Places outside 0 … size - 1 reflected into it, as often as it takes; the pixel at the edge is not repeated."""
    last = max(size - 1, 1)
    return (last - (last - place % (2 * last)).abs()).clamp_max(size - 1)


def rotate(images: Tensor, angle: Tensor, edges: Edges = "black") -> Tensor:
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
    outside = "reflection" if edges == "mirrored" else "zeros"
    return F.grid_sample(images, grid, mode="bilinear", padding_mode=outside, align_corners=False)
