"""A lock that the system frees when the process ends, however it ends."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a Unix system, which has no such lock: all go on without one
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.2


@contextmanager
def locked(path: Path, patience: float = math.inf) -> Iterator[None]:
    """Hold the lock of a file, made if it is not there and left behind, inside the block.

    Where the file system has no locks, the block is entered without one.

    Args:
        path: the file; its folder exists.
        patience: seconds to wait for another process.

    Raises:
        BlockingIOError: another process still holds it.
        OSError: the file cannot be opened.
    """
    if fcntl is None:
        yield
        return
    with path.open("a", encoding="utf-8") as file:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL_SECONDS)
            except OSError:  # a file system without locks
                break
        yield
