"""TensorBoard event files: scalars, and histograms of gates, attention weights and per-class losses."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

_logger = logging.getLogger("attention_cem")


class TensorBoardLog:
    """Writes one point per epoch; does nothing where tensorboard is not installed, and says so once.

    Args:
        folder: where the event files go.
        first_epoch: events of this epoch and later, left by a run that was killed, are superseded.
    """

    def __init__(self, folder: Path, first_epoch: int) -> None:
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            _logger.warning("tensorboard is not installed: no event files (pip install 'attention-cem[cli]')")
            return
        purge = first_epoch if first_epoch > 1 else None
        self._writer = SummaryWriter(str(folder), purge_step=purge)

    def scalars(self, row: Mapping[str, Any]) -> None:
        """Every number of an epoch's object."""
        if self._writer is None:
            return
        for name, value in row.items():
            if name != "epoch" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, row["epoch"])

    def histograms(self, vectors: Mapping[str, Tensor], epoch: int) -> None:
        """Distributions of vector-valued diagnostics of the epoch's last step."""
        if self._writer is None:
            return
        active = vectors.get("class_active")
        for name, vector in vectors.items():
            if name in ("class_active", "class_label"):
                continue
            values = vector.detach().float()
            if active is not None and values.shape[:1] == active.shape:
                values = values[active]
            values = values[torch.isfinite(values)]
            if values.numel():
                self._writer.add_histogram(f"surrogate/{name}", values.cpu(), epoch)

    def gates(self, surrogate: nn.Module, epoch: int) -> None:
        """The learned scalars of the surrogate: gate openings, temperatures, thresholds."""
        if self._writer is None:
            return
        for name, parameter in surrogate.named_parameters():
            if parameter.numel() == 1:
                self._writer.add_scalar(f"estimator/{name}", float(parameter.detach()), epoch)

    def close(self) -> None:
        """Flush and close the files."""
        if self._writer is not None:
            self._writer.close()
