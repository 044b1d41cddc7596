"""Bilingual, escaped markup, and figures as text."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup, escape

from attention_cem.reporting.sentences import in_chinese
from attention_cem.reporting.sources import number
from attention_cem.reporting.words import WORDS

_LONGEST = 600


def bilingual(english: Any, chinese: Any, tag: str = "span") -> Markup:
    """Both languages side by side; the page's style shows one of them."""
    return Markup('<{0} class="en" lang="en">{1}</{0}><{0} class="zh" lang="zh">{2}</{0}>').format(
        Markup(tag), english, chinese
    )


def say(key: str, tag: str = "span", **values: Any) -> Markup:
    """A string of the table in both languages, with its values filled in and escaped.

    >>> str(say("yes"))
    '<span class="en" lang="en">yes</span><span class="zh" lang="zh">是</span>'
    """
    english, chinese = WORDS[key]
    return bilingual(
        Markup(escape(english)).format(**{k: _language(v, 0) for k, v in values.items()}),
        Markup(escape(chinese)).format(**{k: _language(v, 1) for k, v in values.items()}),
        tag,
    )


def label(key: str, tag: str = "span") -> Markup:
    """A string of the table, or a name of the program's own (``dead_slots``), which is the same in both languages."""
    return say(key, tag) if key in WORDS else Markup("{}").format(clip(key, 60))


def _language(value: Any, which: int) -> Any:
    """A pair is (English, Chinese); everything else is the same in both."""
    return value[which] if isinstance(value, tuple) else value


def sentence(value: Any, tag: str = "span") -> Markup:
    """A sentence found in a file, translated where it is known, escaped and cut to a sane length."""
    english = clip(value)
    return bilingual(english, in_chinese(english) or english, tag)


def sentence_pair(value: Any) -> tuple[str, str]:
    """A sentence of a file as (English, Chinese), to be filled into one of the table."""
    english = clip(value)
    return english, in_chinese(english) or english


def clip(value: Any, longest: int = _LONGEST) -> str:
    """Any value of a file as text of limited length.

    >>> clip("abcdef", 4)
    'abc…'
    """
    text = str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def figure(value: Any, digits: int = 4) -> str:
    """A number with significant digits, a dash for anything that is none.

    >>> figure(0.0123456), figure(None), figure(1234567), figure(3)
    ('0.01235', '–', '1.235e+06', '3')
    """
    found = number(value)
    return "–" if found is None else f"{found:.{digits}g}"


def percent(value: Any, digits: int = 1) -> str:
    """A share as a percentage.

    >>> percent(0.9375), percent("x")
    ('93.8 %', '–')
    """
    found = number(value)
    return "–" if found is None else f"{100 * found:.{digits}f} %"


def whole_percent(value: Any) -> str:
    """A share without decimals: the 100 % of a warning must read 100 %."""
    return percent(value, 0)


def decibel(value: Any) -> str:
    """PSNR with one decimal."""
    found = number(value)
    return "–" if found is None else f"{found:.1f}"


def shape(value: Any) -> str:
    """A list of sizes as ``8×16×16``."""
    return "×".join(figure(each) for each in value) if isinstance(value, list) and len(value) < 8 else "–"
