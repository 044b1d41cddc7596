"""The build fails while a generated results table is older than what it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from studies.publish import stale_pages


def refuse_stale_pages(app: Sphinx) -> None:
    """Raise with one line for each table that must be made again."""
    stale = stale_pages(Path(app.confdir).parent)
    if stale:
        listing = "\n  ".join(stale)
        raise SphinxError(f"results tables are older than their study; run `make results`:\n  {listing}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Check before anything is built."""
    app.connect("builder-inited", refuse_stale_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
