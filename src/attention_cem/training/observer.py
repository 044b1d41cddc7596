"""What a run tells whoever watches it: a progress bar, a notebook, nobody."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_logger = logging.getLogger("attention_cem")


@dataclass(frozen=True)
class RunStart:
    """Facts known before the first step."""

    folder: str
    epochs: int
    steps_per_epoch: int
    batch_size: int
    first_epoch: int
    first_step: int
    device: str
    train_images: int
    validation_images: int


class Observer:
    """Called by the trainer on the main process; override what you want to see."""

    def started(self, start: RunStart) -> None:
        """Before the first step."""

    def step(self, epoch: int, batch: int) -> None:
        """After every step was queued; ``epoch`` counted from 1, ``batch`` from 1. Must be quick."""

    def epoch_done(self, row: Mapping[str, Any]) -> None:
        """After every epoch, with its object of ``metrics.jsonl``."""

    def note(self, text: str) -> None:
        """What the run decided by itself; goes to the log by default."""
        _logger.info(text)

    def message(self, text: str) -> None:
        """A warning; goes to the log by default."""
        _logger.warning(text)
