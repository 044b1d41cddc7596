"""Claims of the simple case, without Optuna: one process, one machine, results as files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from attention_cem.studies.results import read_result
from attention_cem.studies.store import CellState, Claim

try:
    import fcntl
except ImportError:  # not a Unix system: two processes cannot be told apart there, and are refused below
    fcntl = None  # type: ignore[assignment]


class SerialStore:
    """See `ClaimStore`. Finished cells are those whose result file is there; failed tries are counted in memory.

    Only one process may work on a study this way; a second one is refused.

    Args:
        folder: of the study.
        max_failures: tries that may fail before a cell is given up.
    """

    def __init__(self, folder: Path, *, max_failures: int = 2) -> None:
        self._folder = folder
        self._max_failures = max_failures
        self._cells: list[str] = []
        self._failures: dict[str, list[str]] = {}
        self._results: dict[str, dict[str, Any]] = {}
        self._lock = _locked(folder)

    def prepare(self, cells: Sequence[str], *, retry_failed: bool = False) -> None:
        """Find the results of earlier runs."""
        self._cells = list(cells)
        for cell in cells:
            file = self._folder / "results" / f"{cell}.json"
            if file.is_file():
                self._results[cell] = read_result(file)

    def claim(self) -> Claim | None:
        """The first cell without a result; cells that failed come last."""
        for tries in range(self._max_failures):
            for number, cell in enumerate(self._cells):
                if cell not in self._results and len(self._failures.get(cell, ())) == tries:
                    return Claim(cell, tries + 1, number)
        return None

    def beat(self, claim: Claim) -> None:
        """Nobody else is listening."""

    def finish(self, claim: Claim, result: Mapping[str, Any]) -> None:
        """Keep the result; the worker writes its file."""
        self._results[claim.cell] = dict(result)

    def fail(self, claim: Claim, error: str, *, counts: bool) -> None:
        """Count the failure."""
        if counts:
            self._failures.setdefault(claim.cell, []).append(error)

    def states(self) -> dict[str, CellState]:
        """Where every cell stands."""
        return {cell: self._state(cell) for cell in self._cells}

    def results(self) -> dict[str, dict[str, Any]]:
        """The results, also of earlier runs."""
        return dict(self._results)

    def close(self) -> None:
        """Let others in."""
        self._lock.close()

    def _state(self, cell: str) -> CellState:
        errors = self._failures.get(cell, [])
        if cell in self._results:
            seconds = self._results[cell].get("cost", {}).get("total_seconds")
            return CellState("done", len(errors) + 1, seconds=seconds)
        failed = len(errors) >= self._max_failures
        return CellState("failed" if failed else "waiting", len(errors), errors[-1] if errors else None)


def _locked(folder: Path) -> IO[str]:
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None or (folder / "journal.log").exists():
        raise ValueError(
            f"the study in {folder} is shared by several workers; that needs Optuna: pip install 'attention-cem[sweep]'"
        )
    lock = (folder / "serial.lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ValueError(
            f"another process (not process {os.getpid()}) works on the study in {folder}; "
            "several at once need Optuna: pip install 'attention-cem[sweep]'"
        ) from None
    return lock
