"""Generated results as pages of the handbook: ``{generated} results/main.md``.

The file is taken as it is, so that no figure is typed twice. Its title is left out (the page has one in its own
language), and its links lead to the pages that show the same file. Where the file does not name commits itself,
``:inputs: FOLDER`` adds which commit stored the figures it was made from.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from provenance import sentence
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

PAGES = {
    "results/README.md": "results",
    "benchmarks/RESULTS.md": "results/benchmarks",
    **{
        f"results/{name}.md": f"results/{name}"
        for name in ("main", "stacked", "data", "sensitivity", "cost", "paper-table", "exploration")
    },
}
"""Which page of the handbook shows which file of the repository."""

_FIRST_TITLE = re.compile(r"\A(?:<!--.*?-->\s*)?# [^\n]*\n", re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")


def for_the_handbook(text: str, file: str, root: Path) -> str:
    """The text of ``file`` (a path inside ``root``) without its title, links changed to the handbook's pages."""

    def changed(found: re.Match[str]) -> str:
        image, label, target, anchor = found.groups()
        path = (root / file).parent.joinpath(target).resolve().relative_to(root.resolve()).as_posix()
        if not (root / path).exists():
            raise ExtensionError(f"{file} leads to {target}, which is not there")
        if image:
            return f"![{label}](/../../{path})"
        if path in PAGES:
            return f"[{label}](/{PAGES[path]}.md{anchor or ''})"
        if path.endswith(".md"):
            raise ExtensionError(f"{file} leads to {path}, which no page of the handbook shows; add one, and to PAGES")
        return f"{label} (`{path}`)" if label != path else f"`{path}`"

    return _LINK.sub(changed, _FIRST_TITLE.sub("", text))


class Generated(SphinxDirective):
    """``{generated} FILE``: the Markdown of a generated file of the repository."""

    required_arguments = 1
    has_content: ClassVar[bool] = False
    option_spec: ClassVar[dict[str, Any]] = {"inputs": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Read, adapt and parse the file in place."""
        root, file = Path(self.env.app.confdir).parent, self.arguments[0]
        if PAGES.get(file) != self.env.docname:
            raise self.error(f"{file} belongs on the page {PAGES.get(file)!r}, not on {self.env.docname!r}")
        self.env.note_dependency(str(root / file))
        before = ""
        if "inputs" in self.options:
            before = sentence(root, self.options["inputs"], chinese=self.config.language.startswith("zh")) + "\n\n"
        text = before + for_the_handbook((root / file).read_text(encoding="utf-8"), file, root)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
