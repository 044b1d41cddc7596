"""Where studies stand, in numbers and in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attention_cem.studies.store import CellState
from attention_cem.studies.worker import Queue


@dataclass(frozen=True)
class StudyProgress:
    """Where a study stands, over all machines.

    Args:
        done: finished cells.
        failed: cells given up.
        running: cells in work.
        waiting: all others.
        seconds_left: estimated from the time the finished cells took; None before the first.

    >>> StudyProgress(3, 1, 2, 6, 1500.0).line("slots")
    'slots: 3 of 12 done, 1 failed, 2 running, about 25 min left'
    """

    done: int
    failed: int
    running: int
    waiting: int
    seconds_left: float | None

    def line(self, name: str) -> str:
        """The same in words."""
        total = self.done + self.failed + self.running + self.waiting
        parts = [f"{self.done} of {total} done"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.running} running"] if self.running else []
        if self.seconds_left:
            parts.append(f"about {_duration(self.seconds_left)} left")
        return f"{name}: {', '.join(parts)}"


def progress_of(states: Mapping[str, CellState]) -> StudyProgress:
    """Count, and estimate the time left.

    >>> progress_of({"a": CellState("done", seconds=60.0), "b": CellState("running"), "c": CellState("waiting")})
    StudyProgress(done=1, failed=0, running=1, waiting=1, seconds_left=120.0)
    """
    statuses = [state.status for state in states.values()]
    took = [state.seconds for state in states.values() if state.seconds is not None]
    left = len(statuses) - statuses.count("done") - statuses.count("failed")
    each = sum(took) / len(took) if took else None
    return StudyProgress(
        done=statuses.count("done"),
        failed=statuses.count("failed"),
        running=statuses.count("running"),
        waiting=statuses.count("waiting"),
        seconds_left=None if each is None else each * left / max(1, statuses.count("running")),
    )


def progress_line(queue: Queue) -> str:
    """How many cells of all studies of the queue are done, running, failed, and the time left."""
    states = {f"{study.name}/{cell}": state for study, claims in queue for cell, state in claims.states().items()}
    return progress_of(states).line(queue[0][0].name if len(queue) == 1 else f"{len(queue)} studies")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
