"""Ctrl-C and SIGTERM as a request to stop after the current step."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TrainingInterrupted(KeyboardInterrupt):
    """Training was asked to stop and left a checkpoint; ``folder`` is where to continue."""

    def __init__(self, folder: str) -> None:
        super().__init__(f"stopped; continue with: attention-cem train --resume {shlex.quote(folder)}")
        self.folder = folder


class StopRequest:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            # Asked twice: do not make the person wait for the checkpoint.
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Catch SIGINT and SIGTERM inside the block; outside the main thread signals stay as they are."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, request._handle) for number in numbers]
    try:
        yield request
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
