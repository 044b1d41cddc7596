"""One look for all figures, and one way to keep them: a picture, and beside it the numbers it shows.

Labels are symbols, numbers and names from the code, so that one picture serves both languages. Colours are mid-tones
on white, legible on a light and on a dark page; shapes and line styles differ as well as colours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attention_cem.studies.results import program_commit
from attention_cem.training.files import write_atomically
from attention_cem.versions import program_versions

ASSETS = Path(__file__).parents[1] / "assets" / "understand"
FORMAT = "attention-cem/handbook-figure"

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#3b76b0", "#d9822b", "#3f9158", "#c2453d", "#7b5aa6", "#6b7280"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P")
PHONE_WIDTH = 5.2  # inches: at a phone's 360 px the 11 pt labels are about 10 px high


def new_figure(rows: int = 1, columns: int = 1, *, height: float = 3.4, width: float = PHONE_WIDTH) -> Figure:
    """An empty figure of rows × columns axes, ``figure.axes`` in reading order."""
    style: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 11,
        "axes.titlesize": 11.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": GREY,
        "axes.grid": True,
        "grid.color": "#d5d9df",
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "lines.linewidth": 2.0,
        "svg.fonttype": "path",
        "svg.hashsalt": "attention-cem",
        "figure.facecolor": "white",
    }
    matplotlib.rcParams.update(style)
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.subplots(rows, columns)
    return figure


def plain(axes: Axes) -> None:
    """An axes for pictures: no ticks, no grid, no frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def keep(name: str, figure: Figure, numbers: Mapping[str, Any], *, seed: int, folder: Path = ASSETS) -> list[Path]:
    """Write ``name.svg`` and ``name.json``; equal numbers give equal bytes.

    Args:
        name: of both files.
        figure: what to draw.
        numbers: what it shows, as plain data.
        seed: the only source of randomness in it.
        folder: where they go.
    """
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"{name}.svg"
    figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": "python -m docs.figures"})
    return [picture, keep_numbers(name, numbers, seed=seed, folder=folder)]


def keep_numbers(name: str, numbers: Mapping[str, Any], *, seed: int, folder: Path = ASSETS) -> Path:
    """Write ``name.json``: the numbers with their seed, the program's commit and the versions that computed them."""
    record = {
        "format": FORMAT,
        "name": name,
        "command": f"python -m docs.figures {name}",
        "seed": seed,
        "commit": program_commit(),
        "versions": program_versions(),
        "numbers": rounded(numbers),
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    write_atomically(file, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
    return file


def rounded(value: Any, digits: int = 6) -> Any:
    """Plain data with tensors as lists and every float to so many significant digits.

    >>> rounded({"loss": torch.tensor([1 / 3])})
    {'loss': [0.333333]}
    """
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): rounded(each, digits) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each, digits) for each in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
