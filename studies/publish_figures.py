"""Accuracy–MSE plots as SVG with the same bytes for the same results."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention_cem.training.files import write_atomically
from studies.publish_reading import Experiment
from studies.publish_rows import Row, rows_of
from studies.publish_settings import WITHOUT_CEM, Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOLDER = "results/figures"
_COLOURS = {
    "sound": "#c1121f",
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


def figure_name(experiment: Experiment, data: str) -> str:
    """Where the plot of an experiment's results on one data set is, relative to the root."""
    name = experiment.name if experiment.name.endswith(data) else f"{experiment.name}-{data}"
    return f"{FOLDER}/{name}.svg"


def write_figure(root: Path, settings: Settings, experiment: Experiment, data: str) -> str:
    """Draw every method's curve: seeds as small marks, means with deviations joined along accuracy."""
    import matplotlib
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.hashsalt": "attention-cem",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    rows = rows_of(experiment, data)
    with matplotlib.rc_context(style):
        picture = Figure(figsize=(8.4, 4.8), layout="constrained")
        axes = picture.subplots()
        methods = list(dict.fromkeys(row.method for row in rows))
        for place, method in enumerate(methods):
            colour = _colour(settings, method, place)
            _draw(axes, [row for row in rows if row.method == method], method, colour, _MARKS[place % len(_MARKS)])
        axes.set_xlabel("accuracy on test images, %")
        axes.set_ylabel("MSE of the worst-case attack (higher is more private)")
        axes.set_title(f"{experiment.title} ({data})", fontsize=10)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        written = io.BytesIO()
        picture.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    file = root / figure_name(experiment, data)
    file.parent.mkdir(parents=True, exist_ok=True)
    # Trailing blanks in path data would be reported by every check of white space.
    text = "\n".join(line.rstrip() for line in written.getvalue().decode().splitlines())
    write_atomically(file, f"{text}\n".encode())
    return figure_name(experiment, data)


def _draw(axes: Axes, rows: Sequence[Row], method: str, colour: str, mark: str) -> None:
    ordered = sorted(rows, key=lambda row: row.accuracy.mean)
    prominent = method == "sound"
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
        label=f"{method} ({_seeds(rows)})",
        zorder=3 if prominent else 2,
    )
    members = [each for row in rows if row.seeds > 1 for each in row.members]
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


def _colour(settings: Settings, method: str, place: int) -> str:
    stack, core = settings.split_method(method)
    if core in _COLOURS and (not stack.name or core == "sound"):
        return _COLOURS[core]
    return _OTHERS[place % len(_OTHERS)]
