"""Standard normal noise as a pure function of (seed, step): random state that is an ordinary buffer.

A `torch.Generator` cannot be a persistent buffer, cannot be read back from a GPU without waiting for it, and
gives other numbers on another device. Hashing a counter has none of these faults: saving two integers saves the
stream, and it compiles.
"""

import math

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def _shift(bits: Tensor, by: int) -> Tensor:
    # int64 has no logical right shift: mask the copies of the sign bit away.
    return (bits >> by) & ((1 << (64 - by)) - 1)


def splitmix64(bits: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) on int64 tensors, wrapping."""
    bits = (bits ^ _shift(bits, 30)) * _MIX_1
    bits = (bits ^ _shift(bits, 27)) * _MIX_2
    return bits ^ _shift(bits, 31)


def counter_uniform(seed: Tensor, step: Tensor, size: int) -> Tensor:
    """``size`` uniform numbers in (0, 1), float64, that depend on ``seed`` and ``step`` (int64 scalars) alone."""
    stream = splitmix64(seed + splitmix64(step + 1) * _GOLDEN)
    index = torch.arange(size, device=seed.device)
    bits = splitmix64(splitmix64(index + 1) ^ stream)
    return (_shift(bits, 11).to(torch.float64) + 0.5) * 2.0**-53


def counter_normal(seed: Tensor, step: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Standard normal numbers that depend on ``seed`` and ``step`` (int64 scalars) alone.

    >>> seed, step = torch.tensor(0), torch.tensor(3)
    >>> a = counter_normal(seed, step, (4, 1000), torch.float32)
    >>> torch.equal(a, counter_normal(seed, step, (4, 1000), torch.float32))
    True
    >>> abs(a.mean().item()) < 0.05 and abs(a.std().item() - 1) < 0.05
    True
    """
    size = math.prod(shape)
    uniform = counter_uniform(seed, step, 2 * size)
    radius = (-2 * uniform[:size].log()).sqrt()
    return (radius * (2 * math.pi * uniform[size:]).cos()).to(dtype).view(shape)
