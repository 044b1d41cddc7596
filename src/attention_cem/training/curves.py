"""The curves of a run as one figure: accuracy, rob_loss, intra_mse, leakage_share."""

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
    for axes, (key, plain_title) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        title = _UPPER_END.get(surrogate, plain_title) if key == "rob_loss" else plain_title
        points = [(row["epoch"], row[key]) for row in rows if row.get(key) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker="." if len(points) < 40 else None)
        active = [row["epoch"] for row in rows if row.get("lambd")]
        if active:
            axes.axvline(active[0], color="0.6", linestyle=":", label="surrogate active")
            axes.legend(frameon=False)
        axes.set(title=title, xlabel="epoch")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_atomically(path, buffer.getvalue())
    return True
