"""Noise from the operating system's generator, which nobody who sees some of it can continue.

The random nodes of ONNX Runtime on a CPU follow a generator of 31 bits (see
`attention_cem.defences.randomness.SuppliedNoise`), so that an exported client with noise nodes could be stripped of
its noise. Here every value is made of fresh bytes of ``os.urandom``: there is no seed, no state to copy with a fork
or a snapshot of the process, and nothing to switch off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

_UNIT_53 = 2.0**-53
_UNIT_24 = 2.0**-24


def system_normal(shape: Sequence[int]) -> NDArray[np.float32]:
    r"""Standard normal values by Box and Muller's transform, :math:`\sqrt{-2\ln(1-u)}\,(\cos 2\pi v, \sin 2\pi v)`.

    u has 53 bits, so the tails end at 8.6 standard deviations.

    >>> noise = system_normal((4, 1000))
    >>> noise.shape, noise.dtype, bool(abs(noise.std() - 1) < 0.1)
    ((4, 1000), dtype('float32'), True)
    """
    count = math.prod(shape)
    pairs = (count + 1) // 2
    bits = np.frombuffer(os.urandom(16 * pairs), dtype="<u8") >> np.uint64(11)
    u, v = bits.astype(np.float64).reshape(2, pairs) * _UNIT_53
    radius = np.sqrt(-2.0 * np.log1p(-u))
    angle = 2.0 * np.pi * v
    values = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return values[:count].astype(np.float32).reshape(tuple(shape))


def system_uniform(shape: Sequence[int]) -> NDArray[np.float32]:
    """Values uniform on [0, 1): the multiples of 2⁻²⁴, which float32 holds exactly, so that none rounds up to 1.

    >>> noise = system_uniform((1000,))
    >>> bool(noise.min() >= 0), bool(noise.max() < 1)
    (True, True)
    """
    bits = np.frombuffer(os.urandom(4 * math.prod(shape)), dtype="<u4") >> np.uint32(8)
    return (bits.astype(np.float32) * np.float32(_UNIT_24)).reshape(tuple(shape))


_BY_KIND: dict[str, Callable[[Sequence[int]], NDArray[np.float32]]] = {
    "normal": system_normal,
    "uniform": system_uniform,
}


def system_draw(kind: str, shape: Sequence[int]) -> NDArray[np.float32]:
    """One draw of the kind that a bundle's manifest names."""
    if kind not in _BY_KIND:
        raise ValueError(f"unknown kind of noise {kind!r}; expected one of {', '.join(_BY_KIND)}")
    return _BY_KIND[kind](shape)
