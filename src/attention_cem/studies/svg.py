"""A small SVG writer: boxes, arrows and text in a few fixed styles. Everything written is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

FONT = "'Inter','Segoe UI','Helvetica Neue',Arial,'Noto Sans CJK SC','PingFang SC','Microsoft YaHei',sans-serif"
MONO = "'JetBrains Mono','SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace"
INK, QUIET, PAPER = "#1f2933", "#5f6c7b", "#ffffff"


class Svg:
    """Collects elements and writes them as one document.

    >>> picture = Svg(100, 40, "A box")
    >>> picture.box(5, 5, 90, 30, fill="#eee", stroke="#333")
    >>> picture.text(50, 24, "a < b")
    >>> "a &lt; b" in picture.document()
    True
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._parts: list[str] = []
        self._colours: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        stroke: str,
        radius: float = 10,
        dashed: bool = False,
        stroke_width: float = 1.5,
    ) -> None:
        """A rounded rectangle."""
        dash = ' stroke-dasharray="6 5"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="{stroke_width:g}"{dash}/>'
        )

    def circle(self, x: float, y: float, radius: float, *, fill: str) -> None:
        """A disc."""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}"/>')

    def text(
        self,
        x: float,
        y: float,
        content: str,
        *,
        size: float = 14,
        colour: str = INK,
        weight: int = 400,
        anchor: str = "middle",
        mono: bool = False,
        widest: float | None = None,
    ) -> None:
        """One line of text; ``widest`` makes it smaller where it would be wider."""
        if widest is not None:
            size = min(size, size * widest / max(text_width(content, size, mono=mono), 1))
        family = MONO if mono else FONT
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-family="{family}" font-size="{size:.4g}" font-weight="{weight}" '
            f'fill="{colour}" text-anchor="{anchor}">{escape(content)}</text>'
        )

    def arrow(self, points: Sequence[tuple[float, float]], *, colour: str = INK, dashed: bool = False) -> None:
        """A line through the points with a head at the last one; corners are rounded."""
        if colour not in self._colours:
            self._colours.append(colour)
        dash = ' stroke-dasharray="7 5"' if dashed else ""
        head = f' marker-end="url(#head{self._colours.index(colour)})"'
        self._parts.append(
            f'<path d="{_rounded(points)}" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-linejoin="round"{dash}{head}/>'
        )

    def document(self) -> str:
        """The SVG text."""
        width, height = self._size
        heads = "".join(
            f'<marker id="head{number}" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0.8 L9 5 L0 9.2 z" fill="{colour}"/></marker>'
            for number, colour in enumerate(self._colours)
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img"><title>{escape(self._title)}</title><defs>{heads}</defs>'
            f'<rect width="100%" height="100%" fill="{PAPER}"/>' + "\n".join(self._parts) + "</svg>\n"
        )


def text_width(content: str, size: float, *, mono: bool = False) -> float:
    """About how wide a line of text is; Chinese characters are as wide as high.

    >>> text_width("注意", 10)
    20.0
    """
    narrow = 0.6 if mono else 0.5
    return sum(1.0 * size if ord(character) > 0x2E7F else narrow * size for character in content)


def _rounded(points: Sequence[tuple[float, float]], radius: float = 10) -> str:
    path = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before, radius), _towards(corner, after, radius)
        path.append(f"L{start[0]:g} {start[1]:g} Q{corner[0]:g} {corner[1]:g} {end[0]:g} {end[1]:g}")
    path.append(f"L{points[-1][0]:g} {points[-1][1]:g}")
    return " ".join(path)


def _towards(start: tuple[float, float], end: tuple[float, float], distance: float) -> tuple[float, float]:
    length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
    share = min(1.0, distance / length) if length else 0.0
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])
