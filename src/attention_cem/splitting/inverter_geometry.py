"""How to turn a z of any shape into a grid, and how to get from that grid to the image's size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_LARGEST_START = 8


@dataclass(frozen=True)
class Resampling:
    """Steps from one size to another: factors of two up or down, then interpolation if that does not fit."""

    doublings: int
    halvings: int
    interpolate: bool


def resampling(grid: Sequence[int], image: Sequence[int]) -> Resampling:
    """Plan from `grid` (H, W) to `image` (H, W).

    >>> resampling((8, 8), (32, 32))
    Resampling(doublings=2, halvings=0, interpolate=False)
    >>> resampling((7, 7), (32, 32))
    Resampling(doublings=2, halvings=0, interpolate=True)
    >>> resampling((64, 64), (32, 32))
    Resampling(doublings=0, halvings=1, interpolate=False)
    """
    ratios = [target / size for size, target in zip(grid, image, strict=True)]
    doublings = max(0, math.floor(math.log2(min(ratios))))
    halvings = max(0, math.floor(-math.log2(max(ratios))))
    reached = [size * 2**doublings for size in grid]
    for _ in range(halvings):
        reached = [(size + 1) // 2 for size in reached]
    return Resampling(doublings, halvings, interpolate=reached != list(image))


def token_grid(tokens: int, image: Sequence[int]) -> tuple[int, int] | None:
    """Rows and columns of a patch grid with the image's aspect ratio, or None if there is none.

    >>> token_grid(64, (32, 32)), token_grid(32, (64, 32)), token_grid(65, (32, 32))
    ((8, 8), (8, 4), None)
    """
    height, width = image
    rows = math.isqrt(tokens * height // width)
    if rows and tokens % rows == 0 and rows * width == (tokens // rows) * height:
        return rows, tokens // rows
    return None


def start_grid(image: Sequence[int]) -> tuple[int, int]:
    """A small grid from which doubling reaches the image, for z without any layout of its own.

    >>> start_grid((32, 32)), start_grid((48, 48)), start_grid((112, 92))
    ((8, 8), (6, 6), (7, 6))
    """
    halvings = 0
    while max(image) / 2**halvings > _LARGEST_START:
        halvings += 1
    return math.ceil(image[0] / 2**halvings), math.ceil(image[1] / 2**halvings)


class FlatToGrid(nn.Module):
    """z of any shape, flattened → `(B, channels, *grid)` by one linear layer.

    The grid has about as many values as z, within 8 to `width` channels: little is lost, and the linear layer
    does not dwarf the rest of the network.
    """

    def __init__(self, numel: int, width: int, image: Sequence[int]) -> None:
        super().__init__()
        self.grid = start_grid(image)
        cells = self.grid[0] * self.grid[1]
        self.channels = min(width, max(8, math.ceil(numel / cells)))
        self.linear = nn.Linear(numel, self.channels * cells)

    def forward(self, z: Tensor) -> Tensor:
        """Lay a flattened z out on the grid."""
        return self.linear(z.flatten(1)).unflatten(1, (self.channels, *self.grid))


class TokensToGrid(nn.Module):
    """Tokens `(B, T, E)` → `(B, channels, rows, columns)`.

    A class token in front of the patches is either dropped or, so that nothing is lost, repeated at every
    position beside the patch's own features.
    """

    def __init__(self, width: int, grid: tuple[int, int], class_token: str | None) -> None:
        super().__init__()
        self.grid = grid
        self.class_token = class_token
        self.channels = 2 * width if class_token == "keep" else width

    def forward(self, z: Tensor) -> Tensor:
        """Lay tokens out as they lie in the image."""
        patches = z if self.class_token is None else z[:, 1:]
        if self.class_token == "keep":
            patches = torch.cat([patches, z[:, :1].expand_as(patches)], dim=-1)
        return patches.transpose(1, 2).unflatten(2, self.grid)


class SpatialGrid(nn.Identity):
    """A z `(B, C, H, W)` that is a grid already."""

    def __init__(self, channels: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.channels = channels
        self.grid = grid


def grid_layer(
    z_shape: Sequence[int], image_shape: Sequence[int], width: int, class_token: str
) -> SpatialGrid | TokensToGrid | FlatToGrid:
    """The layer that makes a grid of z: itself when spatial, patches when tokens, a linear map otherwise."""
    image = image_shape[1:]
    if len(z_shape) == 3 and min(z_shape[1:]) > 1:
        return SpatialGrid(z_shape[0], (z_shape[1], z_shape[2]))
    if len(z_shape) == 2:
        tokens, features = z_shape
        grid = token_grid(tokens, image)
        if grid is not None and tokens > 1:
            return TokensToGrid(features, grid, None)
        grid = token_grid(tokens - 1, image)
        if grid is not None and tokens > 2:
            return TokensToGrid(features, grid, class_token)
    return FlatToGrid(math.prod(z_shape), width, image)
