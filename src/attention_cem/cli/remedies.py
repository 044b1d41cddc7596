"""What to do about it: places that cannot be written, weights that cannot be read."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from attention_cem.training.config_checks import ConfigError


def check_folder_place(path: str | os.PathLike[str], option: str = "-o") -> None:
    """Refuse a place where no folder can be: a file, or something below one."""
    place = Path(path)
    if place.exists() and not place.is_dir():
        raise ConfigError(f"{place} is a file, expected a folder; name another folder with {option}")
    _check_above(place, option)


def check_file_place(path: str | os.PathLike[str], option: str = "-o") -> None:
    """Refuse a place where no file can be: a folder, or something below a file."""
    place = Path(path)
    if place.is_dir():
        raise ConfigError(f"{place} is a folder, expected a file; name a file, in it or elsewhere, with {option}")
    _check_above(place, option)


def _check_above(place: Path, option: str) -> None:
    nearest = next(above for above in (*place.parents, Path()) if above.exists())
    if not nearest.is_dir():
        raise ConfigError(f"{place} cannot be made: {nearest} is a file; name another place with {option}")


def os_words(error: OSError) -> str:
    """An error of the operating system without its number, and what to look at.

    >>> os_words(PermissionError(13, "Permission denied", "page.html"))
    'page.html: Permission denied; check the permissions and the disk, or name another place'
    >>> os_words(FileNotFoundError("runs/x is no run folder"))
    'runs/x is no run folder'
    """
    if error.strerror is None:
        return str(error)
    where = error.filename2 or error.filename
    reason = f"{where}: {error.strerror}" if where else error.strerror
    return f"{reason}; check the permissions and the disk, or name another place"


def memory_words(error: Exception) -> str | None:
    """What to do where memory did not suffice; None for any other error.

    >>> memory_words(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    "out of memory: can't allocate memory; smaller batches, fewer images or a smaller model help"
    >>> memory_words(RuntimeError("shapes do not match")) is None
    True
    """
    text = str(error).split("\n")[0]
    told = "memory" in text and any(words in text for words in ("allocate", "out of memory", "not enough"))
    if not told and not isinstance(error, MemoryError):
        return None
    reason = text.rsplit("DefaultCPUAllocator: ", 1)[-1].rstrip(".")
    return f"out of memory{f': {reason}' * bool(reason)}; smaller batches, fewer images or a smaller model help"


def weights_words(run: str | os.PathLike[str], error: Exception, which: str = "best", *, choice: bool = False) -> str:
    """Why a run's weights cannot be read, and what helps.

    Args:
        run: the run folder.
        error: what was said about its weights.
        which: the weights that were asked for.
        choice: the command can take the other ones, ``--which``.
    """
    from attention_cem.training.checkpoint import step_checkpoints
    from attention_cem.training.run_folder import RunFolder

    folder = RunFolder(Path(run))
    there = {"best": folder.best.is_file(), "last": bool(step_checkpoints(folder.checkpoints))}
    text = str(error).rstrip(".")
    if not there[which] and not folder.result_file.is_file():
        return f"{text}; train it: attention-cem train --resume {shlex.quote(str(run))}"
    other = "last" if which == "best" else "best"
    instead = f"take the others with --which {other}, or " if choice and there[other] else ""
    again = f"attention-cem train --config {shlex.quote(str(folder.config_file))} --run.folder NEW"
    return f"{text}; {instead}bring back a copy of it, or train the run again: {again}"
