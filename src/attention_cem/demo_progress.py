"""What the demonstration shows while it works: one bar a stage on a terminal, one line a stage elsewhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attention_cem.auditing.observer import AuditObserver
from attention_cem.training.observer import Observer, RunStart

Show = Callable[[float, float, str], None]
"""Called as ``show(done, total, detail)``."""


class Stages:
    """Stages of the demonstration; ``stage`` decides how they look."""

    @contextmanager
    def stage(self, title: str) -> Iterator[Show]:
        """A line when the stage begins and one when it is done, for logs."""
        print(f"{title} ...", file=sys.stderr, flush=True)
        last = ""

        def show(done: float, total: float, detail: str) -> None:
            nonlocal last
            last = detail

        yield show
        print(f"{title}: done{', ' + last if last else ''}", file=sys.stderr, flush=True)

    @contextmanager
    def training(self, name: str, epochs: int) -> Iterator[Observer]:
        """An observer of a training run."""
        with self.stage(f"train the {name} model") as show:
            yield _TrainingShown(show, epochs)

    @contextmanager
    def attack(self, name: str) -> Iterator[AuditObserver]:
        """An observer of an audit."""
        with self.stage(f"attack the {name} model") as show:
            yield _AttackShown(show)


class BarStages(Stages):
    """Stages as bars drawn by rich.

    Args:
        progress: a started ``rich.progress.Progress`` whose tasks have the field ``detail``.
    """

    def __init__(self, progress: Any) -> None:
        self._progress = progress

    @contextmanager
    def stage(self, title: str) -> Iterator[Show]:
        """A bar that fills."""
        task = self._progress.add_task(title, total=None, detail="")

        def show(done: float, total: float, detail: str) -> None:
            self._progress.update(task, completed=done, total=total, detail=detail)

        yield show
        self._progress.update(task, completed=1, total=1)


class _TrainingShown(Observer):
    def __init__(self, show: Show, epochs: int) -> None:
        self._show, self._epochs, self._steps = show, epochs, 1
        self._detail = ""

    def started(self, start: RunStart) -> None:
        """Learn how many steps an epoch has."""
        self._steps = start.steps_per_epoch

    def step(self, epoch: int, batch: int) -> None:
        """One step on."""
        self._show((epoch - 1) * self._steps + batch, self._epochs * self._steps, self._detail)

    def epoch_done(self, row: Mapping[str, Any]) -> None:
        """The validation accuracy so far."""
        self._detail = f"validation accuracy {row['accuracy']:.0%}"
        self._show(row["epoch"] * self._steps, self._epochs * self._steps, self._detail)

    def note(self, text: str) -> None:
        """What the run decided by itself."""
        print(f"note: {text}", file=sys.stderr, flush=True)

    def message(self, text: str) -> None:
        """A warning."""
        print(f"warning: {text}", file=sys.stderr, flush=True)


class _AttackShown(AuditObserver):
    def __init__(self, show: Show) -> None:
        self._show = show

    def progress(self, what: str, done: int, total: int, mse: float) -> None:
        """Which attack, how far, how good."""
        self._show(done, total, what if math.isnan(mse) else f"{what}, validation MSE {mse:.4f}")


@contextmanager
def shown_stages() -> Iterator[Stages]:
    """Bars where the error stream is a terminal and rich is installed, lines elsewhere."""
    if not sys.stderr.isatty():
        yield Stages()
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield Stages()
        return
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield BarStages(progress)
