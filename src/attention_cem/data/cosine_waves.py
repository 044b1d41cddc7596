"""Images as sums of cosine waves: which fineness of detail an error is in."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attention_cem.data.image_quality import as_comparable

_EDGES = (4, 8, 16)
"""Where one band of waves ends and the next begins; a wave of number k has k / 2 periods along a side."""


def cosine_waves(count: int, length: int) -> Tensor:
    r"""The ``count`` slowest orthonormal cosine waves (DCT-II) over ``length`` points, ``(count, length)``.

    >>> waves = cosine_waves(3, 8)
    >>> torch.allclose(waves @ waves.T, torch.eye(3), atol=1e-6)
    True
    """
    wave, point = torch.arange(count, dtype=torch.float64), torch.arange(length, dtype=torch.float64)
    waves = torch.cos(math.pi * wave[:, None] * (point + 0.5) / length) * math.sqrt(2 / length)
    waves[:1] /= math.sqrt(2)
    return waves.float()


def wave_bands(height: int, width: int) -> list[str]:
    """Names of the bands that images of this size have, coarse to fine.

    >>> wave_bands(32, 32), wave_bands(8, 8)
    (['0-3', '4-7', '8-15', '16-31'], ['0-3', '4-7'])
    """
    most = max(height, width)
    starts = [0, *(edge for edge in _EDGES if edge < most)]
    return [f"{start}-{end - 1}" for start, end in zip(starts, [*starts[1:], most], strict=True)]


def mse_by_waves(a: Tensor, b: Tensor) -> Tensor:
    """The mean squared error of each image, by the waves it is in: ``(N, bands)``, whose sum is the MSE.

    A wave belongs to a band by the larger of its two numbers, so that the first band is what a client blind to
    4 × 4 waves does not see.

    Example:
        >>> dark, bright = torch.zeros(1, 3, 32, 32), torch.full((1, 3, 32, 32), 0.5)
        >>> [round(part, 6) for part in mse_by_waves(dark, bright)[0].tolist()]   # an error in brightness alone
        [0.25, 0.0, 0.0, 0.0]
    """
    a, b = as_comparable(a, b)
    height, width = a.shape[-2:]
    along, across = (cosine_waves(side, side).to(a) for side in (height, width))
    energy = (along @ (a - b) @ across.T).square().mean(1) / (height * width)
    number = torch.maximum(torch.arange(height)[:, None], torch.arange(width)[None, :]).to(a.device)
    band = torch.bucketize(number, torch.tensor(_EDGES, device=a.device), right=True).flatten()
    count = len(wave_bands(height, width))
    return energy.new_zeros(len(a), count).index_add_(1, band, energy.flatten(1))
