"""One process at a time in a folder: two that continue the same run would write each epoch twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attention_cem.training.config_checks import ConfigError
from attention_cem.training.file_lock import locked

_PATIENCE_SECONDS = 10.0
_TRAINING = "another process is training in {folder}; wait for it, stop it, or choose another run.folder"


class FolderBusyError(ConfigError):
    """Another process works in the folder; once it has ended, the same call succeeds."""


@contextmanager
def alone_in(
    folder: Path, patience: float = _PATIENCE_SECONDS, *, lock: str = "run.lock", busy: str = _TRAINING
) -> Iterator[None]:
    """Hold the folder's lock inside the block; the system frees it when the process ends, however it ends.

    Args:
        folder: exists.
        patience: seconds to wait for another process that is about to end, e.g. one that writes its last checkpoint.
        lock: name of the lock's file.
        busy: what is said where it is held.

    Raises:
        FolderBusyError: another process still works there.
    """
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder / lock, patience))
        except BlockingIOError:
            raise FolderBusyError(busy.format(folder=folder)) from None
        yield
