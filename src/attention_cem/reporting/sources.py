"""Run and study folders as plain data. Everything in them is treated as hostile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attention_cem.attacks.sealed_folder import SealBrokenError, read_json
from attention_cem.auditing.evidence import Evidence, evidence_of
from attention_cem.reporting.slot_shares import slot_shares
from attention_cem.training.checkpoint import CheckpointError, read_facts
from attention_cem.training.config_checks import ConfigError
from attention_cem.training.config_reading import flatten
from attention_cem.training.toml_reading import read_toml

_LARGEST_JSON = 64 * 2**20
MOST_ROWS = 5000
MOST_STUDY_RUNS = 6
"""Runs of a study that are shown in detail; the comparison shows all of them."""


class ReportError(ValueError):
    """A folder that cannot be reported on; the message says why."""


@dataclass(frozen=True, eq=False)
class RunView:
    """What a run folder holds; a part that is missing is None or empty.

    Args:
        name: of the folder.
        config: settings by dotted name.
        facts: ``run.json``.
        metrics: the objects of ``metrics.jsonl``.
        audit: ``audit.json``.
        evidence: pictures of the attack that stands in the headline. inverter_evidence: of the trained inverter, if
            the headline is another attack's.
        slot_shares: by class, the share of its samples that each slot holds.
        audit_is_of_other_weights: than those in ``checkpoints/best.safetensors``; False where either does not say.
    """

    name: str
    folder: Path
    config: dict[str, Any]
    facts: dict[str, Any] | None
    metrics: list[dict[str, Any]]
    audit: dict[str, Any] | None
    evidence: Evidence | None = None
    inverter_evidence: Evidence | None = None
    slot_shares: list[list[float]] = field(default_factory=list)
    audit_is_of_other_weights: bool = False


@dataclass(frozen=True, eq=False)
class StudyView:
    """A study's comparison and the runs of it that are shown in detail."""

    name: str
    comparison: dict[str, Any]
    runs: list[RunView]


def read_sources(paths: Sequence[Path]) -> tuple[list[RunView], list[StudyView]]:
    """Read every folder: one with ``comparison.json`` is a study, one with ``config.toml`` a run.

    Raises:
        ReportError: a folder is neither.
    """
    runs: list[RunView] = []
    studies: list[StudyView] = []
    for path in paths:
        if (path / "comparison.json").is_file():
            studies.append(_read_study(path))
        elif (path / "config.toml").is_file():
            runs.append(read_run(path))
        else:
            raise ReportError(
                f"{path} is neither a run (it has no config.toml) nor a study (it has no comparison.json); "
                "name the folder that `attention-cem train` or `attention-cem study run` wrote"
            )
    return runs, studies


def read_run(folder: Path) -> RunView:
    """Read one run folder."""
    audit_folder = next((at for at in (folder / "audit", folder) if (at / "audit.json").is_file()), None)
    record = None if audit_folder is None else _json(audit_folder / "audit.json")
    shown, inverter = (None, None) if audit_folder is None else _pictures(record or {}, audit_folder, folder)
    return RunView(
        name=folder.resolve().name,
        folder=folder,
        config=_config(folder / "config.toml"),
        facts=_json(folder / "run.json") if (folder / "run.json").is_file() else None,
        metrics=_rows(folder / "metrics.jsonl"),
        audit=record,
        evidence=shown,
        inverter_evidence=inverter,
        slot_shares=slot_shares(folder / "checkpoints"),
        audit_is_of_other_weights=_is_of_other_weights(record, folder / "checkpoints" / "best.safetensors"),
    )


def _pictures(audit: dict[str, Any], audit_folder: Path, folder: Path) -> tuple[Evidence | None, Evidence | None]:
    """Evidence of the headline's attack and, where that is another, of the last trained inverter."""
    shown = inverter = None
    headline = audit.get("headline")
    if not isinstance(headline, dict):
        return None, None
    worst, names = str(headline.get("attack")), [str(each.get("name")) for each in objects(audit.get("attacks"))]
    trained = next((name for name in reversed(names) if "inverter" in name), worst)
    for challenge in (audit_folder / "challenge", folder / "challenge"):
        shown = shown or evidence_of(audit, audit_folder, challenge, worst)
        if trained != worst:
            inverter = inverter or evidence_of(audit, audit_folder, challenge, trained)
    return shown, inverter


def _is_of_other_weights(audit: dict[str, Any] | None, best: Path) -> bool:
    about = (audit or {}).get("about")
    audited = about.get("checkpoint_sha256") if isinstance(about, dict) else None
    try:
        return isinstance(audited, str) and read_facts(best).get("content_sha256", audited) != audited
    except CheckpointError:  # no best weights, or damaged ones: there is nothing to compare with
        return False


def objects(value: Any) -> list[dict[str, Any]]:
    """The JSON objects in what should be a list of them."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def strings(value: Any, most: int = 20) -> list[str]:
    """The first texts in what should be a list of them."""
    return [each for each in value if isinstance(each, str)][:most] if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A finite number, or None for everything else.

    >>> number(1), number("1"), number(float("nan")), number(True)
    (1.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -1e300 < value < 1e300 else None


def _read_study(folder: Path) -> StudyView:
    comparison = _json(folder / "comparison.json")
    methods = comparison.get("methods")
    if not isinstance(methods, dict):
        raise ReportError(f"{folder / 'comparison.json'} has no object 'methods': it is no comparison of this program")
    runs: list[RunView] = []
    for path in _run_folders(folder, methods):
        if len(runs) == MOST_STUDY_RUNS:
            break
        if (path / "config.toml").is_file():
            runs.append(read_run(path))
    return StudyView(str(comparison.get("title") or comparison.get("study") or folder.name), comparison, runs)


def _run_folders(folder: Path, methods: Mapping[str, Any]) -> list[Path]:
    """Folders of efficient runs, one method after the other, so that each method is shown; none outside the study."""
    by_method = [
        [point.get("run") for point in sorted(objects(method.get("points")), key=lambda p: not p.get("on_front"))]
        for method in methods.values()
        if isinstance(method, dict)
    ]
    longest = max(map(len, by_method), default=0)
    names = [points[turn] for turn in range(longest) for points in by_method if turn < len(points)]
    root = folder.resolve()
    paths = [(root / name).resolve() for name in names if isinstance(name, str)]
    return [path for path in paths if path.is_relative_to(root)]


def _json(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, _LARGEST_JSON)
    except (SealBrokenError, OSError, ValueError) as error:
        raise ReportError(f"{path} cannot be read: {error}") from None


def _config(path: Path) -> dict[str, Any]:
    try:
        return dict(flatten(read_toml(path, "configuration")))
    except ConfigError as error:
        raise ReportError(str(error)) from None


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    if path.stat().st_size > _LARGEST_JSON:
        raise ReportError(f"{path} is larger than {_LARGEST_JSON} bytes")
    rows = []
    try:
        # What follows the last line break is of a process that was killed, or still writes.
        for line in path.read_text(encoding="utf-8").split("\n")[:-1][-MOST_ROWS:]:
            row = json.loads(line) if line else None
            if isinstance(row, dict) and number(row.get("epoch")) is not None:
                rows.append(row)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} has a line that is not JSON: {error}") from None
    return rows
