"""An audit on the terminal: bars where rich is installed, lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attention_cem.auditing.observer import AuditObserver

_QUIET_SECONDS = 20.0


class AuditWatcher(AuditObserver):
    """Remembers whether attacks have begun; shows nothing."""

    def __init__(self) -> None:
        self.began = False

    def started(self, attacks: Sequence[str], device: str) -> None:
        """See the base class."""
        self.began = True


@contextmanager
def watch_audit(*, quiet: bool) -> Iterator[AuditWatcher]:
    """Bars on a terminal with rich, lines elsewhere, silence when asked."""
    if quiet:
        yield AuditWatcher()
        return
    if sys.stderr.isatty():
        try:
            from attention_cem.cli.audit_bars import audit_bars
        except ImportError:
            yield LineWatcher()
            return
        with audit_bars() as watcher:
            yield watcher
        return
    yield LineWatcher()


class LineWatcher(AuditWatcher):
    """A line when an attack is done, and now and then one in between.

    Args:
        every: seconds between the lines in between.
    """

    def __init__(self, every: float = _QUIET_SECONDS) -> None:
        super().__init__()
        self._every = every
        self._names: list[str] = []
        self._now = ""
        self._first = 0
        self._began_at = self._said_at = time.monotonic()

    def preparing(self, what: str) -> None:
        """See the base class."""
        _say(what)

    def started(self, attacks: Sequence[str], device: str) -> None:
        """See the base class."""
        super().started(attacks, device)
        self._names = list(attacks)
        _say(f"{len(attacks)} attacks on {device}: {', '.join(attacks)}")

    def progress(self, what: str, done: int, total: int, mse: float) -> None:
        """See the base class."""
        moment = time.monotonic()
        if what != self._now or done <= self._first:
            self._now, self._first, self._began_at, self._said_at = what, done, moment, moment
        if done >= total or done == self._first or moment - self._said_at < self._every:
            return
        self._said_at = moment
        left = (moment - self._began_at) * (total - done) / (done - self._first)
        _say(f"{what}  {done}/{total}{best_words(mse)}  about {duration(left)} left")

    def attack_done(self, row: Mapping[str, Any], kept: bool) -> None:
        """See the base class."""
        _say(f"attack {self._names.index(row['name']) + 1}/{len(self._names)}  {done_words(row, kept)}")


def done_words(row: Mapping[str, Any], kept: bool) -> str:
    """One finished attack in a line."""
    told = f"{row['name']}  MSE {row['mse']:.5f}  PSNR {row['psnr']:.2f} dB  {row['status']}"
    return f"{told}  (kept from before)" if kept else f"{told}  {duration(row['receipt']['seconds'])}"


def best_words(mse: float) -> str:
    """The best validation MSE, where there is one.

    >>> best_words(0.0123), best_words(float("nan"))
    ('  best validation MSE 0.01230', '')
    """
    return "" if math.isnan(mse) else f"  best validation MSE {mse:.5f}"


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(0.4), duration(59), duration(61), duration(3700)
    ('0 s', '59 s', '1 min 01 s', '1 h 01 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
