"""Two methods at the same accuracy: which one leaks less, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from attention_cem.studies.curves import Point, common_range, mse_at_accuracy
from attention_cem.studies.intervals import Estimate, difference_interval

BETTER, WORSE, SAME = "better", "worse", "no difference shown"
UNDECIDED, NOT_COMPARABLE = "undecided", "not comparable"
ENOUGH_SEEDS = 3
"""Fewer decide nothing: an interval from two seeds may be narrow by chance."""
LEAST_MSE = 1e-10
"""Ratios need positive figures; the audit floors the MSE of a perfect reconstruction at the same value."""

SeedCurves = Mapping[int, Sequence[Point]]
"""The (accuracy, MSE) points of each seed."""


@dataclass(frozen=True)
class Matched:
    """Two methods at one accuracy.

    Args:
        accuracy: at which both were read.
        outcome: ``better``, ``worse``, ``no difference shown``, ``undecided`` (fewer than `ENOUGH_SEEDS`) or
            ``not comparable``; about the first method.
        text: the same in words.
        mse_first: MSE of the first method at that accuracy, one per seed.
        mse_second: of the second.
        change: relative difference of the MSE, 0.1 for 10 % more; None where not comparable.
        ci95: its interval over seeds; None with fewer than two seeds.
        paired: whether seeds were compared one by one.
    """

    accuracy: float
    outcome: str
    text: str
    mse_first: tuple[float, ...] = ()
    mse_second: tuple[float, ...] = ()
    change: float | None = None
    ci95: tuple[float, float] | None = None
    paired: bool = False

    def to_plain(self) -> dict[str, Any]:
        """As ``comparison.json`` holds it."""
        return {
            "accuracy": self.accuracy,
            "outcome": self.outcome,
            "text": self.text,
            "mse_a": list(self.mse_first),
            "mse_b": list(self.mse_second),
            "change": self.change,
            "ci95": None if self.ci95 is None else list(self.ci95),
            "paired": self.paired,
        }


def overlap(first: SeedCurves, second: SeedCurves) -> tuple[float, float] | None:
    """The accuracies at which every seed's curve of both methods can be read; None where there are none."""
    curves = [*first.values(), *second.values()]
    return common_range(curves) if first and second else None


def compare_at(first: SeedCurves, second: SeedCurves, accuracy: float, *, smallest_difference: float = 0.0) -> Matched:
    """Compare the MSE of two methods at one accuracy, over seeds.

    Each seed's curve is read on its efficient part. The interval is Student's t on ln MSE: of the seeds' differences
    where both methods have the same seeds, Welch's otherwise; so that it is a relative difference.

    Args:
        first: points of each seed.
        second: the same of the other method.
        accuracy: where to compare.
        smallest_difference: a difference of the mean MSE below this does not count, however sure.

    >>> one = {seed: [(0.8, 0.030), (0.9, 0.010 + seed / 1000)] for seed in (0, 1, 2)}
    >>> other = {seed: [(0.8, 0.020), (0.9, 0.008)] for seed in (0, 1, 2)}
    >>> compare_at(one, other, 0.85).text
    'better at 85.0 % accuracy: +46.4 % MSE, 95 % CI +37.8 % to +55.5 % (3 seeds)'
    >>> compare_at(one, {0: [(0.5, 0.1)]}, 0.85).text
    'not comparable at 85.0 % accuracy: the curves do not both reach it'
    """
    values = [[mse_at_accuracy(points, accuracy) for points in curves.values()] for curves in (first, second)]
    at = f"{100 * accuracy:.1f} % accuracy"
    if not all(values) or any(mse is None for side in values for mse in side):
        text = f"not comparable at {at}: the curves do not both reach it"
        return Matched(accuracy, NOT_COMPARABLE, text)
    paired = set(first) == set(second)
    if paired:
        values = [[mse_at_accuracy(curves[seed], accuracy) for seed in sorted(first)] for curves in (first, second)]
    ours, theirs = ([max(mse, LEAST_MSE) for mse in side if mse is not None] for side in values)
    logs = difference_interval([math.log(v) for v in ours], [math.log(v) for v in theirs], paired=paired)
    change, ci95 = _relative(logs)
    enough = min(len(ours), len(theirs)) >= ENOUGH_SEEDS
    outcome = _outcome(ci95, fmean(ours) - fmean(theirs), smallest_difference) if enough else UNDECIDED
    text = _text(outcome, at, change, ci95, len(ours), len(theirs))
    return Matched(accuracy, outcome, text, tuple(ours), tuple(theirs), change, ci95, paired)


def _relative(logs: Estimate) -> tuple[float, tuple[float, float] | None]:
    if logs.low is None or logs.high is None:
        return math.expm1(logs.mean), None
    # Two seeds that disagree wildly have an interval beyond any float; it says "anything", so does the cut one.
    return math.expm1(logs.mean), (math.expm1(logs.low), math.expm1(min(logs.high, 50.0)))


def _outcome(ci95: tuple[float, float] | None, difference: float, smallest: float) -> str:
    if ci95 is None:
        return UNDECIDED
    if ci95[0] <= 0 <= ci95[1] or abs(difference) < smallest:
        return SAME
    return BETTER if ci95[0] > 0 else WORSE


def _text(
    outcome: str, at: str, change: float, ci95: tuple[float, float] | None, seeds_first: int, seeds_second: int
) -> str:
    seeds = f"{seeds_first}" if seeds_first == seeds_second else f"{seeds_first} and {seeds_second}"
    figure = f"{100 * change:+.1f} % MSE"
    if ci95 is None:
        told = "1 seed gives" if seeds == "1" else f"{seeds} seeds give"
        return f"undecided at {at}: {figure}, but {told} no interval"
    few = f", fewer than {ENOUGH_SEEDS}" if min(seeds_first, seeds_second) < ENOUGH_SEEDS else ""
    return f"{outcome} at {at}: {figure}, 95 % CI {100 * ci95[0]:+.1f} % to {100 * ci95[1]:+.1f} % ({seeds} seeds{few})"
