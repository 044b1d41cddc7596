"""What the page says about a study: methods, verdicts, definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from attention_cem.reporting.sources import RunView, StudyView, objects, strings
from attention_cem.reporting.texts import bilingual, clip, figure, say, sentence
from attention_cem.reporting.words import DEFINITIONS_ZH, STUDY_DEFINITIONS_ZH

_OUTCOMES = ("better", "worse", "no difference", "no difference shown", "undecided", "not comparable")


@dataclass(frozen=True)
class StudySection:
    """Everything the template needs for one study."""

    name: str
    cells: Markup
    failed: list[tuple[str, str]]
    methods: list[tuple[str, str, str, str]]
    pairs: list[dict[str, Any]]
    shown_runs: int


def study_section(study: StudyView) -> StudySection:
    """Gather one study's part of the page."""
    content = study.comparison
    cells = content.get("cells") if isinstance(content.get("cells"), dict) else {}
    failed = objects((cells or {}).get("failed"))
    return StudySection(
        name=clip(study.name, 120),
        cells=say(
            "cells",
            done=figure((cells or {}).get("done")),
            planned=figure((cells or {}).get("planned")),
            failed=len(failed),
        ),
        failed=[(clip(cell.get("method"), 80), clip(cell.get("error"), 200)) for cell in failed[:20]],
        methods=[_method(name, method) for name, method in content["methods"].items() if isinstance(method, dict)],
        pairs=[_pair(pair) for pair in objects(content.get("pairs"))],
        shown_runs=len(study.runs),
    )


def _method(name: str, method: dict[str, Any]) -> tuple[str, str, str, str]:
    return (
        clip(name, 80),
        str(len(objects(method.get("points")))),
        _with_interval(method.get("hypervolume")),
        _with_interval(method.get("seconds_per_epoch")),
    )


def _with_interval(value: Any) -> str:
    if not isinstance(value, dict):
        return "–"
    interval = value.get("ci95")
    if not isinstance(interval, list) or len(interval) != 2:
        return figure(value.get("mean"))
    return f"{figure(value.get('mean'))} [{figure(interval[0], 3)}, {figure(interval[1], 3)}]"


def _pair(pair: dict[str, Any]) -> dict[str, Any]:
    outcome = str(pair.get("outcome"))
    return {
        "names": f"{clip(pair.get('a'), 60)} / {clip(pair.get('b'), 60)}",
        "outcome": say(f"out_{outcome}") if outcome in _OUTCOMES else clip(outcome, 40),
        "good": outcome == "better",
        "text": sentence(pair.get("text", "")),
        "matched": [sentence(each.get("text", "")) for each in objects(pair.get("matched"))][:20],
        "cautions": [sentence(text) for text in strings(pair.get("cautions"))],
    }


def definitions_of(runs: Sequence[RunView], studies: Sequence[StudyView]) -> list[tuple[str, Markup]]:
    """Every definition that stands in the files, once."""
    found: dict[str, Markup] = {}
    sources = [(run.audit or {}, DEFINITIONS_ZH, "") for run in runs]
    sources += [(study.comparison, STUDY_DEFINITIONS_ZH, " (study)") for study in studies]
    for source, chinese, mark in sources:
        definitions = source.get("definitions")
        for key, text in definitions.items() if isinstance(definitions, dict) else ():
            name, told = clip(key, 60), clip(text, 1000)
            meaning = bilingual(told, chinese.get(key, told))
            if found.setdefault(name, meaning) != meaning:
                found[name + mark] = meaning
    return list(found.items())
