"""A line that ends between two Chinese characters continues without a space."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

_CHARACTER = "[\u2018-\u201d\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
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
        """Join the lines of every text node."""
        for text in list(self.document.findall(nodes.Text)):
            if isinstance(text.parent, (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw)):
                continue
            if (new := joined(str(text))) != text:
                text.parent.replace(text, nodes.Text(new))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform; pages without Chinese are not changed by it."""
    app.add_transform(ChineseLines)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
