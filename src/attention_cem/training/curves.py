"""The curves of a run as one figure: accuracy, rob_loss or penalties, intra_mse, leakage_share."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from attention_cem.training.files import write_atomically

_logger = logging.getLogger("attention_cem")
_PANELS = (
    ("accuracy", "validation accuracy"),
    ("rob_loss", "rob_loss"),
    ("intra_mse", "within-class spread of z"),
    ("leakage_share", "leakage_share: x leaks at least"),
)
_PENALTY = "penalty."
# With this surrogate two panels bracket the leakage, each in units of its own.
_UPPER_END = {"slot_mixture": "rob_loss: z leaks at most, nats per value"}


def draw_curves(rows: Sequence[Mapping[str, Any]], path: Path, surrogate: str = "none") -> bool:
    """Draw the panels of ``metrics.jsonl``'s objects into a PNG; False where matplotlib is not installed.

    Args:
        rows: one object per epoch.
        path: of the picture.
        surrogate: name of the run's surrogate, which says what its ``rob_loss`` is.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        _logger.warning("matplotlib is not installed: no curves (pip install 'attention-cem[report]')")
        return False
    figure = Figure(figsize=(16, 3.4), layout="constrained")
    panels = _panels(rows, surrogate)
    for axes, (title, keys) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for key in keys:
            points = [(row["epoch"], row[key]) for row in rows if row.get(key) is not None]
            if points:
                named = key.removeprefix(_PENALTY) if key.startswith(_PENALTY) else None
                axes.plot(*zip(*points, strict=True), marker="." if len(points) < 40 else None, label=named)
        active = [row["epoch"] for row in rows if row.get("lambd")]
        if active:
            axes.axvline(active[0], color="0.6", linestyle=":", label="surrogate active")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)
        axes.set(title=title, xlabel="epoch")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_atomically(path, buffer.getvalue())
    return True


def _panels(rows: Sequence[Mapping[str, Any]], surrogate: str) -> list[tuple[str, list[str]]]:
    """Titles, and what is drawn beneath them; a run without a surrogate shows its penalties in that place."""
    panels = []
    penalties = sorted({key for row in rows for key in row if key.startswith(_PENALTY)})
    for key, title in _PANELS:
        if key != "rob_loss":
            panels.append((title, [key]))
        elif any(row.get(key) is not None for row in rows) or (surrogate != "none" and not penalties):
            panels.append((_UPPER_END.get(surrogate, title), [key]))
        elif penalties:
            panels.append(("penalties of the defences", penalties))
    return panels
