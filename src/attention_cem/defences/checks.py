"""Checks at the boundary: each says what it received and what it expected."""

from __future__ import annotations

import math
from numbers import Real

from torch import Tensor


def positive(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise unless it is finite and above zero.

    >>> positive("sigma", 1)
    1.0
    >>> positive("sigma", 0)
    Traceback (most recent call last):
    ...
    ValueError: sigma must be a finite number above 0, received 0
    """
    if not is_finite(value) or value <= 0:
        raise ValueError(f"{name} must be a finite number above 0, received {value!r}")
    return float(value)


def not_negative(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise unless it is finite and at least zero."""
    if not is_finite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number of at least 0, received {value!r}")
    return float(value)


def is_finite(value: object) -> bool:
    """Whether it is a number, neither text nor truth value, and finite."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def whole(name: str, value: int, minimum: int) -> int:
    """Return ``value``, or raise unless it is a whole number of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, received {value!r}")
    return value


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    """Return ``value``, or raise unless it is one of ``known``."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, received {value!r}")
    return value


def shape(name: str, value: object, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape (without the batch axis) as a tuple, or raise if it is not one."""
    sizes = tuple(value) if isinstance(value, list | tuple) else ()
    if len(sizes) not in ranks or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sizes):
        expected = " or ".join(str(rank) for rank in ranks)
        raise ValueError(
            f"{name} must be {expected} positive whole numbers (a shape without the batch axis), received {value!r}"
        )
    return sizes


def features(z: Tensor) -> Tensor:
    """Return ``z``, or raise unless it is a batch ``(N, ...)`` of floating-point features."""
    if z.dim() < 2 or not z.is_floating_point():
        raise ValueError(
            f"z must be a floating-point tensor of shape (N, ...) with at least two axes, "
            f"received {tuple(z.shape)} of {z.dtype}"
        )
    return z
