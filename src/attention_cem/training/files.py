"""Files that are either the old one or the new one, never half of each."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, force it to the disk, then rename over the target.

    If anything fails the target is as it was, and nothing is left beside it.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Delete the unfinished files that a killed process left behind."""
    for leftover in folder.glob(".*.part"):
        leftover.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    # The rename itself is durable only once the folder is; some systems cannot open one, and need not.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
