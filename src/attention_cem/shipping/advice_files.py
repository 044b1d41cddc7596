"""Advice as a table, a file and a picture."""

from __future__ import annotations

import json
from dataclasses import asdict
from io import BytesIO
from pathlib import Path

from attention_cem.shipping.advisor import Advice, CutReport
from attention_cem.training.files import write_atomically

_COLUMNS = ("cut", "z", "bytes", "parameters", "client MACs", "client ms", "accuracy", "attack MSE", "class radius")


def table(advice: Advice) -> str:
    """One line per cut, the recommended one marked, then the reason."""
    rows = [_COLUMNS, *(_row(report) for report in advice.reports)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = []
    for row, name in zip(rows, [None, *(report.cut for report in advice.reports)], strict=True):
        mark = "→ " if name == advice.recommended else "  "
        first, *rest = (
            cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in _numbered(row, widths)
        )
        lines.append(mark + "  ".join([first, *rest]).rstrip())
    notes = sorted({report.attack_note for report in advice.reports if report.attack_note})
    return "\n".join(
        [*lines, "", f"Recommended: {advice.recommended}. {advice.reason}", *(f"Note: {n}" for n in notes)]
    )


def write_advice(advice: Advice, folder: Path) -> None:
    """Write ``advice.json``, and ``advice.png`` where matplotlib is installed."""
    write_atomically(folder / "advice.json", (json.dumps(asdict(advice), indent=1) + "\n").encode())
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return
    write_atomically(folder / "advice.png", _drawn(advice))


def _drawn(advice: Advice) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    slowest = max(report.client_ms for report in advice.reports)
    for report in advice.reports:
        chosen = report.cut == advice.recommended
        size = 40 + 260 * report.client_ms / slowest
        axes.scatter(report.accuracy, report.attack_mse, s=size, color="tab:red" if chosen else "tab:blue", alpha=0.7)
        axes.annotate(report.cut, (report.accuracy, report.attack_mse), textcoords="offset points", xytext=(6, 6))
    axes.margins(0.2)  # room for the names
    axes.set_xlabel("accuracy after short fine-tuning")
    axes.set_ylabel("MSE of the best attack (higher is more private)")
    axes.set_title(f"Cuts; area: client time; recommended: {advice.recommended}")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def _row(report: CutReport) -> tuple[str, ...]:
    return (
        report.cut,
        "×".join(map(str, report.z_shape)),
        f"{report.z_bytes:,}",
        f"{report.client_parameters:,}",
        f"{report.client_macs:,}",
        f"{report.client_ms:.2f}",
        f"{report.accuracy:.1%}",
        f"{report.attack_mse:.4f}",
        f"{report.class_radius:.2f}",
    )


def _numbered(row: tuple[str, ...], widths: list[int]) -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(zip(row, widths, strict=True)))
