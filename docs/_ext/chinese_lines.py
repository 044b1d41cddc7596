"""A line that ends between two Chinese characters continues without a space."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

_CHARACTER = "[\u2018-\u201d\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
_CODE = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw, nodes.comment)
_BREAK = re.compile(rf"(?<={_CHARACTER})[ \t]*\n[ \t]*(?={_CHARACTER})")


def joined(text: str) -> str:
    r"""The text with such line ends taken out.

    >>> joined("条件，\n熵 of z\n和噪声")
    '条件，熵 of z\n和噪声'
    """
    return _BREAK.sub("", text)


class ChineseLines(SphinxTransform):
    """Acts on prose; code is left alone."""

    default_priority: ClassVar[int] = 400

    def apply(self, **kwargs: Any) -> None:
        """Join the lines of every text node, seen together with the characters beside it."""
        for text in list(self.document.findall(nodes.Text)):
            parent = text.parent
            if "\n" not in text or isinstance(parent, _CODE):
                continue
            place = parent.index(text)
            before = parent[place - 1].astext()[-1:] if place and not isinstance(parent[place - 1], _CODE) else ""
            after = ""
            if place + 1 < len(parent) and not isinstance(parent[place + 1], _CODE):
                after = parent[place + 1].astext()[:1]
            new = joined(before + text + after)
            parent.replace(text, nodes.Text(new[len(before) : len(new) - len(after)]))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform; pages without Chinese are not changed by it."""
    app.add_transform(ChineseLines)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
