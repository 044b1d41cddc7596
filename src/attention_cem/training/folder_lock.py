"""One process at a time in a run folder: two that continue the same run would write each epoch twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attention_cem.training.config_checks import ConfigError

try:
    import fcntl
except ImportError:  # not a Unix system, which has no such lock: the folder is used without one
    fcntl = None  # type: ignore[assignment]

_PATIENCE_SECONDS = 10.0


class FolderBusyError(ConfigError):
    """Another process works in the folder; once it has ended, the same call succeeds."""


@contextmanager
def alone_in(folder: Path, patience: float = _PATIENCE_SECONDS) -> Iterator[None]:
    """Hold the folder's lock inside the block; the system frees it when the process ends, however it ends.

    Args:
        folder: exists.
        patience: seconds to wait for another process that is about to end, e.g. one that writes its last checkpoint.

    Raises:
        FolderBusyError: another process still works there.
    """
    if fcntl is None:
        yield
        return
    with (folder / "run.lock").open("a", encoding="utf-8") as lock:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise FolderBusyError(
                        f"another process is training in {folder}; wait for it, stop it, or choose another run.folder"
                    ) from None
                time.sleep(0.2)
            except OSError:  # a file system without locks
                break
        yield
