"""Where the deck's numbers come from: files of the repository, each with the commit that made or stored it."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Figure:
    """A drawn figure: ``uri`` holds the picture itself, ``numbers`` what it shows, ``source`` the small print."""

    uri: str
    numbers: dict[str, Any]
    source: str


@dataclass(frozen=True)
class Shelf:
    """The files under ``root``, read as they are at build time.

    Args:
        root: the repository.
    """

    root: Path

    def data(self, name: str) -> dict[str, Any] | None:
        """The JSON object in file ``name``, or None where the file is not there.

        Raises:
            ValueError: the file is there, but not such an object.
        """
        path = self.root / name
        if not path.is_file():
            return None
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"{name} has {path.stat().st_size:,} bytes; result files have at most {_MOST_BYTES:,}")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{name} is not JSON: {error}; make it again") from None
        if not isinstance(found, dict):
            raise ValueError(f"{name} must hold an object, got a {type(found).__name__}; make it again")
        return found

    def folder(self, pattern: str) -> list[tuple[str, dict[str, Any]]]:
        """Name and content of every file that matches, sorted by name."""
        names = sorted(path.relative_to(self.root).as_posix() for path in self.root.glob(pattern))
        return [(name, content) for name in names if (content := self.data(name)) is not None]

    def cite(self, name: str) -> str:
        """The file, and the newest commit that changed it."""
        commit = self._git("log", "-1", "--format=%h", "--abbrev=9", "--", name)
        if not commit:
            return f"{name} (not stored in git yet)" if (self.root / ".git").exists() else name
        changed = "+changes" if self._git("status", "--porcelain", "--", name) else ""
        return f"{name} @ {commit}{changed}"

    def figure(self, name: str) -> Figure | None:
        """The handbook's figure ``name``, or None where it has not been drawn."""
        picture = self.root / "docs/assets/understand" / f"{name}.svg"
        told = self.data(f"docs/assets/understand/{name}.json")
        if told is None or not picture.is_file():
            return None
        commit = str(told.get("commit", "unknown"))
        short = commit[:9] + ("+changes" if commit.endswith("+changes") else "")
        source = f"docs/assets/understand/{name}.json (seed {told.get('seed')}) @ {short}"
        return Figure(inlined(picture), dict(told.get("numbers", {})), source)

    def picture(self, name: str) -> str | None:
        """The PNG file ``name`` as a data address, or None where it is not there."""
        path = self.root / name
        return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}" if path.is_file() else None

    def head(self) -> str:
        """The commit the deck is built at."""
        return self._git("rev-parse", "--short=9", "HEAD") or "unknown"

    def _git(self, *arguments: str) -> str:
        try:
            done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""


def inlined(picture: Path) -> str:
    """An SVG file as a data address: nothing in it can run or reach outside the page."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.read_bytes()).decode()}"
