"""Noise shaped like a tensor, from torch's global generator or from a given one on any device."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def normal_like(z: Tensor, generator: Generator | None = None) -> Tensor:
    """Standard normal noise with the shape, dtype and device of ``z``.

    Without a generator this is `torch.randn_like`, which exports to ONNX as a random node. With one, the
    numbers are drawn on the generator's device and moved: a CPU generator gives the same noise everywhere.

    >>> z = torch.zeros(2, 3)
    >>> a, b = (normal_like(z, Generator().manual_seed(0)) for _ in range(2))
    >>> torch.equal(a, b)
    True
    """
    if generator is None:
        return torch.randn_like(z)
    return torch.randn(z.shape, generator=generator, device=generator.device, dtype=z.dtype).to(z.device)


def uniform_like(z: Tensor, generator: Generator | None = None) -> Tensor:
    """Uniform noise on [0, 1) with the shape, dtype and device of ``z``; see `normal_like`."""
    if generator is None:
        return torch.rand_like(z)
    return torch.rand(z.shape, generator=generator, device=generator.device, dtype=z.dtype).to(z.device)


def laplace_like(z: Tensor, generator: Generator | None = None) -> Tensor:
    """Standard Laplace noise (scale 1, variance 2) with the shape, dtype and device of ``z``.

    The difference of two exponentials, −log(1−u₁) + log(1−u₂): the inverse-CDF form would need the
    logarithm of zero for one of the values that a uniform draw on [0, 1) can take.
    """
    first, second = uniform_like(z, generator), uniform_like(z, generator)
    return torch.log(1 - second) - torch.log(1 - first)
