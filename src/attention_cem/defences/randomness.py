"""Noise shaped like a tensor: from torch's global generator, from a given one, or handed in by the caller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import torch
from torch import Generator, Tensor

Draw: TypeAlias = Literal["normal", "uniform"]


class SuppliedNoise:
    """Noise that the caller drew, taken in order; each draw has the shape of z.

    A client exported with random nodes gets its noise from the runtime. ONNX Runtime on CPU uses a generator
    with 31 bits of state (`std::minstd_rand0`), so that whoever knows a few values computes all others and
    subtracts the noise. Handing the noise in lets the device use its operating system's generator.

    Args:
        draws: standard normal or uniform [0, 1) tensors, in the order of `DefenceStack.draws`.
    """

    def __init__(self, draws: Iterable[Tensor]) -> None:
        self._left = list(draws)

    def take(self, z: Tensor) -> Tensor:
        """The next draw, in the dtype and on the device of ``z``."""
        if not self._left:
            raise ValueError("more noise is needed than was supplied; DefenceStack.draws() lists every draw")
        draw = self._left.pop(0)
        if draw.shape != z.shape:
            raise ValueError(f"supplied noise must have the shape {tuple(z.shape)}, received {tuple(draw.shape)}")
        return draw.to(z)

    def finish(self) -> None:
        """Raise if noise is left over: it was drawn for another stack."""
        if self._left:
            raise ValueError(f"{len(self._left)} supplied draws were not used; DefenceStack.draws() lists every draw")


NoiseSource: TypeAlias = Generator | SuppliedNoise | None


def normal_like(z: Tensor, source: NoiseSource = None) -> Tensor:
    """Standard normal noise with the shape, dtype and device of ``z``.

    Without a source this is `torch.randn_like`, which exports to ONNX as a random node. With a generator the
    numbers are drawn on its device and moved: a CPU generator gives the same noise everywhere.

    >>> z = torch.zeros(2, 3)
    >>> a, b = (normal_like(z, Generator().manual_seed(0)) for _ in range(2))
    >>> torch.equal(a, b)
    True
    """
    if source is None:
        return torch.randn_like(z)
    if isinstance(source, SuppliedNoise):
        return source.take(z)
    return torch.randn(z.shape, generator=source, device=source.device, dtype=z.dtype).to(z.device)


def uniform_like(z: Tensor, source: NoiseSource = None) -> Tensor:
    """Uniform noise on [0, 1) with the shape, dtype and device of ``z``; see `normal_like`."""
    if source is None:
        return torch.rand_like(z)
    if isinstance(source, SuppliedNoise):
        return source.take(z)
    return torch.rand(z.shape, generator=source, device=source.device, dtype=z.dtype).to(z.device)


def laplace_like(z: Tensor, source: NoiseSource = None) -> Tensor:
    """Standard Laplace noise (scale 1, variance 2) with the shape, dtype and device of ``z``; two uniform draws.

    The difference of two exponentials, −log(1−u₁) + log(1−u₂): the inverse-CDF form would need the
    logarithm of zero for one of the values that a uniform draw on [0, 1) can take.
    """
    # A bfloat16 uniform has 256 values and may round up to 1.
    wide = z if z.dtype == torch.float64 else z.float()
    first, second = uniform_like(wide, source), uniform_like(wide, source)
    return (torch.log(1 - second) - torch.log(1 - first)).to(z.dtype)
