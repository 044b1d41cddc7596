"""The report's figures as SVG and PNG files, for slides."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention_cem.reporting.pictures import MOST_PICTURES
from attention_cem.reporting.run_section import accuracy_of
from attention_cem.reporting.sources import ReportError, RunView, StudyView, number, objects
from attention_cem.training.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "WenQuanYi Micro Hei",
    "Source Han Sans SC",
    "Microsoft YaHei",
    "PingFang SC",
)
_CURVES = ("accuracy", "loss", "rob_loss", "intra_mse", "leakage_share")


def write_figures(runs: Sequence[RunView], studies: Sequence[StudyView], folder: Path) -> list[Path]:
    """Write each figure as ``NAME.svg`` and ``NAME.png``; the paths, in the order they were written.

    Raises:
        ReportError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise ReportError("figures need matplotlib: pip install 'attention-cem[report]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"font.family": font_families()}):  # ticks are written when a figure is saved
        return [path for name, figure in _drawn(runs, studies) for path in _save(figure, folder, name)]


def font_families() -> list[str]:
    """Fonts to take glyphs from, in this order: a run may have a Chinese name, which DejaVu Sans cannot write."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return ["DejaVu Sans", *[name for name in _CHINESE_FONTS if name in installed][:1]]


def _drawn(runs: Sequence[RunView], studies: Sequence[StudyView]) -> list[tuple[str, Figure]]:
    """The figures, each with the name of its files."""
    drawn: list[tuple[str, Figure]] = []
    of_studies = [run for study in studies for run in study.runs]
    trade_off = _trade_off([run for run in runs if run not in of_studies], studies)
    if trade_off is not None:
        drawn.append(("trade-off", trade_off))
    for index, run in enumerate(runs):
        name = f"{index + 1}-{file_name(run.name)}"
        if run.metrics:
            drawn.append((f"{name}-curves", _curves(run)))
        if run.evidence is not None:
            drawn.append((f"{name}-reconstructions", _pictures(run)))
        if run.slot_shares:
            drawn.append((f"{name}-slots", _heat_map(run)))
    return drawn


def file_name(text: str) -> str:
    """A run's name as a part of a file's name.

    >>> file_name("../a b/ü")
    'a-b'
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:60] or "run"


def _new(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _trade_off(runs: Sequence[RunView], studies: Sequence[StudyView]) -> Figure | None:
    groups: list[tuple[str, list[tuple[float, float]], str]] = []
    for run in runs:
        worst = (run.audit or {}).get("headline")
        point = _point(accuracy_of(run), worst.get("mse") if isinstance(worst, dict) else None)
        groups.append((run.name, [point] if point else [], "o"))
    for study in studies:
        for name, method in study.comparison["methods"].items():
            found = objects(method.get("curve")) if isinstance(method, dict) else []
            line = [_point(each.get("accuracy"), each.get("mse")) for each in found]
            groups.append((str(name), [point for point in line if point is not None], "o-"))
    groups = [group for group in groups if group[1]]
    if not groups:
        return None
    figure = _new(6.4, 4.2)
    axes = figure.subplots()
    for name, points, style in groups:
        axes.plot([100 * x for x, _ in points], [y for _, y in points], style, label=_plain(name))
    axes.set(xlabel="accuracy, %", ylabel="worst-case MSE (higher: more private)")
    axes.legend(frameon=False)
    return figure


def _point(accuracy: Any, mse: Any) -> tuple[float, float] | None:
    x, y = number(accuracy), number(mse)
    return None if x is None or y is None else (x, y)


def _curves(run: RunView) -> Figure:
    figure = _new(15, 3.2)
    for axes, key in zip(figure.subplots(1, len(_CURVES)), _CURVES, strict=True):
        points = [(row["epoch"], row[key]) for row in run.metrics if number(row.get(key)) is not None]
        if points:
            axes.plot(*zip(*points, strict=True))
        axes.set(title=key, xlabel="epoch")
    return figure


def _pictures(run: RunView) -> Figure:
    evidence = run.evidence
    if evidence is None:
        raise ValueError("a run without pictures has no figure of them")
    shown = evidence.worst_first()[:MOST_PICTURES]
    figure = _new(1.1 * len(shown), 2.5)
    grid = figure.subplots(2, len(shown), squeeze=False)
    for column, index in enumerate(shown):
        for row, images in enumerate((evidence.originals, evidence.reconstructions)):
            pixels = images[index].permute(1, 2, 0).numpy()
            grid[row, column].imshow(
                pixels.squeeze(2) if pixels.shape[2] == 1 else pixels, cmap="gray", vmin=0, vmax=255
            )
            grid[row, column].set_axis_off()
        grid[1, column].set_title(f"{evidence.mse[index]:.3g}", fontsize=8)
    return figure


def _heat_map(run: RunView) -> Figure:
    figure = _new(4.2, 6)
    axes = figure.subplots()
    drawn = axes.imshow(run.slot_shares, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xlabel="slot", ylabel="class", title="share of each class held by each slot")
    figure.colorbar(drawn)
    return figure


def _plain(text: str) -> str:
    # matplotlib reads $…$ as mathematics and a leading underscore as "no label".
    return text[:60].replace("$", "\\$").lstrip("_")


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    paths = []
    for kind in ("svg", "png"):
        buffer = io.BytesIO()
        # The svg backend would write the date: equal runs give equal files.
        figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
        path = folder / f"{name}.{kind}"
        write_atomically(path, buffer.getvalue())
        paths.append(path)
    return paths
