"""Files and folders that are either the old one or the new one, never half of each."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from attention_cem.training.file_lock import in_work, is_abandoned

_UNFINISHED = ".unfinished-folder"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file by way of `replacing`."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new empty file beside the target to be written; it is forced to the disk, then renamed over the target.

    If anything fails the target is as it was, and nothing is left beside it. The file gets the permissions any
    new file gets here.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("whole")
    ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
    [('a.txt', 'whole')]
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    # Made here and not by tempfile, whose files nobody else may read.
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    permissions = stat.S_IMODE(temporary.stat().st_mode)
    try:
        yield temporary
        temporary.chmod(permissions)  # a writer may have put a private file of its own in its place
        _sync(temporary, os.O_RDWR)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A new empty folder beside the target to be filled; it takes the target's name once the block has ended well.

    If anything fails, or the process is killed, there is no folder under the target's name; what a killed one left
    beside it is removed by the next.

    Args:
        target: must not exist; folders above it are made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with new_folder(Path(folder) / "above" / "target") as building:
    ...         _ = (building / "a.txt").write_text("whole")
    ...     [file.name for file in (Path(folder) / "above").iterdir()]
    ['target']
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    building = target.with_name(f".{target.name}.{secrets.token_hex(6)}{_UNFINISHED}")
    for left in target.parent.glob(f".{glob.escape(target.name)}.*{_UNFINISHED}"):
        token = left.name.removeprefix(f".{target.name}.").removesuffix(_UNFINISHED)
        if "." not in token and is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)
    building.mkdir()
    try:
        with in_work(building):
            yield building
        os.replace(building, target)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    _sync_folder(target.parent)


def remove_leftovers(folder: Path) -> None:
    """Delete the unfinished files that a killed process left behind."""
    for leftover in folder.glob(".*.part"):
        leftover.unlink(missing_ok=True)


def _sync_folder(path: Path) -> None:
    # A rename is durable only once the folder is; some systems cannot open one, and need not.
    with contextlib.suppress(OSError):
        _sync(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
