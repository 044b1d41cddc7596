"""``python -m slides.build``: write slides/_build/deck.html, one file with everything in it.

The deck takes the figures of ``docs/assets`` and the numbers of ``results/`` as they are when it is built; a slide
whose file is missing says so. It opens from disk, in any browser, without a network.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from attention_cem.training.files import write_atomically
from slides import closing, practice, results, soundness, story
from slides.sources import Shelf
from slides.words import Slide, both

ROOT = Path(__file__).parent.parent
DECK = ROOT / "slides/_build/deck.html"
TITLES = {"en": "Attention-CEM: send a feature, not a face", "zh": "Attention-CEM：发出去的是特征，不是脸"}
ORDER: tuple[Callable[[Shelf], Slide], ...] = (
    story.title,
    story.problem,
    story.idea,
    story.class_room,
    story.four_stages,
    soundness.shut_off,
    soundness.talked_down,
    soundness.sound,
    soundness.recipe,
    soundness.merge,
    soundness.audit,
    results.trade_off,
    results.comparisons,
    practice.cost,
    practice.ship,
    closing.limits,
    closing.start,
)
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def slides_of(root: Path) -> list[Slide]:
    """All slides, from the files under ``root``.

    Raises:
        ValueError: a result file has not the form its slide expects.
    """
    shelf, made = Shelf(root), []
    for make in ORDER:
        try:
            made.append(make(shelf))
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"slide {make.__name__}: a file it reads has an unexpected form ({error!r}); make that file again"
            ) from error
    return made


def page(slides: Sequence[Slide], commit: str) -> str:
    """The whole HTML file."""
    here = Path(__file__).parent
    sections = "\n".join(_section(slide, number, commit) for number, slide in enumerate(slides, 1))
    names = "".join(f'<meta name="title-{language}" content="{escape(text)}">' for language, text in TITLES.items())
    return f"""<!doctype html>
<html lang="en" data-lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
{names}
<title>{escape(TITLES["en"])}</title>
<style>
{(here / "deck.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<main>
{sections}
</main>
<nav id="bar" aria-label="slides">
<button id="back" class="step" aria-label="back · 上一页">‹</button>
<span id="place" class="step"></span>
<button id="next" class="step" aria-label="next · 下一页">›</button>
<button id="language">中文</button>
</nav>
<script>
{(here / "deck.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""


def _section(slide: Slide, number: int, commit: str) -> str:
    english, chinese = (
        "; ".join(escape(each if isinstance(each, str) else each[language]) for each in slide.sources)
        for language in (0, 1)
    )
    source = both(f"Source: {english}.", f"来源：{chinese}。") if slide.sources else ""
    built = both(f"Deck built at {commit}.", f"幻灯片生成于 {commit}。") if number == 1 else ""
    kind = " title" if slide.name == "title" else ""
    spoken = escape(" · ".join(slide.title))
    return f"""<section class="slide{kind}" id="slide-{slide.name}" aria-label="{spoken}">
<div class="kicker">{both(*slide.kicker)}</div>
<h2>{both(*slide.title)}</h2>
<div class="body">{slide.body}</div>
<footer><div>{source}{built}</div></footer>
</section>"""


def build(root: Path = ROOT, target: Path = DECK) -> Path:
    """Write the deck and return where it is."""
    made = slides_of(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, page(made, Shelf(root).head()).encode())
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, and say where the deck is."""
    parser = argparse.ArgumentParser(prog="python -m slides.build", description=__doc__)
    parser.add_argument(
        "-o", "--out", type=Path, default=DECK, metavar="FILE", help="the deck [slides/_build/deck.html]"
    )
    try:
        target = build(target=parser.parse_args(arguments).out)
    except ValueError as error:
        print(f"slides: {error}", file=sys.stderr)
        return 2
    print(
        f"{target} ({target.stat().st_size / 1e6:.1f} MB): open it in a browser; → and ← move, L changes the language"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
