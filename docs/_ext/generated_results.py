"""Generated results as pages of the handbook: ``{generated} results/main.md``.

The file is taken as it is, so that no figure is typed twice. Its title is left out (the page has one in its own
language), and its links lead to the pages that show the same file. Where the file does not name commits itself,
``:inputs: FOLDER`` adds which commit stored the figures it was made from.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from provenance import sentence
from sphinx.application import Sphinx
from sphinx.errors import SphinxError

PAGES = {
    "results/README.md": "results",
    "benchmarks/RESULTS.md": "results/benchmarks",
    **{
        f"results/{name}.md": f"results/{name}"
        for name in ("main", "stacked", "data", "sensitivity", "cost", "paper-table", "exploration")
    },
}
"""Which page of the handbook shows which file of the repository."""

# The title, and the line in Chinese under it.
_FIRST_TITLE = re.compile(r"\A(?:<!--.*?-->\s*)?# [^\n]*\n(?:\n[\u4e00-\u9fff][^\n]*\n)?", re.DOTALL)
_INDEX_ENTRY = re.compile(r"^- \[[^\]]*\]\([\w-]+\.md\)[^\n]*\n", re.MULTILINE)
_BLOCK = re.compile(r"^```\{generated\} (?P<file>\S+)\n(?::inputs: (?P<inputs>\S+)\n)?```$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")


def for_the_handbook(text: str, file: str, root: Path) -> str:
    """The text of ``file`` (a path inside ``root``) without its title, links changed to the handbook's pages."""

    def changed(found: re.Match[str]) -> str:
        image, label, target, anchor = found.groups()
        path = (root / file).parent.joinpath(target).resolve().relative_to(root.resolve()).as_posix()
        if not (root / path).exists():
            raise SphinxError(f"{file} leads to {target}, which is not there")
        if image:
            return f"![{label}](/../../{path})"
        if path in PAGES:
            return f"[{label}](/{PAGES[path]}.md{anchor or ''})"
        if path.endswith(".md"):
            raise SphinxError(f"{file} leads to {path}, which no page of the handbook shows; add one, and to PAGES")
        return f"{label} (`{path}`)" if label != path else f"`{path}`"

    if file == "results/README.md":
        text = _INDEX_ENTRY.sub("", text)  # the page lists its parts itself, in its own language
    return _LINK.sub(changed, _FIRST_TITLE.sub("", text))


def put_in_place(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace every ``{generated}`` block of a page's source by the file it names.

    Raises:
        SphinxError: a file that belongs on another page, or one that leads to what no page shows.
    """
    root, chinese = Path(app.confdir).parent, app.config.language.startswith("zh")

    def content(found: re.Match[str]) -> str:
        file, inputs = found.group("file"), found.group("inputs")
        if PAGES.get(file) != docname:
            raise SphinxError(f"{file} belongs on the page {PAGES.get(file)!r}, not on {docname!r}")
        app.env.note_dependency(str(root / file), docname=docname)
        before = f"{sentence(root, inputs, chinese=chinese)}\n\n" if inputs else ""
        return before + for_the_handbook((root / file).read_text(encoding="utf-8"), file, root)

    source[0] = _BLOCK.sub(content, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Act on every source before it is parsed."""
    app.connect("source-read", put_in_place)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
