"""Charts as inline SVG, drawn from result files: a scatter, bars, and ratios with their intervals.

Labels come in both languages; symbols, numbers and names of methods are the same in both. The drawing is 640 wide with
text of 17, so that a phone at 360 pixels still shows it legibly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from slides.words import Pair

WIDTH = 640
COLOURS = ("#3569ad", "#d9822b", "#3c8d5a", "#7a3fa0", "#c0392b", "#5f6c7b", "#0f8a8a", "#a0522d")
INK, MUTED, GRID = "#1f2933", "#5f6c7b", "#d5dbe1"


@dataclass(frozen=True)
class Series:
    """Points of one method: ``(x, y)`` with a text that says what each is."""

    name: str
    points: Sequence[tuple[float, float, str]]
    joined: bool = True


@dataclass(frozen=True)
class Ratio:
    """A ratio with its 95 % interval, or none."""

    label: str
    value: float
    interval: tuple[float, float] | None
    note: str


def label(x: float, y: float, words: Pair | str, *, anchor: str = "start", size: float = 17, colour: str = INK) -> str:
    """Text in the drawing, in one or both languages (escaped)."""
    shared = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}" fill="{colour}"'
    if isinstance(words, str):
        return f"<text {shared}>{escape(words)}</text>"
    kinds = (("en", "en"), ("zh", "zh-Hans"))
    return "".join(
        f'<text class="{kind}" lang="{code}" {shared}>{escape(text)}</text>'
        for (kind, code), text in zip(kinds, words, strict=True)
    )


def frame(height: float, content: str, words: Pair) -> str:
    """The drawing as a figure that screen readers can name."""
    title = f"<title>{escape(words[0])} · {escape(words[1])}</title>"
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {height:g}" role="img">{title}{content}</svg>'


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that span the range.

    >>> ticks(0.012, 0.034)
    [0.015, 0.02, 0.025, 0.03]
    """
    raw = (high - low) / about
    scale = 10 ** math.floor(math.log10(raw))
    step = next(each * scale for each in (1, 2, 2.5, 5, 10) if each * scale >= raw)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def scatter(
    series: Sequence[Series], x_words: Pair, y_words: Pair, title: Pair, height: float = 470, level: float | None = None
) -> str:
    """Methods as joined points, the legend above, round ticks; ``level`` draws a dashed horizontal line."""
    points = [point for each in series for point in each.points]
    columns, line = 2, 24
    rows = math.ceil(len(series) / columns)
    left, right, top, bottom = 94.0, WIDTH - 14.0, 22.0 + rows * line, height - 58.0
    to_x = _scale([point[0] for point in points], left, right)
    to_y = _scale([point[1] for point in points], bottom, top)
    parts = []
    for value in ticks(*_range([point[0] for point in points])):
        parts.append(_line(to_x(value), top, to_x(value), bottom))
        parts.append(label(to_x(value), bottom + 22, f"{value:g}", anchor="middle", colour=MUTED))
    for value in ticks(*_range([point[1] for point in points])):
        parts.append(_line(left, to_y(value), right, to_y(value)))
        parts.append(label(left - 8, to_y(value) + 6, f"{value:g}", anchor="end", colour=MUTED))
    if level is not None:
        dashes = 'stroke-width="2" stroke-dasharray="3 5"'
        at = f'x1="{left}" x2="{right}" y1="{to_y(level):.1f}" y2="{to_y(level):.1f}"'
        parts.append(f'<line {at} stroke="{INK}" {dashes}/>')
    for number, each in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        shown = sorted(each.points)
        if each.joined and len(shown) > 1:
            path = " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y, _ in shown)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" opacity=".55"/>')
        for x, y, note in shown:
            mark = _mark(number, to_x(x), to_y(y), colour)
            parts.append(f"<g>{mark}<title>{escape(each.name)}: {escape(note)}</title></g>")
        at_x, at_y = 14 + (number % columns) * (WIDTH / columns), 18 + (number // columns) * line
        parts.append(_mark(number, at_x, at_y - 5, colour) + label(at_x + 14, at_y, each.name, size=16))
    parts.append(label((left + right) / 2, height - 10, x_words, anchor="middle"))
    middle = (top + bottom) / 2
    parts.append(f'<g transform="rotate(-90 18 {middle:.1f})">{label(18, middle, y_words, anchor="middle")}</g>')
    return frame(height, "".join(parts), title)


def bars(rows: Sequence[tuple[str, float, str]], title: Pair, highlight: Sequence[str] = ()) -> str:
    """Horizontal bars from zero: name, value, and the text at the bar's end."""
    line, left, end = 42, 262, 96
    longest = max(value for _, value, _ in rows)
    parts = []
    for number, (name, value, words) in enumerate(rows):
        y = 8 + number * line
        width = (WIDTH - left - end) * value / longest
        colour = COLOURS[3] if name in highlight else COLOURS[0]
        parts.append(label(left - 12, y + 22, name, anchor="end", size=16))
        parts.append(f'<rect x="{left}" y="{y + 4}" width="{width:.1f}" height="24" rx="4" fill="{colour}"/>')
        parts.append(label(left + width + 8, y + 22, words, size=16, colour=MUTED))
    return frame(16 + line * len(rows), "".join(parts), title)


def ratios(rows: Sequence[Ratio], title: Pair) -> str:
    """Ratios on a logarithmic axis with the line of no difference at 1."""
    line, left, right = max(38, min(50, 460 // len(rows))), 268.0, WIDTH - 84.0
    size = 17 if line > 44 else 15.5
    ends = [end for row in rows for end in (row.value, *(row.interval or ()))]
    low, high = min(0.8, *ends) / 1.08, max(1.25, *ends) * 1.08
    bottom = 14.0 + line * len(rows)

    def to_x(value: float) -> float:
        return left + (right - left) * math.log(value / low) / math.log(high / low)

    parts, labelled = [], [1.0]
    # The first named are labelled where two would touch.
    for value in (1, 2, 4, 0.5, 8, 1.5, 3, 0.8, 1.25, 6, 0.67):
        if low <= value <= high:
            parts.append(_line(to_x(value), 6, to_x(value), bottom, INK if value == 1 else GRID))
            if value == 1 or all(abs(to_x(value) - to_x(other)) > 46 for other in labelled):
                labelled.append(value)
                parts.append(label(to_x(value), bottom + 22, f"{value:g}×", anchor="middle", size=16, colour=MUTED))
    for number, row in enumerate(rows):
        y = 30 + number * line
        colour = _verdict_colour(row.interval)
        parts.append(label(left - 14, y, row.label, anchor="end", size=size))
        parts.append(label(left - 14, y + size, row.note, anchor="end", size=size - 3, colour=MUTED))
        if row.interval is not None:
            a, b = to_x(row.interval[0]), to_x(row.interval[1])
            parts.append(f'<line x1="{a:.1f}" x2="{b:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="4"/>')
        fill = colour if row.interval is not None else "#fff"
        parts.append(
            f'<circle cx="{to_x(row.value):.1f}" cy="{y}" r="7" fill="{fill}" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(label(WIDTH - 8, y + 6, f"{row.value:.2f}×", anchor="end", size=16))
    return frame(bottom + 34, "".join(parts), title)


def _verdict_colour(interval: tuple[float, float] | None) -> str:
    """Green above 1, red below, grey where the interval holds 1 or there is none."""
    if interval is None or interval[0] <= 1 <= interval[1]:
        return COLOURS[5]
    return COLOURS[2] if interval[0] > 1 else COLOURS[4]


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or abs(high) * 0.05 or 1.0
    return low - margin, high + margin


def _scale(values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    low, high = _range(values)
    return lambda value: start + (end - start) * (value - low) / (high - low)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _mark(number: int, x: float, y: float, colour: str) -> str:
    """Shapes differ as well as colours."""
    shape = number % 4
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{colour}"/>'
    if shape == 1:
        return f'<rect x="{x - 5.5:.1f}" y="{y - 5.5:.1f}" width="11" height="11" fill="{colour}"/>'
    if shape == 2:
        square = f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{colour}"'
        return f'{square} transform="rotate(45 {x:.1f} {y:.1f})"/>'
    return f'<path d="M{x:.1f} {y - 7:.1f} l7 12 h-14 z" fill="{colour}"/>'
