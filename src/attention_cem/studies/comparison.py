"""From results of runs to a comparison of methods: ``comparison.json``.

It is plain data, version 1; ``definitions`` in the file says what every figure means. Accuracies and relative
differences are shares (0.87, 0.1), MSE is the audit's worst case, higher is more private.

=====================  ================================================================================================
format, version        ``attention-cem/comparison``, 1
study, title           of the study file
cells                  ``planned``, ``done``; ``failed``: list of ``cell``, ``method``, ``error``; ``missing``: ids
smallest_difference    of MSE; below it a difference is none
definitions            one sentence each
methods                object by method name (``data: name`` where a study has several data sets), in the order of the
                       study file:
  data, label          name of the data set; name of the method without it
  points               list, one per finished run: ``cell``, ``run`` (folder, relative to comparison.json), ``method``,
                       ``data``, ``seed``, ``lambda``, ``sigma``, ``settings`` (what sets it apart, by dotted name),
                       ``accuracy`` (test), ``validation_accuracy``, ``mse``, ``ci95`` [low, high] over test images,
                       ``psnr``, ``ssim`` (or null), ``attack`` (the worst one), ``status``, ``receipt_ok``,
                       ``shutoff_share`` (or null), ``cost`` {``seconds_per_epoch``, ``images_per_s``,
                       ``train_seconds``, ``audit_seconds``}, ``on_front`` (of its seed's curve)
  curve                list by rising accuracy, one per setting, means over seeds: ``accuracy``, ``mse``,
                       ``accuracy_std``, ``mse_std`` (null with one seed), ``seeds`` (how many), ``lambda``, ``sigma``,
                       ``settings`` (without the seed), ``on_front`` (of the mean curve), ``receipt_ok`` (all)
  front                list of [accuracy, mse]: the efficient part of ``curve``
  hypervolume          ``mean``, ``ci95`` or null, ``per_seed`` {seed: value}, ``reference`` [accuracy, mse]
  seconds_per_epoch    ``mean``, ``ci95`` or null
pairs                  list, every two methods on the same data once: ``a``, ``b`` (names in ``methods``), ``data``,
                       ``overlap`` [low, high] or null, ``outcome`` and ``text`` (the verdict, about ``a``),
                       ``matched``: list of ``accuracy``, ``outcome``, ``text``, ``mse_a`` and ``mse_b`` (one per seed),
                       ``change`` (0.1: ``a`` has 10 % more MSE) and ``ci95`` [low, high] or null, ``paired``;
                       ``cost_ratio`` (seconds per epoch of ``a`` over ``b``, or null), ``cautions``: list of sentences
=====================  ================================================================================================

``outcome`` is ``better``, ``worse``, ``no difference shown`` (earlier files: ``no difference``), ``undecided`` (fewer
than three seeds) or ``not comparable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import Any

from attention_cem.studies.curves import Point, hypervolume, pareto_front
from attention_cem.studies.intervals import mean_interval
from attention_cem.studies.verdicts import ENOUGH_SEEDS, NOT_COMPARABLE, SeedCurves, compare_at, overlap

COMPARISON_FORMAT = "attention-cem/comparison"
COMPARISON_VERSION = 1
COMPARISON_FILE = "comparison.json"
DEFINITIONS = {
    "accuracy": "share of test images the server classifies right from released features",
    "mse": "the audit's headline: lowest mean MSE over attacks on test images; higher is more private",
    "receipt_ok": "whether the headline stands on attacks whose receipts pass; otherwise the true MSE may be lower",
    "front": "points that no other point of the curve beats in both accuracy and MSE",
    "hypervolume": "area of all (accuracy, MSE) that a seed's front beats and that beat the reference; mean over seeds",
    "matched": "MSE at equal accuracy: each seed's front, read by straight lines between its points, never beyond them",
    "ci95": "of methods and pairs: 95 % Student's t interval over seeds; pairs on ln MSE, seeds compared one by one "
    "where both methods have the same, Welch's interval otherwise",
    "overlap": "accuracies that the fronts of all seeds of both methods reach",
    "seconds_per_epoch": "median over the epochs of a run, training alone, without validation; mean over runs",
}
_MATCHED_ACCURACIES = 5


def compare(
    points: Iterable[Mapping[str, Any]],
    *,
    accuracies: Sequence[float] = (),
    smallest_difference: float = 0.0,
    reference: Point | None = None,
    baseline: str | None = None,
) -> dict[str, Any]:
    """The ``methods`` and ``pairs`` of ``comparison.json`` from its points.

    Args:
        points: one per run, with at least ``method``, ``data``, ``seed``, ``accuracy`` and ``mse``.
        accuracies: at which to compare; the first decides a pair's verdict. Without any, the middle of the overlap
            decides, and five accuracies across it are listed.
        smallest_difference: of MSE.
        reference: of the hypervolume; otherwise the lowest accuracy and MSE among the points on the same data.
        baseline: method that every other one is compared with; without it, every two are.

    >>> points = [{"method": m, "data": "d", "seed": s, "accuracy": a, "mse": k * (1 - a) + s / 1000}
    ...           for m, k in (("one", 0.2), ("two", 0.1)) for s in (0, 1, 2) for a in (0.8, 0.9)]
    >>> compare(points, accuracies=[0.85])["pairs"][0]["outcome"]
    'better'
    """
    groups = _by_method(points)
    references = {data: reference or _nadir(groups, data) for data, _ in groups}
    several = len(references) > 1
    names = {key: f"{key[0]}: {key[1]}" if several else key[1] for key in groups}
    methods = {names[key]: _method(key, group, references[key[0]]) for key, group in groups.items()}
    pairs = [
        _pair(names[a], names[b], methods, groups[a], groups[b], accuracies, smallest_difference)
        for a, b in _who_meets_whom(groups, baseline)
    ]
    return {"methods": methods, "pairs": pairs}


def seed_curves(points: Iterable[Mapping[str, Any]]) -> dict[int, list[Point]]:
    """The (accuracy, MSE) points of each seed."""
    curves: dict[int, list[Point]] = {}
    for point in points:
        curves.setdefault(point["seed"], []).append((point["accuracy"], point["mse"]))
    return curves


_Key = tuple[str, str]
_Points = list[dict[str, Any]]


def _who_meets_whom(keys: Iterable[_Key], baseline: str | None) -> list[tuple[_Key, _Key]]:
    """Pairs on the same data; the baseline, if there is one, is always the second."""
    pairs = [(a, b) for a, b in combinations(keys, 2) if a[0] == b[0]]
    if baseline is None:
        return pairs
    return [(b, a) if a[1] == baseline else (a, b) for a, b in pairs if baseline in (a[1], b[1])]


def _by_method(points: Iterable[Mapping[str, Any]]) -> dict[_Key, _Points]:
    groups: dict[_Key, _Points] = {}
    for point in points:
        groups.setdefault((point["data"], point["method"]), []).append(dict(point))
    return groups


def _nadir(groups: Mapping[_Key, _Points], data: str) -> Point:
    mine = [point for key, group in groups.items() if key[0] == data for point in group]
    return min(point["accuracy"] for point in mine), min(point["mse"] for point in mine)


def _method(key: _Key, points: _Points, reference: Point) -> dict[str, Any]:
    curves = seed_curves(points)
    fronts = {seed: set(pareto_front(curve)) for seed, curve in curves.items()}
    for point in points:
        point["on_front"] = (point["accuracy"], point["mse"]) in fronts[point["seed"]]
    curve = _mean_curve(points)
    volumes = {seed: hypervolume(each, reference) for seed, each in curves.items()}
    costs = [cost for point in points if (cost := _seconds_per_epoch(point)) is not None]
    return {
        "data": key[0],
        "label": key[1],
        "points": points,
        "curve": curve,
        "front": [[point["accuracy"], point["mse"]] for point in curve if point["on_front"]],
        "hypervolume": {
            **_mean_and_interval(list(volumes.values())),
            "per_seed": {str(seed): volume for seed, volume in volumes.items()},
            "reference": list(reference),
        },
        "seconds_per_epoch": _mean_and_interval(costs) if costs else None,
    }


def _mean_curve(points: _Points) -> list[dict[str, Any]]:
    by_setting: dict[str, _Points] = {}
    for point in points:
        own = {name: value for name, value in (point.get("settings") or {}).items() if name != "train.seed"}
        setting = repr((point.get("lambda"), point.get("sigma"), sorted(own.items())))
        # Without any setting there is no telling which points are repetitions: each stands for itself.
        unknown = not own and point.get("lambda") is None and point.get("sigma") is None
        by_setting.setdefault(f"{len(by_setting)}" if unknown else setting, []).append(point)
    curve: list[dict[str, Any]] = []
    for group in by_setting.values():
        accuracies, errors = ([point[key] for point in group] for key in ("accuracy", "mse"))
        settings = {name: v for name, v in (group[0].get("settings") or {}).items() if name != "train.seed"}
        curve.append(
            {
                "accuracy": fmean(accuracies),
                "mse": fmean(errors),
                "accuracy_std": stdev(accuracies) if len(group) > 1 else None,
                "mse_std": stdev(errors) if len(group) > 1 else None,
                "seeds": len(group),
                "lambda": group[0].get("lambda"),
                "sigma": group[0].get("sigma"),
                "settings": settings,
                "receipt_ok": all(point.get("receipt_ok", False) for point in group),
            }
        )
    front = set(pareto_front((point["accuracy"], point["mse"]) for point in curve))
    for point in curve:
        point["on_front"] = (point["accuracy"], point["mse"]) in front
    return sorted(curve, key=lambda point: point["accuracy"])


def _mean_and_interval(values: Sequence[float]) -> dict[str, Any]:
    estimate = mean_interval(values)
    return {"mean": estimate.mean, "ci95": None if estimate.low is None else [estimate.low, estimate.high]}


def _seconds_per_epoch(point: Mapping[str, Any]) -> float | None:
    seconds: float | None = (point.get("cost") or {}).get("seconds_per_epoch")
    return seconds


def _pair(
    a: str,
    b: str,
    methods: Mapping[str, Any],
    points_a: _Points,
    points_b: _Points,
    accuracies: Sequence[float],
    smallest_difference: float,
) -> dict[str, Any]:
    first, second = seed_curves(points_a), seed_curves(points_b)
    shared = overlap(first, second)
    if shared is None and not accuracies:
        matched = []
        outcome, text = NOT_COMPARABLE, "not comparable: the curves do not overlap"
    else:
        wanted = list(accuracies) or _across(shared or (0.0, 0.0))
        matched = [compare_at(first, second, at, smallest_difference=smallest_difference) for at in wanted]
        decisive = matched[0 if accuracies else len(matched) // 2]
        outcome, text = decisive.outcome, decisive.text
        if shared is None:
            outcome, text = NOT_COMPARABLE, "not comparable: the curves do not overlap"
    costs = [methods[name]["seconds_per_epoch"] for name in (a, b)]
    return {
        "a": a,
        "b": b,
        "data": methods[a]["data"],
        "overlap": None if shared is None else list(shared),
        "outcome": outcome,
        "text": text,
        "matched": [each.to_plain() for each in matched],
        "cost_ratio": costs[0]["mean"] / costs[1]["mean"] if all(costs) and costs[1]["mean"] > 0 else None,
        "cautions": _cautions(first, second, points_a + points_b),
    }


def _across(shared: tuple[float, float]) -> list[float]:
    low, high = shared
    if low == high:
        return [low]
    steps = _MATCHED_ACCURACIES - 1
    return [low + (high - low) * step / steps for step in range(steps)] + [high]


def _cautions(first: SeedCurves, second: SeedCurves, points: _Points) -> list[str]:
    told = []
    unsure = sum(not point.get("receipt_ok", False) for point in points)
    if unsure:
        told.append(f"{unsure} of {len(points)} runs have no passing receipt: their MSE may be lower than measured")
    fewest = min(len(first), len(second))
    if fewest < ENOUGH_SEEDS:
        told.append(f"{fewest} seed{'s' * (fewest != 1)}: at least {ENOUGH_SEEDS} are needed for a claim")
    if set(first) != set(second):
        told.append("the methods have different seeds: the interval is Welch's and wider")
    return told
