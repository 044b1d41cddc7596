"""Who runs which cell: what a store of claims must be able to do.

A store hands every cell to one worker at a time. Whoever holds a claim beats; a claim that is no longer beaten is
given to somebody else, and its former holder is told so at its next beat and must stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Status = Literal["waiting", "running", "done", "failed"]

MAX_DEATHS = 5
"""Tries that end with the worker's death, by whatever cause, before a cell is given up."""
SILENT = "the worker was not heard of any more"
"""The error of such a try."""


class ClaimLostError(RuntimeError):
    """The claim was given to another worker because this one had not been heard of; its work must not count."""


class DeviceLostError(RuntimeError):
    """The GPU gave an error after which nothing more can be computed in this process; a new one can go on."""


@dataclass(frozen=True)
class Claim:
    """The right to run one cell.

    Args:
        cell: id of the cell.
        attempt: which try this is, from 1.
        key: what the store knows it by.
    """

    cell: str
    attempt: int
    key: int


@dataclass(frozen=True)
class CellState:
    """Where a cell stands.

    Args:
        status: ``waiting`` (also between two tries), ``running``, ``done`` or ``failed`` (all tries used up).
        attempts: tries begun.
        error: of the last failed try, in one line.
        seconds: how long the finished try took.
    """

    status: Status
    attempts: int = 0
    error: str | None = None
    seconds: float | None = None


class ClaimStore(Protocol):
    """Claims on the cells of one study."""

    def prepare(self, cells: Sequence[str], *, retry_failed: bool = False) -> None:
        """Make sure that every cell can be claimed; may be called by any number of processes at once."""

    def claim(self) -> Claim | None:
        """Take a cell that nobody has; None if there is none at the moment."""

    def beat(self, claim: Claim) -> None:
        """Say that the claim's holder lives; raises `ClaimLostError` if the claim is another's by now."""

    def finish(self, claim: Claim, result: Mapping[str, Any]) -> None:
        """Hand in the result, once; raises `ClaimLostError` if the claim is another's by now."""

    def fail(self, claim: Claim, error: str, *, counts: bool) -> None:
        """Give the claim back; ``counts`` is False where the cell is not to blame, e.g. on Ctrl-C.

        Such a cell is the last this store claims again, so that one that cannot be run now keeps none of the others.
        """

    def states(self) -> dict[str, CellState]:
        """Where every cell stands."""

    def results(self) -> dict[str, dict[str, Any]]:
        """The results handed in, by cell."""

    def close(self) -> None:
        """Let go of files and connections."""
