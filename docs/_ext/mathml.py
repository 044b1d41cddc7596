"""Equations as MathML, written at build time: no script, no font and no network in the page.

Every current browser draws MathML Core. The conversion is the one docutils ships; what it cannot convert is a
warning, and so ends the build.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
_SEVERAL_LINES = ("\\\\", "&")
# A size without a side (\\big rather than \\bigl) is not known to the converter; brackets then keep their own size.
_SIZES = re.compile(r"\\[bB]igg?(?![a-zA-Z])")


def to_mathml(tex: str, *, block: bool) -> str:
    """The ``<math>`` element of a TeX expression; several lines, or an ``&``, are set as aligned equations.

    >>> print(to_mathml("a^2", block=False))
    <math xmlns="http://www.w3.org/1998/Math/MathML"> <msup> <mi>a</mi> <mn>2</mn> </msup> </math>
    """
    code = _SIZES.sub("", tex.strip())
    if block and "\\begin{" not in code and any(mark in code for mark in _SEVERAL_LINES):
        code = f"\\begin{{aligned}}{code}\\end{{aligned}}"
    return str(latex2mathml.tex2mathml(code, as_block=block))


def _converted(node: nodes.Element, *, block: bool) -> str:
    try:
        return to_mathml(node.astext(), block=block)
    except (MathError, SyntaxError) as error:
        logger.warning("this equation cannot be written as MathML: %s (%s)", node.astext(), error, location=node)
        return ""


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(f'<span class="math">{_converted(node, block=False)}</span>')
    raise nodes.SkipNode


def _block(self: HTML5Translator, node: nodes.math_block) -> None:
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    names = node.get("ids") or [""]
    anchor = f' id="{names[0]}"' if names[0] else ""
    self.body.append(f'<div class="math-block"{anchor}>{_converted(node, block=True)}{number}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
