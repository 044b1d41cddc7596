"""Claims kept as files in the study's folder: any number of workers on one machine, or on a shared file system.

A try of a cell is one file, ``claims/<cell>.<try>.<status>``, and goes through its life by being renamed:

* ``running``: created with O_EXCL, which one process alone succeeds in. Inside, the process that holds it; its
  modification time is its heartbeat.
* the cell's result file ``results/<cell>.json``: the holder wrote the result into the file, then moved it there. The
  move is what hands in, so that a result is there whole or not at all.
* ``failed``, ``released`` (given back, e.g. on Ctrl-C), ``died`` (taken from a holder not heard of any more), and
  ``forgiven`` (a failure that does not count any more).

A rename has one winner: a holder that was believed dead finds its file gone, and can neither beat nor hand in. Numbers
of tries are never used again, so that nobody can mistake a new claim for the silent one it is about to take: a process
that looked at the folder before a try ended, and creates the same number again, finds the ended one beside it and
withdraws. For everybody else the ended one counts.

Clocks of different machines are not compared: an observer calls a holder dead when the modification time stood still
on the observer's own clock, or when the holder's process is gone from the observer's own machine.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attention_cem.studies.processes import process_is_gone, this_process
from attention_cem.studies.results import read_result, result_text
from attention_cem.studies.store import MAX_DEATHS, SILENT, CellState, Claim, ClaimLostError

_RUNNING = "running"
_ENDED = ("failed", "released", "died", "forgiven")
_MAX_CLAIM_BYTES = 1 << 16


@dataclass(frozen=True)
class _Cell:
    """What the folder says about a cell: whether it has a result, and the status of each of its tries."""

    done: bool
    tries: Mapping[int, str]

    @property
    def last(self) -> int:
        return max(self.tries, default=0)

    @property
    def failures(self) -> int:
        return list(self.tries.values()).count("failed")

    def running(self) -> bool:
        return not self.done and self.tries.get(self.last) == _RUNNING

    def given_up(self, max_failures: int) -> bool:
        return self.failures >= max_failures or list(self.tries.values()).count("died") >= MAX_DEATHS


class FolderStore:
    """See `ClaimStore`.

    Args:
        folder: of the study.
        max_failures: tries that may fail before a cell is given up.
        grace_seconds: a claim whose holder is silent for so long is given to somebody else.
    """

    def __init__(self, folder: Path, *, max_failures: int = 2, grace_seconds: float = 120.0) -> None:
        self._claims, self._results = folder / "claims", folder / "results"
        self._max_failures = max_failures
        self._grace = grace_seconds
        self._cells: list[str] = []
        self._seen: dict[Path, tuple[int, float]] = {}
        self._read: dict[str, dict[str, Any]] = {}
        self._given_back: Counter[str] = Counter()

    def prepare(self, cells: Sequence[str], *, retry_failed: bool = False) -> None:
        """Note the cells; forgive those that were given up if asked to."""
        self._cells = list(cells)
        if not retry_failed:
            return
        for cell, found in self._look().items():
            if not found.done and found.given_up(self._max_failures):
                for number, status in found.tries.items():
                    if status in ("failed", "died"):
                        self._move(cell, number, status, self._file(cell, number, "forgiven"))

    def claim(self) -> Claim | None:
        """End silent claims, then take the first cell nobody has; cells that failed or were given back come last."""
        self._claims.mkdir(parents=True, exist_ok=True)
        self._results.mkdir(exist_ok=True)
        for cell, found in self._look().items():
            if found.running() and self._is_silent(self._file(cell, found.last, _RUNNING)):
                self._move(cell, found.last, _RUNNING, self._file(cell, found.last, "died"))
        cells = self._look()
        for cell in sorted(cells, key=lambda each: (cells[each].failures, self._given_back[each])):
            found = cells[cell]
            if found.done or found.running() or found.given_up(self._max_failures):
                continue
            if self._take(cell, found.last + 1):
                return Claim(cell, found.last + 1, found.last + 1)
        return None

    def beat(self, claim: Claim) -> None:
        """Touch the claim's file."""
        try:
            os.utime(self._file(claim.cell, claim.key, _RUNNING))
        except FileNotFoundError:
            raise ClaimLostError(f"{claim.cell} was given to another worker") from None

    def finish(self, claim: Claim, result: Mapping[str, Any]) -> None:
        """Turn the claim's file into the cell's result file."""
        self._results.mkdir(parents=True, exist_ok=True)
        if not self._end(claim, result_text(result), self._results / f"{claim.cell}.json"):
            raise ClaimLostError(f"{claim.cell} was given to another worker")

    def fail(self, claim: Claim, error: str, *, counts: bool) -> None:
        """End the try, unless somebody else ended it first."""
        self._given_back[claim.cell] += not counts
        status = "failed" if counts else "released"
        self._end(claim, json.dumps({"error": error}).encode(), self._file(claim.cell, claim.key, status))

    def states(self) -> dict[str, CellState]:
        """Where every cell stands."""
        return {cell: self._state(cell, found) for cell, found in self._look().items()}

    def results(self) -> dict[str, dict[str, Any]]:
        """The results that are there, also those of earlier runs."""
        return {cell: self._result(cell) for cell, found in self._look().items() if found.done}

    def close(self) -> None:
        """Nothing is held open."""

    def _file(self, cell: str, number: int, status: str) -> Path:
        return self._claims / f"{cell}.{number}.{status}"

    def _look(self) -> dict[str, _Cell]:
        """One look at the folder; claims are read before results, so that a cell that finishes meanwhile is done."""
        tries: dict[str, dict[int, str]] = {cell: {} for cell in self._cells}
        for name in _names(self._claims):
            stem, _, status = name.rpartition(".")
            cell, _, number = stem.rpartition(".")
            if cell in tries and number.isdecimal() and status in (_RUNNING, *_ENDED):
                known = tries[cell].get(int(number))
                if known in (None, _RUNNING):  # an ended try stays ended, whoever claims its number again
                    tries[cell][int(number)] = status
        done = set(_names(self._results))
        return {cell: _Cell(f"{cell}.json" in done, tries[cell]) for cell in self._cells}

    def _state(self, cell: str, found: _Cell) -> CellState:
        if found.done:
            cost = self._result(cell).get("cost")
            seconds = cost.get("total_seconds") if isinstance(cost, dict) else None
            # The try that was finished became the result.
            return CellState("done", found.last + 1, seconds=seconds if isinstance(seconds, int | float) else None)
        if found.running():
            return CellState("running", found.last)
        status = found.tries.get(found.last, "forgiven")
        error = None if status == "forgiven" else SILENT if status == "died" else self._error(cell, found.last, status)
        given_up = found.given_up(self._max_failures)
        return CellState("failed" if given_up else "waiting", found.last, error)

    def _take(self, cell: str, number: int) -> bool:
        """Create the claim; give it up at once if that number had ended, or the cell was done, before we created it."""
        claim = self._file(cell, number, _RUNNING)
        try:
            descriptor = os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(this_process()).encode())
        ended = (self._results / f"{cell}.json", *(self._file(cell, number, status) for status in _ENDED))
        if any(path.exists() for path in ended):
            claim.unlink(missing_ok=True)
            return False
        return True

    def _end(self, claim: Claim, content: bytes, target: Path) -> bool:
        """Put the content into the claim's file and move it; False if the claim is another's by now."""
        try:
            # Without O_CREAT: a claim that was taken away must not come back.
            descriptor = os.open(self._file(claim.cell, claim.key, _RUNNING), os.O_WRONLY | os.O_TRUNC)
        except FileNotFoundError:
            return False
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        return self._move(claim.cell, claim.key, _RUNNING, target)

    def _move(self, cell: str, number: int, status: str, target: Path) -> bool:
        try:
            os.replace(self._file(cell, number, status), target)
        except FileNotFoundError:
            return False  # somebody else was first
        return True

    def _is_silent(self, claim: Path) -> bool:
        try:
            if process_is_gone(_content(claim)):
                return True
            beat, now = claim.stat().st_mtime_ns, time.monotonic()
        except FileNotFoundError:
            return False  # it has just ended
        before, since = self._seen.get(claim, (None, now))
        if before != beat:
            self._seen[claim] = (beat, now)
            return False
        return now - since > self._grace

    def _error(self, cell: str, number: int, status: str) -> str | None:
        try:
            error = _content(self._file(cell, number, status)).get("error")
        except FileNotFoundError:
            return None  # forgiven meanwhile
        return error if isinstance(error, str) else None

    def _result(self, cell: str) -> dict[str, Any]:
        if cell not in self._read:
            self._read[cell] = read_result(self._results / f"{cell}.json", cell)
        return self._read[cell]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _content(file: Path) -> dict[str, Any]:
    """What the file says; nothing where its writer was killed while writing."""
    with file.open("rb") as stream:
        text = stream.read(_MAX_CLAIM_BYTES)
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
