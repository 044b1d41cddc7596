"""The bar itself, drawn by rich."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from attention_cem.cli.progress import health, start_line
from attention_cem.training.observer import Observer, RunStart


@contextmanager
def progress_bar() -> Iterator[Observer]:
    """An observer that draws the run's progress on the terminal's error stream."""
    progress = Progress(
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    with progress:
        yield BarObserver(progress)


class BarObserver(Observer):
    """Moves the bar with every step and prints a line with every epoch."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._start: RunStart | None = None

    def started(self, start: RunStart) -> None:
        """Set the bar up; a continued run starts where it was left."""
        self._start = start
        self._progress.console.print(start_line(start), highlight=False)
        done = (start.first_epoch - 1) * start.steps_per_epoch + start.first_step
        self._task = self._progress.add_task(
            "train", total=start.epochs * start.steps_per_epoch, completed=done, epoch=start.first_epoch, rate=""
        )

    def step(self, epoch: int, batch: int) -> None:
        """One step on."""
        if self._task is None or self._start is None:
            return
        speed = self._progress.tasks[0].speed
        rate = f"{speed * self._start.batch_size:,.0f} images/s" if speed else ""
        self._progress.update(self._task, advance=1, epoch=epoch, rate=rate)

    def epoch_done(self, row: Mapping[str, Any]) -> None:
        """The epoch's figures above the bar."""
        self._progress.console.print(f"epoch {row['epoch']}  {health(row)}", highlight=False)

    def note(self, text: str) -> None:
        """What the run decided by itself, above the bar."""
        self._progress.console.print(f"note: {text}", markup=False, highlight=False)

    def message(self, text: str) -> None:
        """A warning above the bar."""
        self._progress.console.print(f"warning: {text}", style="yellow", markup=False, highlight=False)
