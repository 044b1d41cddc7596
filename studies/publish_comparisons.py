"""Every comparison that the results allow, study by study, and the one that speaks for each data set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import fmean
from typing import Any

from attention_cem.studies import compare
from attention_cem.studies.curves import mixed_front
from attention_cem.studies.verdicts import ENOUGH_SEEDS
from studies.publish_cautions import Members, cautions, read_from, runs_of
from studies.publish_matching import AtAccuracy, NotComparableError, Side, match
from studies.publish_reading import Experiment, Finished, StoredStudy
from studies.publish_rows import strength_of, weight_of
from studies.publish_settings import PLAIN, WITHOUT_CEM, Settings, Stack

ENVELOPE = (
    "{name}: at each accuracy and seed the best that runs of {methods}, or mixtures of two, have. The choice is made "
    "on the test figures, because stored results have no MSE on validation images: an envelope that favours {name}"
)
_Side = tuple[str, Members]
"""Name of a side, and its results by method."""


@dataclass(frozen=True)
class Missing:
    """A comparison that could not be made, and why."""

    study: str
    data: str
    key: str
    reason: str
    a_exists: bool
    b_exists: bool


@dataclass(frozen=True)
class Compared:
    """What one experiment says: records by data set and ``a_vs_b``, and what is missing."""

    experiment: str
    records: Mapping[str, Mapping[str, dict[str, Any]]]
    missing: tuple[Missing, ...]


def compare_experiment(experiment: Experiment, settings: Settings) -> Compared:
    """Every comparison of the settings, on every data set and base defence the experiment has."""
    records: dict[str, dict[str, dict[str, Any]]] = {}
    missing: list[Missing] = []
    for data in experiment.data_sets():
        for sides in _pairs(experiment, settings, data):
            (name_a, of_a), (name_b, of_b) = sides
            key = f"{name_a}_vs_{name_b}"
            absent = [name for name, members in sides if not members]
            if absent:
                reason = f"no results of {' and '.join(absent)} on {data}"
                missing.append(Missing(experiment.name, data, key, reason, bool(of_a), bool(of_b)))
                continue
            try:
                record = _record(experiment, data, sides)
            except NotComparableError as error:
                missing.append(Missing(experiment.name, data, key, str(error), True, True))
                continue
            records.setdefault(data, {})[key] = record
    return Compared(experiment.name, records, tuple(missing))


def headline(compared: Sequence[Compared], settings: Settings) -> dict[str, dict[str, dict[str, Any]]]:
    """For each data set and comparison the experiment that speaks for it, in the order of preference.

    Where a target names another study, which alone decides it, the lower of the two figures speaks: no page leads with
    the one that looks better.
    """
    deciding = {target["comparison"]: target["study"] for target in settings.targets if "study" in target}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in preferred(compared, settings):
        for data, records in each.records.items():
            for key, record in records.items():
                found.setdefault((data, key), []).append(record)
    chosen: dict[str, dict[str, dict[str, Any]]] = {}
    for (data, key), candidates in found.items():
        enough = [record for record in candidates if record["seeds"] >= ENOUGH_SEEDS]
        may_speak = enough[:1] + [one for one in enough[1:] if one["study"] == deciding.get(f"{data}.{key}")]
        chosen.setdefault(data, {})[key] = (
            min(may_speak, key=lambda one: float(one["mse_gain"]))
            if may_speak
            else max(candidates, key=lambda one: int(one["seeds"]))
        )
    return chosen


def missing_of(
    compared: Sequence[Compared],
    settings: Settings,
    made: Mapping[str, Mapping[str, Any]],
    studies: Iterable[StoredStudy],
) -> list[dict[str, str]]:
    """Comparisons the settings ask for that no preferred experiment gives, each with the reason.

    Not those of methods that no study runs on the data: nothing is missing there.
    """
    planned = _planned(settings, studies)
    told: dict[tuple[str, str], str] = {}
    for each in (missing for one in preferred(compared, settings) for missing in one.missing):
        wanted = (each.data, each.key) in planned or (each.a_exists and each.b_exists)
        if each.data in settings.data and wanted and each.key not in made.get(each.data, {}):
            told.setdefault((each.data, each.key), f"{each.study}: {each.reason}")
    for data, key in planned:
        if key not in made.get(data, {}):
            told.setdefault((data, key), "no study with results on this data has these methods")
    return [{"comparison": f"{data}.{key}", "reason": reason} for (data, key), reason in told.items()]


def _planned(settings: Settings, studies: Iterable[StoredStudy]) -> list[tuple[str, str]]:
    """Data and key of the settings' comparisons that a target asks for, or whose methods some study runs on it."""
    methods: dict[str, set[str]] = {}
    for stored in studies:
        for cell in stored.study.cells:
            methods.setdefault(cell.config.data.name, set()).add(cell.method)

    def runs(data: str, name: str) -> bool:
        begins = settings.envelopes.get(name)
        of = methods.get(data, set())
        return name in of if begins is None else any(method.startswith(begins) for method in of)

    asked = {target.get("comparison") for target in settings.targets}
    return [
        (data, key)
        for data in settings.data
        for key, names in ((f"{a}_vs_{b}", (a, b)) for a, b in settings.comparisons)
        if f"{data}.{key}" in asked or all(runs(data, name) for name in names)
    ]


def preferred(compared: Sequence[Compared], settings: Settings) -> list[Compared]:
    """Experiments that may speak for a data set, the first preferred first."""
    ranked = []
    for each in compared:
        ranks = [rank for rank, pattern in enumerate(settings.prefer) if fnmatchcase(each.experiment, pattern)]
        if ranks:
            ranked.append((ranks[0], each))
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]


def _pairs(experiment: Experiment, settings: Settings, data: str) -> list[tuple[_Side, _Side]]:
    """The settings' comparisons on every base defence, then every method against the study's own baseline."""
    methods = experiment.methods(data)
    # By name: a defence alone does not say whether its name stands before or after those of methods.
    stacks = {stack.name: stack for stack in [PLAIN, *(settings.split_method(method)[0] for method in methods)]}
    pairs: dict[tuple[str, str], tuple[_Side, _Side]] = {}
    for stack in stacks.values():
        for names in settings.comparisons:
            a, b = (_side(experiment, settings, data, stack, name) for name in names)
            pairs.setdefault((a[0], b[0]), (a, b))
    baselines = dict.fromkeys(stored.study.baseline for stored in experiment.studies)
    for baseline in (name for name in baselines if name in methods):
        for method in (name for name in methods if name != baseline):
            sides = [(name, {name: _curve(experiment, settings, data, name)}) for name in (method, str(baseline))]
            pairs.setdefault((method, str(baseline)), (sides[0], sides[1]))
    return list(pairs.values())


def _side(experiment: Experiment, settings: Settings, data: str, stack: Stack, name: str) -> _Side:
    """The side's full name and its results by method: one method, or those of an envelope.

    A comparison may name a method with its base defence, ``adversary_sound`` against ``sound``: whole against whole,
    and its curve ends where the other's does.
    """
    begins = settings.envelopes.get(name)
    members: dict[str, list[Finished]] = {}
    full = f"{stack.prefix}{name}{stack.suffix}"
    for method in experiment.methods(data):
        on, core = settings.split_method(method)
        if method == name and stack is PLAIN:
            members[method] = _curve(experiment, settings, data, method, of=PLAIN)
        elif on.name == stack.name and (core.startswith(begins) if begins is not None else core == name):
            members[method] = _curve(experiment, settings, data, method)
            full = full if begins is not None else method
    return full, members


def _curve(
    experiment: Experiment, settings: Settings, data: str, method: str, *, of: Stack | None = None
) -> list[Finished]:
    """A method's runs, and the end of every curve: those of the same base defence and noise without a surrogate."""
    own = experiment.of(data, method)
    defence, core = settings.defence_and_core(method)
    defence = defence if of is None else of.name
    if core == WITHOUT_CEM:
        return own
    without = [name for name in experiment.methods(data) if settings.defence_and_core(name) == (defence, WITHOUT_CEM)]
    noise = {each.cell.sigma for each in own}
    ends = [each for name in without for each in experiment.of(data, name) if each.cell.sigma in noise]
    return own + ends


def _record(experiment: Experiment, data: str, sides: Sequence[_Side]) -> dict[str, Any]:
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
        "undefended_share": {"a": _undefended(read_a, of_a), "b": _undefended(read_b, of_b)},
    }


def _hashes(group: Iterable[Finished]) -> list[str]:
    return [each.config_hash[:12] for each in group]


def _envelope_note(name: str, members: Mapping[str, Any]) -> str:
    return ENVELOPE.format(name=name, methods=", ".join(members))
