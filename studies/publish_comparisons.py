"""Every comparison that the results allow, study by study, and the one that speaks for each data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from attention_cem.studies.verdicts import ENOUGH_SEEDS
from studies.publish_finished import Finished
from studies.publish_matching import NotComparableError
from studies.publish_reading import Experiment, StoredStudy
from studies.publish_records import NamedSide, record_of
from studies.publish_settings import PLAIN, WITHOUT_CEM, Settings, Stack


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
                record = record_of(experiment, data, sides)
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


def _pairs(experiment: Experiment, settings: Settings, data: str) -> list[tuple[NamedSide, NamedSide]]:
    """The settings' comparisons on every base defence, then every method against the study's own baseline."""
    methods = experiment.methods(data)
    # By name: a defence alone does not say whether its name stands before or after those of methods.
    stacks = {stack.name: stack for stack in [PLAIN, *(settings.split_method(method)[0] for method in methods)]}
    pairs: dict[tuple[str, str], tuple[NamedSide, NamedSide]] = {}
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


def _side(experiment: Experiment, settings: Settings, data: str, stack: Stack, name: str) -> NamedSide:
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
