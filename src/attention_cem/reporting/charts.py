"""Charts as inline SVG. Marks carry their figures in ``data-tip``; the page's script shows them on hover and focus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from attention_cem.reporting.texts import figure, label, percent

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 22, 14, 44
COLOURS = ("#3b6fd4", "#d9480f", "#2b8a3e", "#9c36b5", "#0b7285", "#a61e4d", "#5f3dc4", "#7d6608")


@dataclass(frozen=True)
class Mark:
    """A point of a chart: where, its interval, what hovering says, and whether it is drawn filled."""

    x: float
    y: float
    tip: str
    colour: str
    low: float | None = None
    high: float | None = None
    filled: bool = True


@dataclass(frozen=True)
class Line:
    """A line through points, in order."""

    points: Sequence[tuple[float, float]]
    colour: str
    label: str = ""
    dashed: bool = False


@dataclass(frozen=True)
class Scale:
    """Values to pixels along one axis."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values inside the range, about five.

        >>> Scale(0.0, 1.0, 0, 100).ticks()
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        """
        raw = (self.high - self.low) / 5
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(index * step, 12) + 0.0 for index in range(first, last + 1)]


def scale_for(values: Sequence[float], start: float, end: float, *, margin: float = 0.06) -> Scale:
    """A scale that holds all values with some room; a single value gets a range around it."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = (high - low) * margin or abs(high) * 0.1 or 0.5
    return Scale(low - room, high + room, start, end)


def xy_chart(
    marks: Sequence[Mark],
    lines: Sequence[Line] = (),
    *,
    x_key: str,
    y_key: str | None,
    x_percent: bool = False,
    floor: float | None = None,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Markup:
    """Points and lines on two linear axes.

    Args:
        marks: what can be hovered.
        lines: drawn below the marks.
        x_key: key of the x axis's name in the table of words. y_key: the same of the y axis; None where the chart's
            title says it already.
        x_percent: write x as percentages.
        floor: y of a dotted line for one who sees nothing.
        width: of the drawing. height: the same.
    """
    xs = [mark.x for mark in marks] + [x for line in lines for x, _ in line.points]
    ys = [value for mark in marks for value in (mark.y, mark.low, mark.high) if value is not None]
    ys += [y for line in lines for _, y in line.points] + ([floor] if floor is not None else [])
    to_x, to_y = scale_for(xs, _LEFT, width - _RIGHT), scale_for(ys, height - _BOTTOM, _TOP)
    parts = [_axes(to_x, to_y, x_key, y_key, x_percent, width, height)]
    if floor is not None:
        y = to_y(floor)
        parts.append(
            Markup('<line class="floor" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>').format(_LEFT, width - _RIGHT, y)
            + _text(_LEFT + 6, y - 5, "floor", "start")
        )
    for line in lines:
        points = " ".join(f"{to_x(x)},{to_y(y)}" for x, y in line.points)
        parts.append(
            Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="2"{}/>').format(
                points, line.colour, Markup(' stroke-dasharray="5 4"') if line.dashed else ""
            )
        )
    for mark in marks:
        x = to_x(mark.x)
        if mark.low is not None and mark.high is not None:
            parts.append(
                Markup('<line x1="{0}" x2="{0}" y1="{1}" y2="{2}" stroke="{3}" stroke-width="1.5"/>').format(
                    x, to_y(mark.low), to_y(mark.high), mark.colour
                )
            )
        parts.append(
            Markup('<circle class="mark" tabindex="0" role="img" cx="{}" cy="{}" r="{}" stroke="{}" fill="{}" ').format(
                x, to_y(mark.y), 6 if len(marks) < 60 else 3, mark.colour, mark.colour if mark.filled else "none"
            )
            + Markup('data-tip="{0}" aria-label="{0}"/>').format(mark.tip)
        )
    return _svg(parts, width, height)


def bar_chart(rows: Sequence[tuple[str, float]], *, floor: float | None = None, colour: str = COLOURS[0]) -> Markup:
    """Horizontal bars from zero, one a name."""
    height, left, width = 18, 150, WIDTH
    top = max([value for _, value in rows] + ([floor] if floor is not None else []), default=1.0) or 1.0
    parts = []
    for index, (name, value) in enumerate(rows):
        y = index * height + 4
        long = round(max(0.0, value) / top * (width - left - 70), 1)
        short = name if len(name) <= 18 else name[:17] + "…"
        tip = f"{name}: {figure(value)}"
        parts.append(
            Markup(
                '<text x="{}" y="{}" text-anchor="end">{}</text>'
                '<rect class="mark" tabindex="0" role="img" x="{}" y="{}" width="{}" height="{}" fill="{}" '
                'data-tip="{}" aria-label="{}"/><text x="{}" y="{}">{}</text>'
            ).format(
                left - 6,
                y + 11,
                short,
                left,
                y,
                long,
                height - 5,
                colour,
                tip,
                tip,
                left + long + 5,
                y + 11,
                figure(value, 3),
            )
        )
    drawn = len(rows) * height + 8
    if floor is not None:
        x = round(left + floor / top * (width - left - 70), 1)
        parts.append(
            Markup('<line class="floor" x1="{0}" x2="{0}" y1="0" y2="{1}"/>').format(x, drawn)
            + _text(x, drawn + 12, "floor", "middle")
        )
        drawn += 18
    return _svg(parts, width, drawn)


def heat_map(shares: Sequence[Sequence[float]], row_names: Sequence[str]) -> Markup:
    """One row a class, one column a slot; the darker the larger."""
    columns = max(map(len, shares))
    left, cell_w, cell_h = 110, min(60, (WIDTH - 130) // columns), max(7, min(18, 720 // len(shares)))
    parts = []
    for row, (name, values) in enumerate(zip(row_names, shares, strict=True)):
        y = row * cell_h
        if cell_h >= 10:
            short = name if len(name) <= 13 else name[:12] + "…"
            parts.append(
                Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(left - 6, y + cell_h - 3, short)
            )
        for column, value in enumerate(values):
            tip = f"{name}, #{column + 1}: {percent(value)}"
            parts.append(
                Markup(
                    '<rect class="cell mark" tabindex="-1" x="{}" y="{}" width="{}" height="{}" '
                    'fill-opacity="{}" data-tip="{}"/>'
                ).format(left + column * cell_w, y, cell_w - 1, cell_h - 1, round(min(1.0, max(0.0, value)), 3), tip)
            )
    height = len(shares) * cell_h
    parts += [
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            left + (column + 0.5) * cell_w, height + 14, column + 1
        )
        for column in range(columns)
    ]
    parts.append(_text(left + columns * cell_w / 2, height + 30, "slot", "middle"))
    return _svg(parts, left + columns * cell_w + 20, height + 36)


def histogram(values: Sequence[float], bins: int = 20) -> Markup:
    """How many shares lie in each twentieth of [0, 1]."""
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, max(0, int(value * bins)))] += 1
    to_x, to_y = Scale(0, 1, _LEFT, WIDTH - _RIGHT), Scale(0, max(*counts, 1) * 1.08, 220 - _BOTTOM, _TOP)
    parts = [_axes(to_x, to_y, "share", "how_many", True, WIDTH, 220)]
    for index, count in enumerate(counts):
        x, y = to_x(index / bins), to_y(count)
        tip = f"{percent(index / bins, 0)} – {percent((index + 1) / bins, 0)}: {count}"
        parts.append(
            Markup(
                '<rect class="mark" tabindex="-1" x="{}" y="{}" width="{}" height="{}" fill="{}" data-tip="{}"/>'
            ).format(x + 1, y, round(to_x(1 / bins) - to_x(0) - 2, 1), round(220 - _BOTTOM - y, 1), COLOURS[0], tip)
        )
    return _svg(parts, WIDTH, 220)


def _axes(to_x: Scale, to_y: Scale, x_key: str, y_key: str | None, x_percent: bool, width: int, height: int) -> Markup:
    parts = []
    for value in to_x.ticks():
        parts.append(
            Markup('<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
                to_x(value), _TOP, height - _BOTTOM
            )
            + Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
                to_x(value),
                height - _BOTTOM + 15,
                percent(value, 0 if value == round(value, 2) else 1) if x_percent else figure(value),
            )
        )
    for value in to_y.ticks():
        parts.append(
            Markup('<line class="grid" x1="{1}" x2="{2}" y1="{0}" y2="{0}"/>').format(
                to_y(value), _LEFT, width - _RIGHT
            )
            + Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(
                _LEFT - 6, to_y(value) + 4, figure(value)
            )
        )
    middle = (_TOP + height - _BOTTOM) / 2
    parts.append(_text((_LEFT + width - _RIGHT) / 2, height - 8, x_key, "middle"))
    if y_key is not None:
        turned = Markup('<g transform="rotate(-90 12 {})">').format(middle)
        parts.append(turned + _text(12, middle, y_key, "middle") + Markup("</g>"))
    return Markup("").join(parts)


def _text(x: float, y: float, key: str, anchor: str) -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(
        round(x, 1), round(y, 1), anchor, label(key, "tspan")
    )


def _svg(parts: Sequence[Markup], width: float, height: float) -> Markup:
    return Markup('<svg viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="group">{2}</svg>').format(
        round(width), round(height), Markup("").join(parts)
    )


def legend(names: Sequence[tuple[str, str]]) -> Markup:
    """Colours and names as a line of text."""
    return Markup("").join(
        Markup(
            '<span class="key"><svg width="12" height="12"><circle cx="6" cy="6" r="5" fill="{}"/></svg> {}</span>'
        ).format(colour, name)
        for name, colour in names
    )
