"""Every page leads to itself in the other language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

OTHER = {"en": ("zh", "中文", "用中文阅读本页"), "zh": ("en", "English", "Read this page in English")}


def other_page(pagename: str, folder: str) -> str:
    """The way from a page to its twin in the language folder ``folder``.

    >>> other_page("use/model", "zh")
    '../../zh/use/model.html'
    """
    return "../" * (pagename.count("/") + 1) + f"{folder}/{pagename}.html"


def _same_pages(app: Sphinx) -> None:
    """Refuse to build when a page exists in one language only."""
    pages = {
        language: {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
        for language in OTHER
        for folder in [Path(app.confdir) / language]
    }
    for language, (other, _, _) in OTHER.items():
        missing = sorted(pages[language] - pages[other])
        if missing:
            raise SystemExit(
                f"The handbook is not built: docs/{other} lacks pages of docs/{language}: {', '.join(missing)}"
            )


def _add_link(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    folder, label, title = OTHER[Path(app.srcdir).name]
    context["other_language"] = {
        "url": other_page(pagename, folder),
        "code": "zh-CN" if folder == "zh" else "en",
        "label": label,
        "title": title,
    }


def setup(app: Sphinx) -> dict[str, Any]:
    """Check the pages first, then give every page its link."""
    app.connect("builder-inited", _same_pages)
    app.connect("html-page-context", _add_link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
