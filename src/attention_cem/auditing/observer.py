"""What an audit tells whoever watches it: a progress bar, a notebook, nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class AuditObserver:
    """Called by the audit; override what you want to see. Raising from any of these stops the audit."""

    def preparing(self, what: str) -> None:
        """Before something that takes a while and has no steps, e.g. writing the challenge."""

    def started(self, attacks: Sequence[str], device: str) -> None:
        """Before the first attack, with the names of all, in the order they run."""

    def progress(self, what: str, done: int, total: int, mse: float) -> None:
        """After a step of ``what``: an attack's name, a name with ``: calibration``, or ``bounds``.

        ``mse`` is the lowest validation MSE so far, NaN where there is none. ``total`` may change on the way.
        """

    def attack_done(self, row: Mapping[str, Any], kept: bool) -> None:
        """After each attack, with its row of the record; ``kept`` if an earlier, stopped audit had finished it.

        Stronger baselines may still change the row's verdict.
        """
