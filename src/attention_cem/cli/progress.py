"""A progress bar with rates and the surrogate's health; plain lines where rich is not installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attention_cem.training.observer import Observer, RunStart


@contextmanager
def watch(*, quiet: bool) -> Iterator[Observer]:
    """An observer for the terminal: a bar where there is one, lines elsewhere, silence when asked or not rank 0."""
    if quiet or os.environ.get("RANK", "0") != "0":
        yield Observer()
        return
    if sys.stderr.isatty():
        try:
            from attention_cem.cli.progress_bar import progress_bar
        except ImportError:
            yield LineObserver()
            return
        with progress_bar() as observer:
            yield observer
        return
    yield LineObserver()


class LineObserver(Observer):
    """One line per epoch."""

    def __init__(self) -> None:
        self._epochs = 0

    def started(self, start: RunStart) -> None:
        """What is about to be trained."""
        self._epochs = start.epochs
        print(start_line(start), file=sys.stderr)

    def epoch_done(self, row: Mapping[str, Any]) -> None:
        """The epoch's figures."""
        print(f"epoch {row['epoch']}/{self._epochs}  {health(row)}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """What the run decided by itself."""
        print(f"note: {text}", file=sys.stderr, flush=True)

    def message(self, text: str) -> None:
        """A warning."""
        print(f"warning: {text}", file=sys.stderr, flush=True)


def start_line(start: RunStart) -> str:
    """Device, sizes, and where the run continues."""
    line = (
        f"{start.folder}: {start.train_images} training and {start.validation_images} validation images, "
        f"{start.steps_per_epoch} steps of {start.batch_size} an epoch, on {start.device}"
    )
    if start.first_epoch > 1 or start.first_step:
        line += f"; continues in epoch {start.first_epoch} after step {start.first_step}"
    return line


def health(row: Mapping[str, Any]) -> str:
    """One epoch in a line: accuracy, speed, and whether the surrogate works.

    >>> health({"accuracy": 0.5, "loss": 1.2, "images_per_s": 999.0, "surrogate_mode": "off"})
    'accuracy 50.00%  loss 1.200  999 images/s'
    """
    parts = [
        f"accuracy {row['accuracy']:.2%}",
        f"loss {row['loss']:.3f}",
        f"{row['images_per_s']:,.0f} images/s",
    ]
    if row["surrogate_mode"] != "off" and row.get("rob_loss") is not None:
        parts.append(f"rob_loss {row['rob_loss']:.4f}")
        watched = "" if row["lambd"] else ", the surrogate is only watched"
        parts.append(f"λ {row['lambd']:g}{watched}")
        if row.get("active_classes") is not None:
            parts.append(f"{row['active_classes']:.1f} classes active")
        if row["shutoff_share"]:
            parts.append(f"shut off {row['shutoff_share']:.0%}")
    return "  ".join(parts)
