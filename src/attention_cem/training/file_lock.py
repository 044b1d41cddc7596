"""A lock that the system frees when the process ends, however it ends."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a Unix system, which has no such lock: all go on without one
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.2
_JUST_BEGUN_SECONDS = 60.0


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


@contextmanager
def in_work(folder: Path) -> Iterator[None]:
    """Mark a folder as worked on inside the block, for `is_abandoned`."""
    descriptor = _locked_folder(folder)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_abandoned(folder: Path) -> bool:
    """Whether nobody is at work on a folder that was begun a minute or longer ago; False where that cannot be known."""
    try:
        if time.time() - folder.stat().st_mtime < _JUST_BEGUN_SECONDS:
            return False
    except OSError:  # gone in the meantime
        return False
    descriptor = _locked_folder(folder)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def _locked_folder(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock until it is closed; None if another does, or there are no locks."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
