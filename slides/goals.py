"""The goals of results/comparisons.toml in both languages, and where results/summary.json says we stand."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from html import escape
from typing import Any

from slides.sources import Shelf
from slides.words import Pair, both, table

SETTINGS = "results/comparisons.toml"
_DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "lfw158": "LFW-158", "tinyimagenet20": "Tiny-ImageNet-20"}
_METHODS = {
    "kmeans_published": ("k-means as published", "已发表的 k-means"),
    "kmeans_best": ("k-means at its best", "调到最好的 k-means"),
    "noise": ("noise alone", "仅加噪声"),
    "none": ("no CEM", "不用 CEM"),
    "arl_sound": ("sound + ARL", "sound 加 ARL"),
    "adversary_sound": ("sound + ARL", "sound 加 ARL"),
}


def goal_table(shelf: Shelf, targets: list[Mapping[str, Any]]) -> str:
    """One row a goal: what, threshold, figure, met or not."""
    path = shelf.root / SETTINGS
    settings = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    stated = {str(each["name"]): each for each in settings.get("target", [])}
    rows = []
    for target in targets:
        words, threshold = in_words(target, stated.get(str(target["name"]), {}))
        goal = f'{both(*words)}<br><span class="note">{both(*threshold)}</span>'
        rows.append([goal, _figure(target["figure"]), _met(target)])
    return table((("goal", "目标"), ("figure", "数值"), ("met", "达成")), rows)


def in_words(target: Mapping[str, Any], stated: Mapping[str, Any]) -> tuple[Pair, Pair]:
    """Goal and threshold in both languages; as the summary has them where the settings do not state the goal.

    >>> in_words({"name": "n", "threshold": "t"}, {"cost_of": "sound", "cost_over": "none", "ratio_at_most": 1.1})
    (('Training cost: sound over no CEM', '训练开销：sound 比不用 CEM'), ('≤ 1.1×', '≤ 1.1×'))
    """
    plain = escape(str(target["threshold"]))
    if "comparison" in stated:
        data, key = str(stated["comparison"]).split(".", 1)
        (a_en, a_zh), (b_en, b_zh) = (_method(name) for name in key.split("_vs_", 1))
        least, above = stated["gain_at_least"], stated.get("ci95_above")
        words = (f"{_data(data)}: {a_en} against {b_en}", f"{_data(data)}：{a_zh} 对{_spaced(b_zh)}")
        if above is None:
            return words, (f"MSE ≥ {least:g}×", f"MSE ≥ {least:g}×")
        return words, (f"MSE ≥ {least:g}×, interval above {above:g}", f"MSE ≥ {least:g}×，区间高于 {above:g}")
    if "method" in stated:
        data, budget = (str(stated[key]) for key in ("data", "budget"))
        methods = [stated["method"]] if isinstance(stated["method"], str) else stated["method"]
        name_en, name_zh = (" / ".join(dict.fromkeys(names)) for names in zip(*map(_method, methods), strict=True))
        accuracy, mse = 100 * stated["accuracy_at_least"], stated["mse_at_least"]
        words = (
            f"{_data(data)}: {name_en}, worst of {escape(budget)} attacks",
            f"{_data(data)}：{name_zh}，{escape(budget)} 攻击下的最坏情况",
        )
        return words, (f"MSE ≥ {mse:g} at ≥ {accuracy:g} % accuracy", f"准确率 ≥ {accuracy:g} % 时 MSE ≥ {mse:g}")
    if "cost_of" in stated:
        (a_en, a_zh), (b_en, b_zh) = (_method(str(stated[key])) for key in ("cost_of", "cost_over"))
        limit = f"≤ {stated['ratio_at_most']:g}×" if "ratio_at_most" in stated else plain.replace("&lt;", "<")
        words = (f"Training cost: {a_en} over {b_en}", f"训练开销：{a_zh} 比{_spaced(b_zh)}")
        return words, (escape(limit), escape(limit))
    name = escape(str(target["name"]))
    return (name, name), (plain, plain)


def _data(name: str) -> str:
    return _DATA.get(name, escape(name))


def _method(name: str) -> Pair:
    return _METHODS.get(name, (escape(name), escape(name)))


def _spaced(words: str) -> str:
    """Chinese type sets a space between Chinese and Latin letters, and none between Chinese ones."""
    return f" {words}" if words[:1].isascii() else words


def _figure(figure: float | None) -> str:
    return "–" if figure is None else f'<span class="number">{figure:.3g}</span>'


def _met(target: Mapping[str, Any]) -> str:
    if target["met"] is None:
        return f'<span class="open">{both("open", "待定")}</span>'
    if not target["met"]:
        return f'<span class="no">{both("no", "否")}</span>'
    words = ("yes", "是")
    if target.get("proven") is False:
        words = (
            ("yes, by screening", "是（仅筛选攻击）")
            if target.get("screened")
            else ("yes, not every receipt passes", "是（并非所有凭据都通过）")
        )
    if target.get("confirmed_in"):
        words = (f"{words[0]} †", f"{words[1]} †")
    return f'<span class="yes">{both(*words)}</span>'
