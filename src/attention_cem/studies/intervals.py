"""Student's t intervals over seeds, in plain Python."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

_PANELS = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval; ``low`` and ``high`` are None where one value gives no interval."""

    mean: float
    low: float | None
    high: float | None


def mean_interval(values: Sequence[float]) -> Estimate:
    """Mean ± t·s/√n over independent values, usually one per seed.

    >>> estimate = mean_interval([1.0, 2.0, 3.0])
    >>> estimate.mean, round(estimate.low, 3), round(estimate.high, 3)
    (2.0, -0.484, 4.484)
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, None, None)
    half = t_quantile(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


def difference_interval(first: Sequence[float], second: Sequence[float], *, paired: bool) -> Estimate:
    """Mean of ``first`` minus mean of ``second``: paired by position, or Welch's interval.

    >>> difference_interval([1.0, 2.0], [0.5, 1.5], paired=True)
    Estimate(mean=0.5, low=0.5, high=0.5)
    """
    if paired:
        return mean_interval([a - b for a, b in zip(first, second, strict=True)])
    mean = statistics.fmean(first) - statistics.fmean(second)
    if min(len(first), len(second)) < 2:
        return Estimate(mean, None, None)
    shares = [statistics.variance(values) / len(values) for values in (first, second)]
    spread = sum(shares)
    if spread == 0:
        return Estimate(mean, mean, mean)
    freedom = spread**2 / sum(s**2 / (len(v) - 1) for s, v in zip(shares, (first, second), strict=True))
    half = t_quantile(0.975, freedom) * math.sqrt(spread)
    return Estimate(mean, mean - half, mean + half)


@cache
def t_quantile(probability: float, freedom: float) -> float:
    """The value below which Student's t with ``freedom`` degrees lies with ``probability`` (0.5 to 0.9999).

    With t = √ν·tan θ the density is proportional to cos^(ν−1) θ on (−π/2, π/2): a smooth integral over a finite
    range, found by Simpson's rule and inverted by bisection.

    >>> round(t_quantile(0.975, 2), 4), round(t_quantile(0.975, 1), 4)
    (4.3027, 12.7062)
    """
    if not 0.5 <= probability <= 0.9999 or not freedom >= 1:
        raise ValueError(f"expected a probability in [0.5, 0.9999] and ν ≥ 1, got {probability} and {freedom}")
    target = (probability - 0.5) * 2 * _cosine_power_area(math.pi / 2, freedom)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if _cosine_power_area(middle, freedom) < target:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _cosine_power_area(end: float, freedom: float) -> float:
    """∫₀^end cos^(ν−1) θ dθ."""
    width = end / _PANELS
    total = 0.0
    for index in range(_PANELS + 1):
        weight = 1 if index in (0, _PANELS) else 4 if index % 2 else 2
        total += weight * max(math.cos(index * width), 0.0) ** (freedom - 1)
    return total * width / 3
