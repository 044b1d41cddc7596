"""Accuracy–MSE curves: Pareto front, its hull, hypervolume, MSE at a given accuracy. Both are better when higher.

Plain Python on plain numbers: nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

Point = tuple[float, float]
"""(accuracy, MSE of the worst-case attack)."""


def pareto_front(points: Iterable[Point]) -> list[Point]:
    """The points no other point beats in both accuracy and MSE, by rising accuracy (and so falling MSE).

    A curve need not be monotone: a stronger defence can cost accuracy *and* privacy. Nobody would deploy such a
    point, so that a method is judged by its efficient ones. Equal points count once.

    >>> pareto_front([(0.9, 1.0), (0.8, 3.0), (0.7, 2.0), (0.85, 0.5)])
    [(0.8, 3.0), (0.9, 1.0)]
    """
    front: list[Point] = []
    highest = -math.inf
    for accuracy, mse in sorted(_checked(points), reverse=True):
        if mse > highest:
            front.append((accuracy, mse))
            highest = mse
    return front[::-1]


def mixed_front(points: Iterable[Point]) -> list[Point]:
    """The efficient points that no mixture of two others beats: the corners of the upper hull, by rising accuracy.

    Who uses each of two clients for a share of the images has the means of their accuracies and of their MSEs, weighted
    by the shares: every point on the straight line between the two can be deployed, and a point below it need not be.
    So a further run can never lower a curve.

    >>> mixed_front([(0.5, 4.0), (0.75, 1.5), (1.0, 1.0)])  # half of each end has 0.75 and 2.5
    [(0.5, 4.0), (1.0, 1.0)]
    """
    corners: list[Point] = []
    for point in pareto_front(points):
        while len(corners) > 1 and not _above_line(corners[-1], corners[-2], point):
            corners.pop()
        corners.append(point)
    return corners


def hypervolume(points: Iterable[Point], reference: Point) -> float:
    """Area of everything that some point beats and that beats ``reference``; exact.

    >>> hypervolume([(2.0, 1.0), (1.0, 3.0)], (0.0, 0.0))  # 2×1, and 1×2 above it
    4.0
    """
    area, left = 0.0, reference[0]
    for accuracy, mse in pareto_front(points):
        if accuracy > left and mse > reference[1]:
            area += (accuracy - left) * (mse - reference[1])
            left = accuracy
    return area


def accuracy_range(points: Iterable[Point]) -> tuple[float, float]:
    """The accuracies between which the efficient part of a curve can be read.

    >>> accuracy_range([(0.9, 1.0), (0.8, 3.0), (0.7, 2.0)])
    (0.8, 0.9)
    """
    front = pareto_front(points)
    if not front:
        raise ValueError("a curve needs at least one point, got none")
    return front[0][0], front[-1][0]


def shares_at_accuracy(
    points: Iterable[Point], accuracy: float, *, widest_gap: float = math.inf, or_above: bool = False
) -> list[tuple[Point, float]]:
    """The points of `mixed_front` that together have an accuracy, each with its share; see `mse_at_accuracy`.

    >>> shares_at_accuracy([(0.5, 3.0), (1.0, 1.0), (0.75, 0.5)], 0.625)
    [((0.5, 3.0), 0.75), ((1.0, 1.0), 0.25)]
    """
    efficient = pareto_front(points)
    if or_above and efficient and accuracy < efficient[0][0]:
        return [(efficient[0], 1.0)]
    if any(left[0] < accuracy < right[0] and right[0] - left[0] > widest_gap for left, right in pairwise(efficient)):
        return []
    corners = mixed_front(efficient)
    for left, right in pairwise(corners):
        if left[0] <= accuracy <= right[0]:
            share = (accuracy - left[0]) / (right[0] - left[0])
            return [(left, 1 - share), (right, share)]
    return [(point, 1.0) for point in corners if point[0] == accuracy]


def mse_at_accuracy(
    points: Iterable[Point], accuracy: float, *, widest_gap: float = math.inf, or_above: bool = False
) -> float | None:
    """The highest MSE that runs of a curve, or mixtures of two, have at one accuracy: straight lines of `mixed_front`.

    Of the stored exploration runs, those left out are also met better by straight lines in MSE than in ln MSE
    (``results/exploration.md``, "Between the runs").

    Never extrapolates: None outside the curve's range.

    Args:
        points: of one curve, in any order.
        accuracy: where to read it.
        widest_gap: None also between two neighbouring efficient points whose accuracies lie further apart than this.
        or_above: where the whole curve is more accurate, its least accurate efficient point instead of None: at least
            so much MSE can be had with at least that accuracy.

    >>> mse_at_accuracy([(0.5, 3.0), (1.0, 1.0), (0.75, 0.5)], 0.75)
    2.0
    >>> mse_at_accuracy([(0.8, 3.0), (0.9, 1.0)], 0.95) is None
    True
    >>> mse_at_accuracy([(0.8, 3.0), (0.9, 1.0)], 0.7, or_above=True)
    3.0
    """
    shares = shares_at_accuracy(points, accuracy, widest_gap=widest_gap, or_above=or_above)
    return sum(share * mse for (_, mse), share in shares) if shares else None


def common_range(curves: Iterable[Sequence[Point]]) -> tuple[float, float] | None:
    """The accuracies at which every one of the curves can be read; None where there are none.

    >>> common_range([[(0.7, 2.0), (0.8, 1.0)], [(0.75, 2.0), (0.9, 1.0)]])
    (0.75, 0.8)
    >>> common_range([[(0.7, 2.0), (0.8, 1.0)], [(0.85, 2.0), (0.9, 1.0)]]) is None
    True
    """
    ranges = [accuracy_range(curve) for curve in curves]
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    return (low, high) if low <= high else None


def _above_line(point: Point, left: Point, right: Point) -> bool:
    """Whether a point lies above the straight line between two others, one on each side of it."""
    return (point[1] - left[1]) * (right[0] - left[0]) > (right[1] - left[1]) * (point[0] - left[0])


def _checked(points: Iterable[Point]) -> list[Point]:
    checked = [(float(accuracy), float(mse)) for accuracy, mse in points]
    for accuracy, mse in checked:
        if not (math.isfinite(accuracy) and math.isfinite(mse)):
            raise ValueError(f"accuracy and MSE must be finite numbers, got ({accuracy}, {mse})")
    return checked
