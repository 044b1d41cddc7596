"""The build fails while a generated results table is older than what it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from studies.publish import stale_pages


def refuse_stale_pages(app: Sphinx) -> None:
    """End the build with one line for each file that must be made again."""
    stale = stale_pages(Path(app.confdir).parent)
    if stale:
        listing = "\n  ".join(stale)
        # Not an exception of Sphinx: it would bury the lines under a report on versions and tracebacks.
        raise SystemExit(f"The handbook is not built: results are older than what they come from.\n  {listing}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Check before anything is built."""
    app.connect("builder-inited", refuse_stale_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
