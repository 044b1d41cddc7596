"""Equations as MathML, written at build time: no script, no font and no network in the page.

Every current browser draws MathML Core. The conversion is the one docutils ships, with three corrections below; what
it cannot convert is a warning, and so ends the build.
"""

from __future__ import annotations

import html
import re
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
_SEVERAL_LINES = ("\\\\", "&")
# A size without a side (\big rather than \bigl) is not known to the converter; brackets then keep their own size.
_SIZES = re.compile(r"\\[bB]igg?(?![a-zA-Z])")
# In TeX \frac12 is one half; the converter reads the number twelve.
_TWO_DIGITS = re.compile(r"(\\[dt]?frac)\s*(\d)\s*(\d)")
_ACCENTS = frozenset("ˆ^~˜ˉ¯‾˙→")
_APPLY_FUNCTION = "\u2061"
_NAMESPACE = ' xmlns="http://www.w3.org/1998/Math/MathML"'


def to_mathml(tex: str, *, block: bool) -> str:
    """The ``<math>`` element of a TeX expression; several lines, or an ``&``, are set as aligned equations.

    >>> print(to_mathml("a^2", block=False))
    <math xmlns="http://www.w3.org/1998/Math/MathML"><msup><mi>a</mi><mn>2</mn></msup></math>
    """
    code = _TWO_DIGITS.sub(r"\1{\2}{\3}", _SIZES.sub("", tex.strip()))
    if block and "\\begin{" not in code and any(mark in code for mark in _SEVERAL_LINES):
        code = f"\\begin{{aligned}}{code}\\end{{aligned}}"
    markup = str(latex2mathml.tex2mathml(code, as_block=block))
    # Names such as &ApplyFunction; are HTML's, not XML's.
    markup = re.sub(r"&(?!lt;|gt;|amp;|quot;)\w+;", lambda found: html.unescape(found.group()), markup)
    root = ElementTree.fromstring(markup.replace(_NAMESPACE, ""))
    for element in root.iter():
        element.text = element.text.strip(" \n") if element.text else None
        element.tail = None
    _put_indices_beside_accents(root)
    _space_around_functions(root)
    return ElementTree.tostring(root, encoding="unicode").replace("<math", f"<math{_NAMESPACE}", 1)


def _put_indices_beside_accents(root: Element) -> None:
    r"""``\hat x_n``: the index belongs beside x̂; the converter puts it underneath, ``\hat x^2`` on top.

    >>> print(to_mathml(r"\hat x_n", block=False).partition(">")[2])
    <msub><mover accent="true"><mi>x</mi><mo stretchy="false">ˆ</mo></mover><mi>n</mi></msub></math>
    """
    for element in list(root.iter("munderover")):
        base, below, above = element
        if (above.text or "") in _ACCENTS:
            _become(element, "msub", _accented(base, above), below)
    for element in list(root.iter("mover")):
        base, above = element
        if base.tag == "mover" and (base[-1].text or "") in _ACCENTS:
            base.set("accent", "true")
            _become(element, "msup", base, above)
        elif (above.text or "") in _ACCENTS:
            element.set("accent", "true")
    for element in list(root.iter("msup")):
        base, above = element
        if base.tag == "msub" and base[0].tag == "mover":
            _become(element, "msubsup", *base, above)


def _accented(base: Element, accent: Element) -> Element:
    together = Element("mover", accent="true")
    together.extend([base, accent])
    return together


def _become(element: Element, tag: str, *children: Element) -> None:
    for child in list(element):
        element.remove(child)
    element.attrib.clear()
    element.tag = tag
    element.extend(children)


def _space_around_functions(root: Element) -> None:
    r"""Thin spaces between log and its neighbours, as TeX sets them, unless an operator or a bracket stands there.

    >>> print(to_mathml(r"\log a", block=False).partition(">")[2])
    <mi>log</mi><mspace width="0.1667em" /><mi>a</mi></math>
    """
    for parent in list(root.iter()):
        spaced: list[Element] = []
        children = list(parent)
        for place, element in enumerate(children):
            if element.tag != "mo" or element.text != _APPLY_FUNCTION:
                spaced.append(element)
                continue
            if len(spaced) > 1 and spaced[-2].tag not in ("mo", "mspace"):
                spaced.insert(-1, _thin_space())
            if place + 1 < len(children) and not _opens(children[place + 1]):
                spaced.append(_thin_space())
        parent[:] = spaced


def _thin_space() -> Element:
    return Element("mspace", width="0.1667em")


def _opens(element: Element) -> bool:
    first = element[0] if element.tag == "mrow" and len(element) else element
    return first.tag == "mo" and first.text in ("(", "[")


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
