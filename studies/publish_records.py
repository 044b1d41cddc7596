"""One comparison as plain data: what was read at which accuracy, from which runs, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, geometric_mean
from typing import Any

from attention_cem.studies import compare
from attention_cem.studies.curves import mixed_front
from studies.publish_cautions import Members, cautions, read_from, runs_of
from studies.publish_finished import Finished
from studies.publish_matching import AtAccuracy, Side, match
from studies.publish_reading import Experiment
from studies.publish_rows import strength_of, weight_of

ENVELOPE = (
    "{name}: at each accuracy and seed the best that runs of {methods}, or mixtures of two, have. The choice is made "
    "on the test figures, because stored results have no MSE on validation images: an envelope that favours {name}"
)
SLOWEST = "0-3"
"""The band of waves that a client blind to the 4 × 4 slowest does not see."""
NamedSide = tuple[str, Members]
"""Name of a side, and its results by method."""


def record_of(experiment: Experiment, data: str, sides: Sequence[NamedSide]) -> dict[str, Any]:
    """The comparison of two sides.

    Raises:
        NotComparableError: they meet at no accuracy.
    """
    (name_a, of_a), (name_b, of_b) = sides
    found = match(
        _curves(of_a),
        _curves(of_b),
        accuracies=experiment.accuracies,
        smallest_difference=experiment.smallest_difference,
    )
    used = [[each for each in runs_of(members) if each.seed in found.seeds] for _, members in sides]
    runs = list({(each.study, each.result["cell"]): each for group in used for each in group}.values())
    nadir = [each for each in experiment.finished if each.data == data and not each.never_learned]
    reference = experiment.reference or (
        min(each.result["accuracy"] for each in nadir),
        min(each.result["mse"] for each in nadir),
    )
    own = [
        each.point(name)
        for (name, members), group in zip(sides, used, strict=True)
        for each in group
        if each.method in members
    ]
    methods = compare(own, reference=reference)["methods"]
    volumes = [methods[name]["hypervolume"]["mean"] for name, _ in sides]
    decisive = _short(found.decisive, of_a, of_b, found.at_least)
    return {
        "a": name_a,
        "b": name_b,
        "data": data,
        "study": experiment.name,
        "epochs": experiment.epochs,
        **decisive,
        "accuracy_from": found.chosen,
        "at_least": found.at_least,
        "seeds": len(found.seeds),
        "seed_list": list(found.seeds),
        "left_out_seeds": {str(seed): reason for seed, reason in found.left_out.items()},
        "text": found.decisive.matched.text,
        "mse_a": list(found.decisive.matched.mse_first),
        "mse_b": list(found.decisive.matched.mse_second),
        "own_until": _own_until(of_a, found.seeds),
        "read_from": {
            "a": _strengths(read_from(found.decisive, of_a, or_above=found.at_least), of_a),
            "b": _strengths(read_from(found.decisive, of_b, or_above=False), of_b),
        },
        **_variants(found.decisive, of_a, of_b, found.at_least),
        "methods": {"a": list(of_a), "b": list(of_b)},
        "overlap": list(found.overlap),
        "across": [_short(each, of_a, of_b, found.at_least) for each in found.across],
        "hypervolume": {"a": volumes[0], "b": volumes[1], "reference": list(reference)},
        "budgets": sorted({each.budget for each in runs}),
        "receipts": {"passed": sum(each.passed for each in runs), "runs": len(runs)},
        "augmented": sum(each.augmented for each in runs),
        "never_learned": sum(each.never_learned for each in runs),
        "config_hashes": {"a": _hashes(used[0]), "b": _hashes(used[1])},
        "commits": sorted({each.commit for each in runs}),
        "notes": [_envelope_note(name, members) for name, members in sides if len(members) > 1],
        "cautions": cautions(found, sides, list(decisive["undefended_share"].values()), runs),
    }


def _curves(members: Members) -> Side:
    """By seed, the runs of all methods and the ends of their curves: one curve, of the seeds with a run of its own."""
    runs = runs_of(members)
    return {
        seed: [(each.result["accuracy"], each.result["mse"]) for each in runs if each.seed == seed]
        for seed in sorted({each.seed for each in runs if each.method in members})
    }


def _ssim(read: Iterable[Sequence[tuple[Finished, float]]]) -> float | None:
    """SSIM of the runs that an MSE was read from, in the same shares; mean over seeds.

    None where a run has none: images smaller than its window.
    """
    by_seed = []
    for shares in read:
        figures = [each.result.get("ssim") for each, _ in shares]
        known = [float(ssim) for ssim in figures if ssim is not None and math.isfinite(ssim)]
        if len(known) < len(figures):
            return None
        by_seed.append(sum(share * ssim for ssim, (_, share) in zip(known, shares, strict=True)))
    return fmean(by_seed)


def _finer_gain(
    read_a: Sequence[Sequence[tuple[Finished, float]]], read_b: Sequence[Sequence[tuple[Finished, float]]]
) -> float | None:
    """The MSE ratio without the slowest waves, of the runs that an MSE was read from; geometric mean over seeds.

    None where a run does not say in which waves its error is, or images have no finer ones.
    """
    ratios = []
    for sides in zip(read_a, read_b, strict=True):
        finer = [0.0, 0.0]
        for side, shares in enumerate(sides):
            for each, share in shares:
                bands = dict(each.result.get("waves") or {})
                if bands.pop(SLOWEST, None) is None or not bands:
                    return None
                finer[side] += share * sum(bands.values())
        if min(finer) <= 0:
            return None
        ratios.append(finer[0] / finer[1])
    return geometric_mean(ratios)


def _undefended(read: Iterable[Sequence[tuple[Finished, float]]], members: Members) -> float:
    """The share that runs without a surrogate have which are not the side's own; mean over seeds."""
    return fmean(sum(share for each, share in shares if each.method not in members) for shares in read)


def _strengths(read: Iterable[Sequence[tuple[Finished, float]]], members: Members) -> list[str]:
    """How strong the side's own runs are that were read: weight, λ, or the noise of those that have neither."""
    found = {
        (each.cell.lambd, weight_of(each), each.cell.sigma or 0.0): each
        for shares in read
        for each, share in shares
        if share > 0 and each.method in members
    }
    return [
        strength_of(each) if weight else f"λ {lambd:g}" if lambd else f"σ {sigma:g}"
        for (lambd, weight, sigma), each in sorted(found.items(), key=lambda item: item[0])
    ]


def _own_until(members: Members, seeds: Iterable[int]) -> float | None:
    """The accuracy up to which a side has own runs: of each seed the most accurate on its curve; mean over seeds.

    The mean, as the accuracies in the tables of settings are. None where a seed's curve has no own run.
    """
    highest = []
    for seed in seeds:
        of = [each for each in runs_of(members) if each.seed == seed]
        corners = set(mixed_front((each.result["accuracy"], each.result["mse"]) for each in of))
        own = [(each.result["accuracy"], each.result["mse"]) for each in of if each.method in members]
        highest.append(max((point[0] for point in own if point in corners), default=None))
    known = [each for each in highest if each is not None]
    return fmean(known) if known and len(known) == len(highest) else None


def _variants(at: AtAccuracy, of_a: Members, of_b: Members, at_least: bool) -> dict[str, Any]:
    """Of an envelope, by seed, the methods that were read."""
    told = {}
    for key, members, or_above in (("best_a", of_a, at_least), ("best_b", of_b, False)):
        if len(members) > 1:
            read = zip(at.seeds, read_from(at, members, or_above=or_above), strict=True)
            told[key] = {
                str(seed): " + ".join(dict.fromkeys(each.method for each, share in shares if share > 0))
                for seed, shares in read
            }
    return told


def _short(at: AtAccuracy, of_a: Members, of_b: Members, at_least: bool) -> dict[str, Any]:
    """A comparison at one accuracy."""
    read_a = read_from(at, of_a, or_above=at_least)
    read_b = read_from(at, of_b, or_above=False)
    return {
        "accuracy": at.matched.accuracy,
        "mse_gain": at.gain,
        "ci95": None if at.ci95 is None else list(at.ci95),
        "outcome": at.matched.outcome,
        "ssim_a": _ssim(read_a),
        "ssim_b": _ssim(read_b),
        "finer_gain": _finer_gain(read_a, read_b),
        "undefended_share": {"a": _undefended(read_a, of_a), "b": _undefended(read_b, of_b)},
    }


def _hashes(group: Iterable[Finished]) -> list[str]:
    return [each.config_hash[:12] for each in group]


def _envelope_note(name: str, members: Mapping[str, Any]) -> str:
    return ENVELOPE.format(name=name, methods=", ".join(members))
