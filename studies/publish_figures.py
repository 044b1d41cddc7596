"""Accuracy–MSE plots as SVG with the same bytes for the same results."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention_cem.training.files import write_atomically
from studies.publish_reading import Experiment
from studies.publish_rows import Row, row_of, rows_of
from studies.publish_settings import WITHOUT_CEM, Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = "results/figures"
_COLOURS = {
    "sound": "#c1121f",
    "sound_coarse": "#e5737b",
    WITHOUT_CEM: "#6c757d",
    "kmeans_published": "#1d4e89",
    "kmeans_constant": "#3a86c8",
    "kmeans_floor": "#7fb3d5",
    "seed_slot": "#7b2cbf",
    "seed_gated": "#b388eb",
    "one_gaussian": "#e07a1f",
    "slots": "#f2b134",
    "logdet": "#2a9d8f",
    "gated_adversary": "#8d6e63",
    "leakage": "#588157",
}
_OTHERS = ("#264653", "#a23b72", "#b08900", "#4f772d", "#5e548e", "#9c6644", "#006d77", "#ae2012")
_MARKS = "osD^vP<>Xp*h"
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "attention-cem",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def figure_name(experiment: Experiment, data: str) -> str:
    """Where the plot of an experiment's results on one data set is, relative to the root."""
    name = experiment.name if experiment.name.endswith(data) else f"{experiment.name}-{data}"
    return f"{FOLDER}/{name}.svg"


def write_figure(root: Path, settings: Settings, experiment: Experiment, data: str) -> str:
    """Draw every method's curve, one panel per base defence: means with deviations, seeds as small marks.

    Runs that never learned are named in the legend and not drawn.
    """
    import matplotlib

    panels: dict[str, dict[str, list[Row]]] = {}
    for row in rows_of(experiment, data):
        panels.setdefault(settings.split_method(row.method)[0].name, {}).setdefault(row.method, []).append(row)
    written = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        picture = _picture(settings, panels)
        letters = int(10 * picture.get_figwidth())
        picture.suptitle(textwrap.fill(f"{experiment.title} ({data})", letters), fontsize=10)
        picture.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    file = root / figure_name(experiment, data)
    file.parent.mkdir(parents=True, exist_ok=True)
    # Trailing blanks in path data would be reported by every check of white space.
    text = "\n".join(line.rstrip() for line in written.getvalue().decode().splitlines())
    write_atomically(file, f"{text}\n".encode())
    return figure_name(experiment, data)


def _picture(settings: Settings, panels: Mapping[str, Mapping[str, Sequence[Row]]]) -> Figure:
    from matplotlib.figure import Figure

    alone = len(panels) == 1
    columns = min(len(panels), 3)
    lines = math.ceil(len(panels) / columns)
    picture = Figure(figsize=(8.4, 4.8) if alone else (4.6 * columns, 3.9 * lines), layout="constrained")
    grid = list(picture.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
    for axes, (defence, methods) in zip(grid, panels.items(), strict=False):
        for place, (method, rows) in enumerate(methods.items()):
            _draw(axes, rows, method, _colour(settings, method, place), _MARKS[place % len(_MARKS)])
        beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if alone else {}
        axes.legend(fontsize=8 if alone else 7, frameon=False, **beside)
        axes.set_title(defence or ("" if alone else _without(panels, methods)), fontsize=9)
        axes.grid(alpha=0.25)
        axes.tick_params(labelbottom=True)  # the panel below may be empty
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    picture.supxlabel("accuracy on test images, %", fontsize=10)
    picture.supylabel("MSE of the worst-case attack (higher is more private)", fontsize=10)
    return picture


def _without(panels: Mapping[str, Mapping[str, Sequence[Row]]], methods: Mapping[str, Sequence[Row]]) -> str:
    """Of methods on no base defence: what tells them from the other panels."""
    kinds, all_kinds = _edges(methods), set().union(*map(_edges, panels.values()))
    return f"{kinds.pop()} edges" if len(kinds) == 1 < len(all_kinds) else "no base defence"


def _edges(methods: Mapping[str, Sequence[Row]]) -> set[str]:
    return {each.cell.config.data.edges for rows in methods.values() for row in rows for each in row.members}


def _draw(axes: Axes, rows: Sequence[Row], method: str, colour: str, mark: str) -> None:
    # A run at chance stretches both axes until nothing else can be told apart: it is named, not drawn.
    learned = [[each for each in row.members if not each.never_learned] for row in rows]
    ordered = sorted((row_of(group) for group in learned if group), key=lambda row: row.accuracy.mean)
    prominent = colour == _COLOURS["sound"]
    axes.errorbar(
        [100 * row.accuracy.mean for row in ordered],
        [row.mse.mean for row in ordered],
        xerr=[100 * (row.accuracy.std or 0.0) for row in ordered],
        yerr=[row.mse.std or 0.0 for row in ordered],
        color=colour,
        marker=mark,
        markersize=6 if prominent else 4.5,
        linewidth=2.2 if prominent else 1.2,
        elinewidth=0.8,
        label=f"{method} ({_seeds(rows)}{_left_out(rows)})",
        zorder=3 if prominent else 2,
    )
    members = [each for row in ordered if row.seeds > 1 for each in row.members]
    axes.scatter(
        [100 * each.result["accuracy"] for each in members],
        [each.result["mse"] for each in members],
        s=7,
        color=colour,
        alpha=0.35,
        linewidths=0,
        zorder=1,
    )


def _seeds(rows: Sequence[Row]) -> str:
    fewest, most = min(row.seeds for row in rows), max(row.seeds for row in rows)
    return f"{fewest} to {most} seeds" if fewest < most else f"{most} seed{'s' * (most > 1)}"


def _left_out(rows: Sequence[Row]) -> str:
    never = sum(row.never_learned for row in rows)
    return f"; {never} run{'s' * (never > 1)} at chance, not shown" if never else ""


def _colour(settings: Settings, method: str, place: int) -> str:
    return _COLOURS.get(settings.split_method(method)[1], _OTHERS[place % len(_OTHERS)])
