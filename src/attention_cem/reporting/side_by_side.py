"""All runs and studies beside each other: the same images through every run, and accuracy against privacy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from attention_cem.auditing.evidence import Evidence
from attention_cem.reporting.charts import COLOURS, Line, Mark, legend, xy_chart
from attention_cem.reporting.pictures import data_address
from attention_cem.reporting.run_section import accuracy_of
from attention_cem.reporting.sources import RunView, StudyView, number, objects
from attention_cem.reporting.texts import clip, decibel, figure, percent
from attention_cem.studies.plan import AXES

_STRIP_PICTURES = 8
_SAME_FLOOR = 1.05  # two draws of test images from one data set differ by less


def comparison_strip(runs: Sequence[RunView]) -> dict[str, Any] | None:
    """The same test images through every run that has pictures of them: originals above, what came back below."""
    first = next((run.evidence for run in runs if run.evidence is not None), None)
    if first is None:
        return None
    columns = first.worst_first()[:_STRIP_PICTURES]
    rows = []
    left_out = [clip(run.name, 80) for run in runs if run.evidence and not _same_images(first, run.evidence)]
    for run in runs:
        for evidence in (run.evidence, run.inverter_evidence):
            if evidence is not None and _same_images(first, evidence):
                rebuilt = [data_address(evidence.reconstructions[index]) for index in columns]
                errors = [figure(evidence.mse[index], 3) for index in columns]
                name = f"{run.name}: {evidence.attack}"
                rows.append({"name": clip(name, 80), "pictures": list(zip(rebuilt, errors, strict=True))})
    originals = [data_address(first.originals[index]) for index in columns]
    return {"originals": originals, "rows": rows, "left_out": ", ".join(left_out)}


def _same_images(a: Evidence, b: Evidence) -> bool:
    return a.originals.shape == b.originals.shape and bool((a.originals == b.originals).all())


def trade_off(runs: Sequence[RunView], studies: Sequence[StudyView]) -> tuple[Markup, Markup, bool] | None:
    """Accuracy against the worst-case MSE of single runs and whole studies, its legend, and whether images differ."""
    marks: list[Mark] = []
    lines: list[Line] = []
    names: list[tuple[str, str]] = []
    shown = [*runs, *(run for study in studies for run in study.runs)]
    floors = {floor for run in shown if (floor := number((run.audit or {}).get("floor_mse"))) is not None}
    for index, run in enumerate(runs):
        worst, accuracy = (run.audit or {}).get("headline"), accuracy_of(run)
        if isinstance(worst, dict) and accuracy is not None and number(worst.get("mse")) is not None:
            colour = COLOURS[index % len(COLOURS)]
            marks.append(point_mark({**worst, "accuracy": accuracy}, run.name, colour))
            names.append((clip(run.name, 60), colour))
    for study in studies:
        for name, method in study.comparison["methods"].items():
            if not isinstance(method, dict):
                continue
            colour = COLOURS[len(names) % len(COLOURS)]
            names.append((clip(name, 60), colour))
            points = [
                (point["accuracy"], point["mse"])
                for point in objects(method.get("curve"))
                if number(point.get("accuracy")) is not None and number(point.get("mse")) is not None
            ]
            lines.append(Line(points, colour))
            marks += [
                point_mark(point, f"{name} {_where(point)}", colour)
                for point in objects(method.get("points"))
                if number(point.get("accuracy")) is not None and number(point.get("mse")) is not None
            ]
    if not marks:
        return None
    floor = next(iter(floors)) if len(floors) == 1 else None
    others = bool(floors) and max(floors) > _SAME_FLOOR * min(floors)
    chart = xy_chart(marks, lines, x_key="accuracy", y_key="mse", x_percent=True, floor=floor, height=360)
    return chart, legend(names), others


def _where(point: dict[str, Any]) -> str:
    """Where on its method's curve a point lies."""
    settings = point.get("settings")
    weight = settings.get(AXES["leakage"]) if isinstance(settings, dict) else None
    told = f"λ {figure(point.get('lambda'))} σ {figure(point.get('sigma'))}"
    return told if number(weight) is None else f"{told} weight {figure(weight)}"


def point_mark(point: dict[str, Any], name: str, colour: str) -> Mark:
    """A run as a mark: filled where its receipts passed."""
    interval = point.get("ci95")
    low, high = interval if isinstance(interval, list) and len(interval) == 2 else (None, None)
    tip = (
        f"{clip(name, 80)} · {percent(point['accuracy'])} · MSE {figure(point['mse'])} "
        f"[{figure(low, 3)}, {figure(high, 3)}] · {decibel(point.get('psnr'))} dB · {clip(point.get('attack'), 40)}"
    )
    passed = point.get("status") == "passed"
    return Mark(point["accuracy"], point["mse"], tip, colour, number(low), number(high), passed)
