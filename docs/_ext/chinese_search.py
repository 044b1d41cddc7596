"""Search in Chinese without a dictionary: text and query are both cut into overlapping pairs of characters.

条件熵 is indexed as 条件, 件熵; a query is cut in the same way, and a page must hold every pair. Words of Latin
letters stay whole.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.search import SearchLanguage

_RUNS = re.compile(r"[\u4e00-\u9fff]+|[^\W\u4e00-\u9fff]+")


class PairsOfCharacters(SearchLanguage):
    """Pairs for Chinese, whole lower-case words for the rest."""

    lang = "zh"
    language_name = "Chinese"
    js_splitter_code = r"""
var splitQuery = function (query) {
  const terms = [];
  for (const run of query.match(/[\u4e00-\u9fff]+|[\p{Letter}\p{Number}_]+/gu) || []) {
    if (!/^[\u4e00-\u9fff]/.test(run)) {
      for (const part of run.match(/[\u4e00-\u9fff]+|[^\u4e00-\u9fff]+/gu)) terms.push(part);
    } else if (run.length === 1) terms.push(run);
    else for (let i = 0; i + 1 < run.length; i++) terms.push(run.slice(i, i + 2));
  }
  return terms;
};
"""

    def split(self, input: str) -> list[str]:
        """The terms of a text.

        >>> PairsOfCharacters({}).split("条件熵 H(z|y)")
        ['条件', '件熵', 'H', 'z', 'y']
        """
        return [term for run in _RUNS.findall(input) for term in _pairs(run)]

    def stem(self, word: str) -> str:
        """Lower case."""
        return word.lower()


def _pairs(run: str) -> list[str]:
    if not "\u4e00" <= run[0] <= "\u9fff" or len(run) == 1:
        return [run]
    return [run[start : start + 2] for start in range(len(run) - 1)]


def setup(app: Sphinx) -> dict[str, Any]:
    """Take the place of the search Sphinx has for Chinese, which needs a dictionary package."""
    app.add_search_language(PairsOfCharacters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
