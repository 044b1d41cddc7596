"""Two languages side by side: every text of the deck is written once in each, and the page shows one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

LANGUAGES = {"en": "en", "zh": "zh-Hans"}
Pair = tuple[str, str]
"""English and Chinese, both as HTML."""


def both(en: str, zh: str, tag: str = "span") -> str:
    """The same text in both languages, as HTML; the style sheet shows the one that is wanted.

    >>> both("slot", "槽")
    '<span class="en" lang="en">slot</span><span class="zh" lang="zh-Hans">槽</span>'
    """
    return "".join(
        f'<{tag} class="{name}" lang="{code}">{text}</{tag}>'
        for (name, code), text in zip(LANGUAGES.items(), (en, zh), strict=True)
    )


def paragraph(en: str, zh: str, kind: str = "") -> str:
    """A paragraph in both languages; ``kind`` is its class, e.g. ``lead``."""
    return f'<div class="{f"p {kind}".strip()}">{both(en, zh)}</div>'


def bullets(*pairs: Pair) -> str:
    """A list with one entry a pair."""
    return f"<ul>{''.join(f'<li>{both(*pair)}</li>' for pair in pairs)}</ul>"


def table(head: Sequence[Pair], rows: Iterable[Sequence[str]]) -> str:
    """A table; heads in both languages, cells as HTML."""
    top = "".join(f"<th>{both(*pair)}</th>" for pair in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def code(text: str) -> str:
    """Program text as it is, the same in both languages."""
    return f"<pre><code>{escape(text.strip())}</code></pre>"


def commands(*lines: tuple[str, str, str]) -> str:
    """Commands, each with a remark in both languages, the remarks in one column.

    >>> commands(("make test", "every test", "全部测试")).count("<pre")
    2
    """
    width = max(len(command) for command, english, _ in lines if english)
    texts = []
    for language in (1, 2):
        shown = [f"{line[0]:<{width}}  # {line[language]}" if line[language] else line[0] for line in lines]
        texts.append(f"<pre><code>{escape(chr(10).join(shown))}</code></pre>")
    return both(texts[0], texts[1], tag="div")


def columns(*parts: str, kind: str = "") -> str:
    """Parts side by side; one below the other on a phone."""
    return f'<div class="{f"columns {kind}".strip()}">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


@dataclass(frozen=True)
class Slide:
    """One slide.

    Args:
        name: a word for links and tests.
        kicker: the chapter, above the title.
        title: one sentence.
        body: HTML.
        sources: where its numbers come from, e.g. ``results/x.json @ 0a1b2c3``, or a pair; shown in small print.
    """

    name: str
    kicker: Pair
    title: Pair
    body: str
    sources: Sequence[str | Pair] = field(default=())
