"""What attackers with augmented images find more: measured on the same clients, told beside figures made without."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.publish_stamps import AUGMENTED_FIGURES

PAGE = "benchmarks/RESULTS.md"


@dataclass(frozen=True)
class Found:
    """How the MSE of both sides changes, as shares, lowest and highest; and the ratio of ours to theirs, both ways."""

    study: str
    ours: tuple[float, float]
    theirs: tuple[float, float]
    without: float
    with_them: float


def augmented_gain(root: Path) -> Found | None:
    """The measurement; None where it was not made."""
    file = root / AUGMENTED_FIGURES
    if not file.is_file():
        return None
    content = json.loads(file.read_text(encoding="utf-8"))
    of: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for run in content["runs"]:
        attacks = run["attacks"]
        of["sound" in run["method"]].append((attacks["plain"]["mse"], attacks["augmented"]["mse"]))
    changes = {ours: [found / before - 1 for before, found in pairs] for ours, pairs in of.items()}
    ratios = [fmean(pair[at] for pair in of[True]) / fmean(pair[at] for pair in of[False]) for at in (0, 1)]
    ends = {ours: (min(each), max(each)) for ours, each in changes.items()}
    return Found(content["study"], ends[True], ends[False], *ratios)


def augmented_words(found: Found | None, records: Sequence[Mapping[str, Any]], *, chinese: bool = False) -> str:
    """How many answers were read without such attackers, and what that is worth; empty where none was."""
    without = sum(record["augmented"] < record["receipts"]["runs"] for record in records)
    if not without:
        return ""
    if chinese:
        told = (
            f"**{len(records)} 个答案中有 {without} 个的攻击没有增广图像：**拿到客户端的人"
            "还可以裁剪、翻转图像，自制特征来训练"
        )
        if found is None:
            return f"{told}。"
        return (
            f"{told}。在 `{found.study}` 上，这使我们的 MSE 降低 {_percent(found.ours, chinese)}，k-means CEM 的只变化 "
            f"{_percent(found.theirs, chinese)}（[测量]({PAGE})）：{found.without:.2f}× 变为 {found.with_them:.2f}×。"
            "因此凡前者为我们的方法，比值都偏高。现在的审计都有这样的攻击，没有它的凭据不计为通过。"
        )
    told = (
        f"**{without} of these {len(records)} answers were attacked without augmented images:** whoever has the client "
        "can also crop and mirror images, make features of those, and train on them"
    )
    if found is None:
        return f"{told}."
    return (
        f"{told}. In `{found.study}` that takes {_percent(found.ours, chinese)} from the MSE of ours and moves that of "
        f"k-means CEM by {_percent(found.theirs, chinese)} ([measured]({PAGE})): {found.without:.2f}× becomes "
        f"{found.with_them:.2f}×. So a ratio of which the first is ours is too high. Audits have such attacks now, and "
        "a receipt without them does not count as passing."
    )


def _percent(ends: tuple[float, float], chinese: bool) -> str:
    """
    >>> _percent((-0.143, -0.123), False), _percent((-0.001, 0.002), False)
    ('12 to 14 %', '-0.1 to +0.2 %')
    """
    low, high = ends
    to = "至" if chinese else "to"
    if high < -0.01:
        return f"{-100 * high:.0f} {to} {-100 * low:.0f} %"
    return f"{100 * low:+.1f} {to} {100 * high:+.1f} %"
