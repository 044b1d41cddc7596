"""The analytic Gaussian mechanism of Balle & Wang (ICML 2018, arXiv 1805.06530, Theorem 8)."""

from __future__ import annotations

import math

import torch

from . import checks


def gaussian_delta(sigma: float, epsilon: float, sensitivity: float) -> float:
    r"""Smallest δ for which N(0, σ²I) noise on a query of L2 sensitivity Δ is (ε, δ)-differentially private.

    δ(ε) = Φ(Δ/2σ − εσ/Δ) − e^ε · Φ(−Δ/2σ − εσ/Δ), exact for every ε ≥ 0; the classical
    σ = Δ√(2 log(1.25/δ))/ε holds for ε ≤ 1 only and wastes noise even there.

    >>> round(gaussian_delta(sigma=3.730632, epsilon=1.0, sensitivity=1.0), 10)
    1e-05
    """
    half, shift = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
    upper, lower = _log_normal_cdf(half - shift), _log_normal_cdf(-half - shift)
    # One factor outside, so that e^ε never overflows.
    return -math.exp(upper) * math.expm1(min(epsilon + lower - upper, 0.0))


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Smallest σ that makes the Gaussian mechanism (ε, δ)-differentially private, by bisection.

    Args:
        epsilon: ε > 0, any size.
        delta: δ in (0, 1).
        sensitivity: largest L2 distance of two possible (clipped) features.

    >>> round(gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0), 4)
    3.7306
    """
    checks.positive("epsilon", epsilon)
    checks.positive("sensitivity", sensitivity)
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, received {delta!r}")
    low, high = 0.5, 1.0
    while gaussian_delta(high, epsilon, 1.0) > delta:
        low, high = high, 2 * high
    while gaussian_delta(low, epsilon, 1.0) <= delta:
        low, high = low / 2, low
    # `high` satisfies the condition throughout; the answer errs on the side of more noise.
    while high / low > 1 + 1e-12:
        middle = math.sqrt(low * high)
        if gaussian_delta(middle, epsilon, 1.0) > delta:
            low = middle
        else:
            high = middle
    return high * sensitivity


def _log_normal_cdf(value: float) -> float:
    return float(torch.special.log_ndtr(torch.tensor(value, dtype=torch.float64, device="cpu")))
