"""Results: the trade-off and the comparisons at equal accuracy, every number read from a result file at build time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from statistics import fmean, median
from typing import Any

from slides import charts
from slides.goals import SETTINGS, goal_table
from slides.sources import Shelf
from slides.story import missing
from slides.words import Pair, Slide, bullets, columns, paragraph

RESULTS = ("Results", "结果")
SUMMARY = "results/summary.json"
_ACROSS = ("accuracy, %", "准确率（%）")
_WORST = ("worst-case MSE (higher is more private)", "最坏情况 MSE（越高越安全）")
_INVERTER = ("inverter MSE (higher is more private)", "反演 MSE（越高越安全）")
_AGAINST = (
    "sound_mirrored_vs_kmeans_best_mirrored",
    "sound_attention_mirrored_vs_kmeans_best_mirrored",
    "sound_vs_kmeans_best",
    "sound_vs_noise",
    "sound_vs_kmeans_published",
    "sound_attention_mirrored_vs_sound_mirrored",
    "slots_vs_kmeans_best",
)
_MIRRORED = "_mirrored"
_MOST_SERIES, _MOST_RATIOS, _MOST_COMMITS = 8, 13, 5


def trade_off(shelf: Shelf) -> Slide:
    """Accuracy against the attacker's error: of the study that speaks for CIFAR-10, else of the exploration."""
    summary = shelf.data(SUMMARY) or {}
    study = speaking_study(summary.get("comparisons", {}).get("cifar10", {}))
    return _explored(shelf) if study is None else _studied(shelf, summary, study)


def speaking_study(comparisons: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The study most of the comparisons of a data set come from.

    >>> speaking_study({"a_vs_b": {"study": "main"}, "a_vs_c": {"study": "main"}, "a_vs_d": {"study": "data"}})
    'main'
    """
    names = [str(record["study"]) for record in comparisons.values()]
    return max(sorted(set(names)), key=names.count) if names else None


def _studied(shelf: Shelf, summary: Mapping[str, Any], study: str) -> Slide:
    on_data = [cell for cell in summary["cells"] if cell["data"] == "cifar10"]
    # An experiment may join several studies under a name of its own; then all results on the data set belong to it.
    cells = [cell for cell in on_data if cell["shown_in"] == study] or on_data
    cells = list({(cell["study"], cell["cell"]): cell for cell in cells}.values())  # several studies may list a run
    groups: dict[str, dict[tuple[Any, Any], list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        groups[str(cell["method"])][(cell["strength"], cell["sigma"])].append(cell)
    compared = [str(record[side]) for record in summary["comparisons"]["cifar10"].values() for side in ("a", "b")]
    # Methods that the next slide compares come first; the rest as far as colours reach.
    names = sorted(groups, key=lambda name: (name not in compared, -len(groups[name]), name))
    every = [each for each in _without_chance([_series(name, groups[name]) for name in names]) if each.points]
    series = every[:_MOST_SERIES]
    chart = charts.scatter(series, _ACROSS, _WORST, ("Trade-off on CIFAR-10", "CIFAR-10 上的权衡"))
    seeds, runs = len({cell["seed"] for cell in cells}), len(cells)
    budgets = escape(", ".join(sorted({str(cell["budget"]) for cell in cells})))
    commits = sorted({str(cell["commit"])[:9] for cell in cells})
    text = bullets(
        (
            f"Study <code>{escape(study)}</code>: {runs} runs, {seeds} seeds, attack budget {budgets}.",
            f"研究 <code>{escape(study)}</code>：{runs} 次训练，{seeds} 个随机种子，攻击预算 {budgets}。",
        ),
        (
            "Each point is a mean over seeds at one setting; up and to the right is better.",
            "每个点是同一设置下对种子取的均值；越靠右上越好。",
        ),
        (
            "One point against one point proves nothing: the next slide compares at equal accuracy.",
            "点对点比较说明不了什么：下一页在相同准确率下比较。",
        ),
    )
    settings = sum(len(each) for each in groups.values())
    rest = settings - sum(len(each.points) for each in series)
    if rest:
        text += paragraph(
            f"{rest} further settings are not drawn (fallen to chance, or of other methods): {SUMMARY}",
            f"另有 {rest} 组设置未画出（退化到随机水平，或属于其他方法）：{SUMMARY}",
            "note",
        )
    heading = ("Accuracy against what an attacker rebuilds", "准确率与攻击者还原误差的权衡")
    sources: list[str | Pair] = [shelf.cite(SUMMARY), _runs_at(commits)]
    return Slide("trade-off", RESULTS, heading, columns(text, chart, kind="wide-right"), sources)


def _series(name: str, settings: Mapping[tuple[Any, Any], Sequence[Mapping[str, Any]]]) -> charts.Series:
    points = [
        (
            100 * fmean(float(cell["accuracy"]) for cell in cells),
            fmean(float(cell["mse"]) for cell in cells),
            f"{strength if 'weight' in strength else f'λ {strength}'}, σ {sigma}, {len(cells)} seeds",
        )
        for (strength, sigma), cells in settings.items()
    ]
    return charts.Series(name, points)


def _without_chance(every: Sequence[charts.Series]) -> list[charts.Series]:
    """Without points below half the usual accuracy: runs that fell to chance would press all others into a corner."""
    usual = median(point[0] for each in every for point in each.points)
    return [replace(each, points=[point for point in each.points if point[0] > usual / 2]) for each in every]


def _explored(shelf: Shelf) -> Slide:
    files = shelf.folder("results/exploration/*.json")
    heading = ("First leads on CIFAR-10, before the studies", "正式研究之前的探索：CIFAR-10")
    if not files:
        return Slide("trade-off", RESULTS, heading, missing(SUMMARY, "make results"))
    groups: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for _, content in files:
        cell = content["cell"]
        name = str(cell["method"]) + (" + ARL" if cell.get("arl") else "")
        note = f"λ {cell['lambd']}, σ {cell['sigma']}, seed {cell['seed']}"
        groups[name].append((100 * float(content["accuracy_test"]), float(content["mse_test"]), note))
    every = _without_chance([charts.Series(name, points, joined=False) for name, points in groups.items()])
    series = sorted((each for each in every if each.points), key=lambda each: -len(each.points))[:_MOST_SERIES]
    chart = charts.scatter(series, _ACROSS, _INVERTER, ("Exploration", "探索"))
    shown = sum(len(each.points) for each in series)
    cell, gpu = files[0][1]["cell"], escape(str(files[0][1]["device"]))
    epochs, attack_epochs = cell["epochs"], cell["attack_epochs"]
    text = bullets(
        (
            f"{shown} runs of VGG-11, {epochs} epochs; then an inverter that knows the noise, {attack_epochs} epochs.",
            f"VGG-11 训练 {shown} 次，各 {epochs} 轮；再用知道噪声的反演网络攻击 {attack_epochs} 轮。",
        ),
        (
            "<b>Leads, not results:</b> few seeds, a short attack, and test figures were seen when cells were chosen.",
            "<b>只是线索，不是结论：</b>种子少、攻击短，而且挑选设置时看过测试集数字。",
        ),
        (
            "Designs with an adversarial inverter (ARL) may only hide from a short attack.",
            "带对抗反演网络（ARL）的设计，可能只是躲过了短攻击。",
        ),
    )
    rest = len(files) - shown
    if rest:
        text += paragraph(
            f"{rest} further runs are not drawn: fallen to chance, or of rarer designs. Run on {gpu}.",
            f"另有 {rest} 次未画出：退化到随机水平，或属于少见的设计。运行于 {gpu}。",
            "note",
        )
    made = ("by python -m studies.exploration", "由 python -m studies.exploration 生成")
    sources: list[str | Pair] = [f"{shelf.cite('results/exploration')} ({len(files)})", made]
    return Slide("trade-off", RESULTS, heading, columns(text, chart, kind="wide-right"), sources)


def comparisons(shelf: Shelf) -> Slide:
    """Ratios of the attacker's error at equal accuracy, and the goals they are judged by."""
    heading = ("At equal accuracy: where we stand", "相同准确率下比：目前到哪一步")
    summary = shelf.data(SUMMARY)
    if summary is None:
        return Slide("comparisons", RESULTS, heading, missing(SUMMARY, "make results"))
    rows = ratio_rows(summary["comparisons"])
    left = _ratio_chart(rows) if rows else missing("results/studies/*/*.json", "make results")
    goals = ("Goals, not gates: met or not, they stand here.", "这些是目标，不是门槛：达成与否都如实列出。")
    told = {str(each) for target in summary["targets"] for each in target.get("confirmed_in") or ()}
    if told:
        where = escape(", ".join(sorted(told)))
        goals = (
            f"†: on receipts in {where}.",
            f"†：凭据通过的另有 {where.replace(' (against ', '（只对 ').replace(' alone)', '）')}。",
        )
    without = _without_augmented(summary)
    if without is not None:
        goals = without if not told else (f"{without[0]} {goals[0]}", f"{without[1]}{goals[1]}")
    late = sum(bool(target["met"] and target.get("named_afterwards")) for target in summary["targets"])
    if late:
        goals = (
            f"{goals[0]} {late} are met by a choice made when the figures were known.",
            f"{goals[1]}其中 {late} 项所依据的选择，是看到数字之后才作出的。",
        )
    studies = summary.get("studies", {})
    done, planned = (sum(int(each[key]) for each in studies.values()) for key in ("done", "planned"))
    commits = sorted({str(commit)[:9] for each in studies.values() for commit in each.get("commits", [])})
    count = (f"{done} of {planned} planned runs are there", f"计划 {planned} 次训练，已有 {done} 次")
    sources: list[str | Pair] = [shelf.cite(SUMMARY), shelf.cite(SETTINGS), count]
    if commits:
        sources.append(_runs_at(commits))
    body = columns(left, goal_table(shelf, summary["targets"]) + paragraph(*goals, "note"))
    return Slide("comparisons", RESULTS, heading, body, sources)


def _without_augmented(summary: Mapping[str, Any]) -> Pair | None:
    """How many of the ratios were attacked without augmented images, and what those take; None where none was."""
    found = summary.get("more_found_by_augmented")
    drawn = [
        record for records in summary["comparisons"].values() for key, record in records.items() if key in _AGAINST
    ]
    without = sum("augmented" in record and record["augmented"] < record["receipts"]["runs"] for record in drawn)
    if found is None or not without:
        return None
    low, high = sorted(-100 * share for share in found["ours"])
    return (
        f"{without} of {len(drawn)} ratios: no augmented images in the attack; they take {low:.0f} to {high:.0f} % "
        "from ours.",
        f"{len(drawn)} 个比值中有 {without} 个的攻击没有增广图像，它使我们的 MSE 降低 {low:.0f} 至 {high:.0f} %。",
    )


def ratio_rows(comparisons: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[charts.Ratio]:
    """Each of the comparisons on every data set; the first data set's first, those without an interval last."""
    first = next(iter(comparisons), "")
    found = [
        ((not record["ci95"], data != first, _AGAINST.index(key)), data, record)
        for data, records in comparisons.items()
        for key, record in records.items()
        if key in _AGAINST
    ]
    return [_ratio(data, record) for _, data, record in sorted(found, key=lambda each: each[0])]


def _ratio(data: str, record: Mapping[str, Any]) -> charts.Ratio:
    names = [str(record[side]) for side in "ab"]
    alike = all(name.endswith(_MIRRORED) for name in names)
    where = f"{data}, mirrored" if alike else data
    return charts.Ratio(
        " / ".join(name.removesuffix(_MIRRORED) if alike else name for name in names),
        float(record["mse_gain"]),
        (float(record["ci95"][0]), float(record["ci95"][1])) if record["ci95"] else None,
        f"{where}, {100 * float(record['accuracy']):.1f} %, n = {record['seeds']}{', ≥' * record['at_least']}",
    )


def _ratio_chart(rows: Sequence[charts.Ratio]) -> str:
    chart = charts.ratios(rows[:_MOST_RATIOS], ("MSE ratio at equal accuracy", "相同准确率下的 MSE 之比"))
    rest = len(rows) - _MOST_RATIOS
    more = (f" {rest} further: {SUMMARY}.", f"另有 {rest} 项见 {SUMMARY}。") if rest > 0 else ("", "")
    words = (
        "MSE of the first over MSE of the second, 95 % interval over seeds; hollow: too few seeds for an interval."
        + more[0],
        "前者与后者的 MSE 之比，横线为对种子的 95 % 区间；空心点：种子太少，没有区间。" + more[1],
    )
    return chart + paragraph(*words, "note")


def _runs_at(commits: Sequence[str]) -> Pair:
    shown, more = ", ".join(commits[:_MOST_COMMITS]), len(commits) - _MOST_COMMITS
    if more <= 0:
        return f"runs at {shown}", f"训练所用提交：{shown}"
    return f"runs at {shown} and {more} more", f"训练所用提交：{shown} 等，另有 {more} 个"
