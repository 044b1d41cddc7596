"""Study files and their stored results: which results belong to the studies as they are now, and which do not."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from attention_cem.studies import Cell, Study, load_study, read_result
from attention_cem.training.config_reading import config_hash
from studies.publish_finished import Finished, plain
from studies.publish_settings import Settings, matches
from studies.publish_stamps import orphans, result_files, study_files

_REPEATED = ("accuracy", "mse")
_INVERTERS = ("inverter", "inverter_large")


@dataclass(frozen=True)
class Stale:
    """A stored result that is not used, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class StoredStudy:
    """A study as its file describes it now, and the results that belong to it."""

    study: Study
    file: str
    sha256: str
    finished: tuple[Finished, ...]
    stale: tuple[Stale, ...]

    @property
    def name(self) -> str:
        return self.study.name

    @property
    def missing(self) -> list[Cell]:
        done = {each.cell.id for each in self.finished}
        return [cell for cell in self.study.cells if cell.id not in done]

    @property
    def to_run(self) -> list[Cell]:
        """Cells without a result, or with one that lacks attacks which its budget has by now."""
        done = {each.cell.id for each in self.finished if not each.outdated}
        return [cell for cell in self.study.cells if cell.id not in done]

    @property
    def command(self) -> str:
        return f"python -m studies.reproduce --missing {self.name}"


@dataclass(frozen=True)
class Experiment:
    """Results that may be compared with each other: one study, or several that ``together`` names."""

    name: str
    studies: tuple[StoredStudy, ...]
    finished: tuple[Finished, ...]

    @property
    def title(self) -> str:
        return self.studies[0].study.title

    @property
    def accuracies(self) -> tuple[float, ...]:
        return self.studies[0].study.accuracies

    @property
    def smallest_difference(self) -> float:
        return self.studies[0].study.smallest_difference

    @property
    def reference(self) -> tuple[float, float] | None:
        return self.studies[0].study.reference

    @property
    def epochs(self) -> int:
        return max((each.cell.config.train.epochs for each in self.finished), default=0)

    def data_sets(self) -> list[str]:
        return list(dict.fromkeys(each.data for each in self.finished))

    def methods(self, data: str) -> list[str]:
        return list(dict.fromkeys(each.method for each in self.finished if each.data == data))

    def of(self, data: str, method: str) -> list[Finished]:
        return [each for each in self.finished if each.data == data and each.method == method]


def read_studies(root: Path, settings: Settings) -> list[StoredStudy]:
    """Every study that has results or is asked for, and its stored results.

    A cell without one takes that of the same configuration and budget from another study: it would be a repetition.

    Raises:
        ValueError: a study or a result cannot be read.
    """
    studies = [read_study(root, file) for file in study_files(root, settings)]
    stored = {(each.config_hash, each.budget): each for study in reversed(studies) for each in study.finished}
    return [_with_equal_runs(study, stored) for study in studies]


def repeats(studies: Iterable[StoredStudy]) -> str:
    """How far runs of one configuration under one budget lie from each other, in words; empty where there are none."""
    groups: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for each in (each for stored in studies for each in stored.finished):
        # of a borrowed result, study and cell are those it was made for
        run = f"{each.study} {each.result['cell']}"
        groups.setdefault((each.config_hash, each.budget), {})[run] = each.result
    several = [list(group.values()) for group in groups.values() if len(group) > 1]
    if not several:
        return ""
    apart = [[max(r[key] for r in group) - min(r[key] for r in group) for group in several] for key in _REPEATED]
    points, mse = (
        f"{scale * math.sqrt(fmean(x * x for x in each)):.{digits}f} in root mean square, at most "
        f"{scale * max(each):.{digits}f}"
        for each, scale, digits in zip(apart, (100, 1), (2, 4), strict=True)
    )
    return (
        f"{len(several)} configurations were run more than once, with the same seed: on a GPU such runs are not equal. "
        f"They lie apart by {points} points of accuracy, and by {mse} in MSE."
    )


def unexplained(root: Path, studies: Iterable[StoredStudy]) -> list[Stale]:
    """Results in folders that no study file explains."""
    names = orphans(root, [stored.name for stored in studies])
    reason = "there is no study file of this name"
    return [Stale(_relative(root, file), reason) for name in names for file in result_files(root, name)]


def experiments_of(settings: Settings, studies: Iterable[StoredStudy]) -> list[Experiment]:
    """Studies by themselves, or grouped as the settings say; equal cells count once."""
    groups: dict[str, list[StoredStudy]] = {}
    for stored in studies:
        group = next((name for name, patterns in settings.together.items() if matches(stored.name, patterns)), None)
        groups.setdefault(group or stored.name, []).append(stored)
    made = []
    for name, members in groups.items():
        unique: dict[tuple[str, str], Finished] = {}
        for each in (each for stored in members for each in stored.finished):
            unique.setdefault((each.method, each.config_hash), each)
        made.append(Experiment(name, tuple(members), tuple(unique.values())))
    return made


def read_study(root: Path, file: Path) -> StoredStudy:
    """A study and its stored results; raises ValueError where one cannot be read."""
    study = load_study(file)
    if study.name != file.stem:
        raise ValueError(f"{file} names its study {study.name!r}; results are found by the file's name, {file.stem!r}")
    finished: dict[str, Finished] = {}
    stale = []
    by_hash: dict[str, list[Cell]] = {}
    for cell in study.cells:
        by_hash.setdefault(config_hash(cell.config), []).append(cell)
    for path in result_files(root, study.name):
        result = _checked(path)
        cells = by_hash.get(str(result.get("config_hash")), [])
        same_id = [cell for cell in cells if cell.id == result["cell"]]
        reason = _why_not(study, same_id or cells, result, finished)
        if reason is not None:
            stale.append(Stale(_relative(root, path), reason))
        else:
            cell = (same_id or cells)[0]
            finished[cell.id] = Finished(plain(result.get("study") or study.name), cell, result)
    in_order = tuple(finished[cell.id] for cell in study.cells if cell.id in finished)
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    return StoredStudy(study, _relative(root, file), sha256, in_order, tuple(stale))


def _with_equal_runs(stored: StoredStudy, others: dict[tuple[str, str], Finished]) -> StoredStudy:
    found = {each.cell.id: each for each in stored.finished}
    for cell in stored.missing:
        equal = others.get((config_hash(cell.config), stored.study.budget))
        if equal is not None:
            found[cell.id] = replace(equal, cell=cell)
    return replace(stored, finished=tuple(found[cell.id] for cell in stored.study.cells if cell.id in found))


def _why_not(study: Study, cells: list[Cell], result: dict[str, Any], finished: dict[str, Finished]) -> str | None:
    if not cells:
        return "no cell of the study has this configuration any more"
    if result.get("budget") != study.budget:
        return f"attacked with budget {result.get('budget')!r}, the study now asks for {study.budget!r}"
    if len(cells) > 1:
        return f"{len(cells)} cells of the study have this configuration, and none this name"
    if cells[0].id in finished:
        return f"a second result of cell {cells[0].id}"
    return None


def _checked(path: Path) -> dict[str, Any]:
    result = read_result(path)
    accuracy, mse = result["accuracy"], result["mse"]
    if not 0 <= accuracy <= 1 or not (math.isfinite(mse) and mse >= 0):
        raise ValueError(f"{path}: expected an accuracy from 0 to 1 and a finite MSE, got {accuracy} and {mse}")
    for key in ("attacks", "cost", "waves", "floor_waves"):
        if not isinstance(result.get(key) or {}, dict):
            raise ValueError(f"{path}: {key} must be an object, got {type(result[key]).__name__}")
    broken = [name for name, entry in (result.get("attacks") or {}).items() if not isinstance(entry, dict)]
    for key in ("cost", "waves", "floor_waves"):
        broken += [name for name, value in (result.get(key) or {}).items() if not _is_figure(value)]
    if broken:
        raise ValueError(f"{path}: entry {plain(broken[0])!r} of attacks, cost or waves is of the wrong kind")
    return _with_worst_case(result)


def _with_worst_case(result: dict[str, Any]) -> dict[str, Any]:
    """The result with the lowest of its passing inverters as worst case.

    Audits once chose among these two by the fewer images that an optimisation rebuilt; the error by waves is not stored
    of another attack than they chose.
    """
    passing = {
        name: entry
        for name, entry in (result.get("attacks") or {}).items()
        if name in _INVERTERS and entry.get("status") == "passed" and _is_figure(entry.get("mse"))
    }
    lowest = min(passing, key=lambda name: float(passing[name]["mse"]), default=None)
    if result.get("receipt_ok") is not True or lowest is None or passing[lowest]["mse"] >= result["mse"]:
        return result
    figures = {key: passing[lowest].get(key) for key in ("mse", "ci95", "psnr", "ssim")}
    return {**result, **figures, "attack": lowest, "waves": None}


def _is_figure(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


def _relative(root: Path, path: Path) -> str:
    return path.resolve().relative_to(root.resolve()).as_posix()
