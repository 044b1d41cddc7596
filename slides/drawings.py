"""The deck's own sketches as inline SVG: no numbers in them, only who sends what to whom."""

from __future__ import annotations

from zlib import crc32

from slides.charts import INK, MUTED, frame, label
from slides.words import Pair

GREEN, BLUE, RED, PURPLE, AMBER = "#3c8d5a", "#3569ad", "#c0392b", "#7a3fa0", "#b7791f"
_SOFT = {GREEN: "#eaf6ee", BLUE: "#e9f1fb", RED: "#fbecea", PURPLE: "#f3ecf8", AMBER: "#fbf3e2", MUTED: "#f1f4f6"}


def box(x: float, y: float, width: float, height: float, colour: str, head: Pair | str, *lines: Pair | str) -> str:
    """A rounded box with a head and further lines, centred."""
    middle = x + width / 2
    drawn = (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="12" fill="{_SOFT[colour]}" stroke="{colour}" '
        'stroke-width="2"/>'
    )
    first = y + height / 2 - 12 * len(lines) + 7
    drawn += label(middle, first, head, anchor="middle", size=22, colour=colour)
    for number, line in enumerate(lines):
        drawn += label(middle, first + 27 * (number + 1), line, anchor="middle", size=18)
    return drawn


def arrow(path: str, colour: str = INK, *, dashed: bool = False) -> str:
    """A line along an SVG path with a head at its end."""
    dash = ' stroke-dasharray="7 6"' if dashed else ""
    # Its own head for every arrow: one that another, hidden slide defines would not be drawn.
    name = f"head-{crc32((path + colour).encode()):08x}"
    marker = (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 1 L9 5 L0 9 z" fill="{colour}"/></marker>'
    )
    line = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2.6" marker-end="url(#{name})"{dash}/>'
    return f"<defs>{marker}</defs>{line}"


def who_sends_what() -> str:
    """Device, feature, server, and the one who listens."""
    parts = [
        box(8, 30, 190, 120, GREEN, ("Your device", "你的设备"), ("photo x → client", "照片 x → 客户端")),
        box(442, 30, 190, 120, BLUE, ("Server", "服务器"), ("z → class y", "z → 类别 y")),
        arrow("M202 90 H436"),
        f'<circle cx="319" cy="90" r="30" fill="#fff" stroke="{INK}" stroke-width="2"/>',
        label(319, 98, "z", anchor="middle", size=26),
        arrow("M319 122 V196", RED, dashed=True),
        box(204, 202, 230, 82, RED, ("Whoever sees z", "看到 z 的人"), ("tries to rebuild x", "想把 x 还原出来")),
    ]
    return frame(296, "".join(parts), ("Split inference", "协同推理"))


_GROUPS = (
    (112, 118, GREEN, ((-52, -26), (-38, 34), (16, -48), (46, 18), (4, 50))),
    (232, 236, BLUE, ((-48, -20), (-22, 44), (28, -38), (50, 22))),
    (92, 316, AMBER, ((-44, -16), (40, -26), (-20, 36), (42, 24))),
)


def class_room() -> str:
    """Left: captains and their groups. Right: a roll call with weights."""
    parts = [label(160, 24, ("Captains: slot attention", "选队长：槽注意力"), anchor="middle", size=21, colour=PURPLE)]
    for x, y, colour, members in _GROUPS:
        for dx, dy in members:
            parts.append(f'<line x1="{x}" y1="{y}" x2="{x + dx}" y2="{y + dy}" stroke="{colour}" stroke-width="1.6"/>')
        parts += [_pupil(x + dx, y + dy, 9, colour) for dx, dy in members]
        parts.append(_star(x, y, 17, colour))
    parts.append(label(160, 392, ("★ slot   ● sample", "★ 槽（队长）  ● 样本（学生）"), anchor="middle", size=18))
    parts.append(f'<line x1="330" y1="44" x2="330" y2="384" stroke="{MUTED}" stroke-dasharray="3 6"/>')
    parts.append(
        label(486, 24, ("Roll call: gated attention", "点名：门控注意力"), anchor="middle", size=21, colour=PURPLE)
    )
    for number, weight in enumerate((0.5, 1.0, 0.32, 0.72, 0.42, 0.6)):
        y = 72 + 50 * number
        parts.append(_pupil(372, y, 11, BLUE))
        bar = f'x="398" y="{y - 9}" width="{190 * weight:.0f}" height="18" rx="5"'
        parts.append(f'<rect {bar} fill="{PURPLE}" opacity=".75"/>')
    words = ("how much each counts", "每个人占多大分量")
    parts.append(label(486, 392, words, anchor="middle", size=18))
    return frame(404, "".join(parts), ("The class room", "课堂比喻"))


def merge_at_cut() -> str:
    """Forward along the top, the two gradients meeting at the cut, one backward through the client."""
    parts = [
        box(8, 40, 170, 150, GREEN, ("Client", "客户端"), ("on the device", "在设备上")),
        box(462, 40, 170, 150, BLUE, ("Server", "服务端"), ("gets L_D alone", "只收 L_D 的梯度")),
        arrow("M182 72 H456"),
        label(319, 60, ("z + noise", "z + 噪声"), anchor="middle", size=19),
        arrow("M458 158 H344", BLUE),
        label(402, 188, "∂L_D/∂z", anchor="middle", size=19, colour=BLUE),
        f'<circle cx="319" cy="158" r="21" fill="#fff" stroke="{INK}" stroke-width="2.4"/>',
        label(319, 166, "+", anchor="middle", size=26),
        arrow("M295 158 H184", GREEN),
        label(240, 188, ("one backward", "只反传一次"), anchor="middle", size=18, colour=GREEN),
        arrow("M319 256 V184", PURPLE),
        label(332, 228, "λ · ∂rob/∂z", size=19, colour=PURPLE),
        box(214, 260, 210, 82, PURPLE, ("Surrogate", "代理损失"), ("own gradient, no λ", "自身梯度，不乘 λ")),
    ]
    return frame(352, "".join(parts), ("Merge at the cut", "在切分点合并梯度"))


def sealed_audit() -> str:
    """Challenge, attacks, receipts, headline; the answers take another way."""
    parts = [
        box(8, 22, 190, 96, GREEN, ("Challenge", "挑战文件夹"), ("hashed, sealed", "哈希封存")),
        box(226, 22, 190, 96, RED, ("Attacks", "攻击"), ("know the defence", "知道防御细节")),
        box(444, 22, 188, 96, AMBER, ("Receipts", "凭据"), ("fair chance given?", "攻击够不够强？")),
        arrow("M200 70 H220"),
        arrow("M418 70 H438"),
        box(8, 206, 190, 96, MUTED, ("Answers", "答案"), ("scorer's eyes only", "只给评分者看")),
        box(330, 206, 302, 96, PURPLE, ("Headline", "结论"), ("worst case that may be quoted", "可以引用的最坏情况")),
        arrow("M538 120 V200"),
        arrow("M200 254 H324", MUTED, dashed=True),
        label(262, 244, ("score", "评分"), anchor="middle", size=18, colour=MUTED),
    ]
    return frame(314, "".join(parts), ("Audit", "审计"))


def _pupil(x: float, y: float, radius: float, colour: str) -> str:
    return f'<circle cx="{x}" cy="{y}" r="{radius}" fill="#fff" stroke="{colour}" stroke-width="3"/>'


def _star(x: float, y: float, size: float, colour: str) -> str:
    path = "M0 -1 L.26 -.31 L1 -.28 L.42 .17 L.62 .87 L0 .46 L-.62 .87 L-.42 .17 L-1 -.28 L-.26 -.31 Z"
    return f'<path d="{path}" fill="{colour}" transform="translate({x} {y}) scale({size})"/>'
