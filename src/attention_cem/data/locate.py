"""Where data lies: the folder the caller names, or the one the environment names."""

from __future__ import annotations

import os
from pathlib import Path

ROOT_VARIABLE = "ATTENTION_CEM_DATA"


class MissingDataError(FileNotFoundError):
    """A data set's files are not there; the message says what was looked for and how to get it."""


def data_root(root: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the data folder: the argument, else what ``ATTENTION_CEM_DATA`` names, else None."""
    if root is not None:
        return Path(root).expanduser()
    from_environment = os.environ.get(ROOT_VARIABLE)
    return Path(from_environment).expanduser() if from_environment else None


def missing(name: str, looked_for: str, root: Path | None, how_to_get: str) -> MissingDataError:
    """Build the error for a data set that is not there."""
    if root is None:
        where = f"no data folder is named: pass root (--data.root on the command line) or set {ROOT_VARIABLE}"
    else:
        where = f"looked in {root}" + ("" if root.is_dir() else ", which is not a folder")
    return MissingDataError(f"data set {name!r} needs {looked_for}; {where}. How to get it: {how_to_get}")
