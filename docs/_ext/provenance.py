"""Which commit stored the files that a table was made from."""

from __future__ import annotations

import subprocess
from pathlib import Path

UNKNOWN = "unknown"


def storing_commit(root: Path, inputs: str) -> str:
    """The newest commit that changed ``inputs`` (a path inside ``root``), with ``+changes`` if they differ from it.

    Outside a clone, or without git, there is no answer but ``unknown``.
    """
    commit = _git(root, "log", "-1", "--format=%h", "--abbrev=9", "--", inputs)
    if not commit:
        return UNKNOWN
    return f"{commit}+changes" if _git(root, "status", "--porcelain", "--", inputs) else commit


def sentence(root: Path, inputs: str, *, chinese: bool) -> str:
    """Where a table's figures come from, in Markdown."""
    commit = storing_commit(root, inputs)
    if chinese:
        return f"数据来自 `{inputs}`，由提交 `{commit}` 存入仓库。"
    return f"Figures from `{inputs}`, stored by commit `{commit}`."


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
