"""MSE at equal accuracy, seed by seed: each seed's efficient points, read by straight lines between them.

A side of a comparison is one method, or several whose runs are one curve (an envelope). Nothing is extrapolated.
Where the first side is more accurate than the second ever is, it is read at its least accurate efficient run: the ratio
is then a lower bound, and can only say "better". A seed that cannot be read is left out because of its figures, so that
the others alone decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attention_cem.studies import Matched, accuracy_range, compare_at, mse_at_accuracy
from attention_cem.studies.curves import Point
from attention_cem.studies.verdicts import BETTER, UNDECIDED

Interval = tuple[float, float]
Side = Mapping[int, Sequence[Point]]
"""By seed: the (accuracy, MSE) points."""
FROM_STUDY, FROM_OVERLAP = "the study file", "the lowest accuracy of the overlap"
_ACROSS = 5


class NotComparableError(ValueError):
    """Two sides share no accuracy; the message says why."""


@dataclass(frozen=True)
class AtAccuracy:
    """Both sides at one accuracy.

    Args:
        matched: figures and verdict, about the first side.
        seeds: that were read.
    """

    matched: Matched
    seeds: tuple[int, ...]

    @property
    def gain(self) -> float:
        """MSE of the first side over that of the second: geometric mean over seeds."""
        return 1 + (self.matched.change or 0.0)

    @property
    def ci95(self) -> Interval | None:
        """Its 95 % t interval; None with fewer than two seeds."""
        return None if self.matched.ci95 is None else (1 + self.matched.ci95[0], 1 + self.matched.ci95[1])


@dataclass(frozen=True)
class Match:
    """A comparison at the accuracy that counts, and across the overlap.

    Args:
        decisive: at the accuracy that counts.
        chosen: where that accuracy comes from.
        across: at the study's accuracies and at five across the overlap, by rising accuracy.
        overlap: accuracies at which every seed of both sides can be read.
        seeds: that both sides have and that were used.
        left_out: other seeds, and why.
        at_least: whether the first side was read at accuracies above, so that ratios are lower bounds.
    """

    decisive: AtAccuracy
    chosen: str
    across: tuple[AtAccuracy, ...]
    overlap: Interval
    seeds: tuple[int, ...]
    left_out: Mapping[int, str]
    at_least: bool = False


def readable(points: Sequence[Point], *, or_above: bool = False) -> Interval:
    """The accuracies at which a curve can be read."""
    low, high = accuracy_range(points)
    return (0.0 if or_above else low), high


def intersection(one: Interval, other: Interval) -> Interval | None:
    """What two intervals share; None if nothing.

    >>> intersection((0, 3), (1, 4)), intersection((0, 1), (2, 3))
    ((1, 3), None)
    """
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else None


def match(a: Side, b: Side, *, accuracies: Sequence[float] = (), smallest_difference: float = 0.0) -> Match:
    """Compare two sides over the seeds they share.

    The accuracy that counts is the first of ``accuracies`` that every seed of both sides covers, otherwise the lowest
    that they all cover: there the methods are at work most, and one run stands as it is.

    Where some seed of the first side is more accurate than the second ever is, a lower bound over more seeds takes the
    place of the comparison.

    Raises:
        NotComparableError: no seed in common, or no accuracy.
    """
    shared = sorted(set(a) & set(b))
    if not shared:
        raise NotComparableError("the two sides have no seed in common")
    plain, above = (_covered(a, b, shared, at_least) for at_least in (False, True))
    wider = above.common is not None and (len(above.seeds) > len(plain.seeds) or plain.common is None)
    found = _match(a, b, above if wider else plain, accuracies, smallest_difference)
    if found is not None:
        return found
    if not plain.seeds:
        raise NotComparableError(f"the curves share no stretch of accuracy ({_told(a)} against {_told(b)})")
    raise NotComparableError(f"no accuracy is covered by all of the seeds {', '.join(map(str, plain.seeds))}")


@dataclass(frozen=True)
class _Covered:
    """The seeds whose two curves share a stretch of accuracy, and the accuracies that all of them cover."""

    seeds: tuple[int, ...]
    common: Interval | None
    at_least: bool


def _covered(a: Side, b: Side, shared: Sequence[int], at_least: bool) -> _Covered:
    ranges = {seed: intersection(readable(a[seed], or_above=at_least), readable(b[seed])) for seed in shared}
    usable = {seed: found for seed, found in ranges.items() if found is not None and found[0] < found[1]}
    common: Interval | None = (0.0, 1.0) if usable else None
    for each in usable.values():
        common = None if common is None else intersection(common, each)
    return _Covered(tuple(usable), common, at_least)


def _match(a: Side, b: Side, where: _Covered, accuracies: Sequence[float], smallest_difference: float) -> Match | None:
    """The comparison there; None where no accuracy is covered."""
    if where.common is None:
        return None
    unread = sorted((set(a) & set(b)) - set(where.seeds))

    def at(accuracy: float) -> AtAccuracy:
        found = _at(a, b, where, accuracy, smallest_difference)
        return _undecided(found, f"{len(unread)} of the seeds cannot be read") if unread else found

    low, high = where.common
    named = [each for each in accuracies if low <= each <= high]
    spread = {low + (high - low) * step / (_ACROSS - 1) for step in range(1, _ACROSS - 1)} | {low, high}
    left_out = dict.fromkeys(sorted(set(a) ^ set(b)), "only one side has it")
    left_out.update(dict.fromkeys(unread, "its two curves share no stretch of accuracy"))
    return Match(
        decisive=at(named[0] if named else low),
        chosen=FROM_STUDY if named else FROM_OVERLAP,
        across=tuple(at(each) for each in sorted(spread | set(named))),
        overlap=where.common,
        seeds=where.seeds,
        left_out=left_out,
        at_least=where.at_least,
    )


def _at(a: Side, b: Side, where: _Covered, accuracy: float, smallest_difference: float) -> AtAccuracy:
    curves: list[dict[int, list[Point]]] = []
    for side, or_above in ((a, where.at_least), (b, False)):
        read = {seed: mse_at_accuracy(side[seed], accuracy, or_above=or_above) for seed in where.seeds}
        # One point at the accuracy itself: the verdict reads it as it is, and nothing is interpolated twice.
        curves.append({seed: [(accuracy, mse)] for seed, mse in read.items() if mse is not None})
    matched = compare_at(curves[0], curves[1], accuracy, smallest_difference=smallest_difference)
    found = AtAccuracy(matched, where.seeds)
    return _undecided(found, "a lower bound") if where.at_least and matched.outcome != BETTER else found


def _undecided(found: AtAccuracy, why: str) -> AtAccuracy:
    told = f"undecided, {why} ({found.matched.text})"
    return replace(found, matched=replace(found.matched, outcome=UNDECIDED, text=told))


def _told(side: Side) -> str:
    reached = {seed: readable(points) for seed, points in sorted(side.items())}
    return ", ".join(f"seed {seed} {100 * low:.1f}–{100 * high:.1f} %" for seed, (low, high) in reached.items())
