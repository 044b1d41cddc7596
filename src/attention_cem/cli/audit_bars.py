"""The bars of an audit, drawn by rich: one over all attacks, one for the attack under way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from attention_cem.cli.audit_progress import AuditWatcher, best_words, done_words


@contextmanager
def audit_bars(console: Console | None = None) -> Iterator[AuditWatcher]:
    """A watcher that draws on the terminal's error stream."""
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[best]}", markup=False),
        console=console or Console(stderr=True),
    )
    with progress:
        yield BarWatcher(progress)


class BarWatcher(AuditWatcher):
    """Moves the bars with every step and prints a line with every finished attack."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._all: TaskID | None = None
        self._one: TaskID | None = None
        self._now: tuple[str, int] = ("", 0)
        self._done = 0

    def preparing(self, what: str) -> None:
        """See the base class."""
        self._progress.console.print(what, highlight=False, markup=False)

    def started(self, attacks: Sequence[str], device: str) -> None:
        """See the base class."""
        super().started(attacks, device)
        self._all = self._progress.add_task(f"attacks on {device}", total=len(attacks), best="")

    def progress(self, what: str, done: int, total: int, mse: float) -> None:
        """See the base class."""
        if self._one is None:
            self._one = self._progress.add_task(what, total=total, best="")
        # Tuning, the search itself, an inverter to start from: each stage counts anew, and so does its time left.
        if (what, total) != self._now or done < self._done:
            self._progress.reset(self._one, total=total, description=what)
            self._now = (what, total)
        self._done = done
        self._progress.update(self._one, completed=done, best=best_words(mse).strip())

    def attack_done(self, row: Mapping[str, Any], kept: bool) -> None:
        """See the base class."""
        self._progress.console.print(done_words(row, kept), highlight=False, markup=False)
        if self._all is not None:
            self._progress.advance(self._all)
