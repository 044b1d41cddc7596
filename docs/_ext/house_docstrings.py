"""Docstrings of the package as reStructuredText: a word in single backticks is code, a bar is a bar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

_LITERAL = re.compile(r"(``.+?``)")
_INITIAL = re.compile(r"^(\s*:\w+ \w+:\s+)([A-Z])\. ")
_SINGLE = re.compile(r"(?<![`:\w])`([^`\n]+)`(?![`_\w])")


def as_restructured(line: str) -> str:
    r"""Double the single backticks and escape bars (|a| would be a substitution); roles and literals stay.

    >>> as_restructured("see `load_run`, ``p(x|y)``, |Σ| and :class:`Budget`")
    'see ``load_run``, ``p(x|y)``, \\|Σ\\| and :class:`Budget`'
    >>> as_restructured(":param width: D. Also more")
    ':param width: D\\. Also more'
    """
    # A description that begins "D. " is a symbol, not the fourth item of a list.
    line = _INITIAL.sub(r"\1\2\\. ", line)
    parts = _LITERAL.split(_SINGLE.sub(r"``\1``", line))
    return "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def restructured(lines: list[str]) -> Iterator[str]:
    """Every line of prose converted; examples, equations and literal blocks as they are."""
    verbatim_beyond: int | None = None
    example = False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            example = False
        elif verbatim_beyond is not None and indent <= verbatim_beyond:
            verbatim_beyond = None
        example = example or line.lstrip().startswith(">>>")
        if example or verbatim_beyond is not None or not line.strip():
            yield line
            continue
        yield as_restructured(line)
        if line.rstrip().endswith("::"):
            verbatim_beyond = indent


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = list(restructured(lines))


def setup(app: Sphinx) -> dict[str, Any]:
    """Act on every docstring autodoc reads."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
