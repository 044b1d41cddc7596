"""The index of results: targets, methods, every comparison, how far each study is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.publish_comparisons import Compared
from studies.publish_findings import findings_block
from studies.publish_pages import HOW_MATCHED, HOW_MATCHED_TITLE, folded, studies_table
from studies.publish_questions import Answer, answers_table, names_table, scale_of
from studies.publish_reading import Experiment, Stale, StoredStudy, repeats
from studies.publish_settings import Settings
from studies.publish_tables import comparisons_table, table, targets_table


def index_page(
    settings: Settings,
    studies: Sequence[StoredStudy],
    orphans: Sequence[Stale],
    answers: Sequence[Answer],
    experiments: Sequence[Experiment],
    compared: Sequence[Compared],
    comparisons: Mapping[str, Mapping[str, Any]],
    missing: Sequence[Mapping[str, str]],
    targets: Sequence[Mapping[str, Any]],
) -> str:
    """Where we stand, what there is, and how it is made."""
    pages = "\n".join(f"- [{page.title}]({page.name}.md) {page.title_zh}" for page in settings.pages)
    records = [record for by_key in comparisons.values() for record in by_key.values()]
    parts = [
        "# Results 结果",
        "Made by `make results` from the studies (`studies/*.toml`) and their stored results "
        "(`results/studies/<study>/<cell>.json`, written by `attention-cem study run`). No number is typed by hand; a "
        "result whose configuration is not a cell of its study file any more is listed and not used. A cell without a "
        "result takes that of an equal run, same configuration and attacks, of another study, which its row names.",
        f"{pages}\n- [Cost of training](cost.md) 训练开销\n"
        "- [The published CIFAR-10 table and our runs](paper-table.md) 与已发表结果对照\n"
        "- [Exploration: leads, not results](exploration.md) 探索\n"
        "- [summary.json](summary.json): all of it as plain data",
        *findings_block(settings, compared),
        *_questions(answers, experiments, settings),
        '## Targets 目标\n\nGoals, not gates. "By screening": the attacks rank and prove nothing, none of their '
        "receipts passes. 目标而非门槛；“by screening”指只经筛选攻击。",
        targets_table(targets),
    ]
    if settings.methods:
        parts.append("## Methods 方法")
        parts.append("\n".join(f"- **{name}**: {words}. {words_zh}。" for name, words, words_zh in settings.methods))
    parts.append("## MSE at equal accuracy 同准确率比较")
    if records:
        parts += folded(HOW_MATCHED_TITLE, [HOW_MATCHED])
        for data, by_key in comparisons.items():
            parts += folded(f"{data}: {len(by_key)}", [comparisons_table(by_key.values())] if by_key else [])
    if missing:
        parts.append("Not there yet 尚缺：")
        parts.append(_missing_table(missing))
    parts += ["## Studies 研究", studies_table(studies)]
    if again := repeats(studies):
        parts.append(f"{again}\n\n同一配置、同一种子在 GPU 上重复运行的结果并不相同，差距如上。")
    if older := _older(studies):
        parts.append(older)
    stale = [*orphans, *(each for stored in studies for each in stored.stale)]
    if stale:
        parts += ["Results that are not used 未采用的结果", table(["file", "why"], ([s.file, s.reason] for s in stale))]
    return "\n\n".join(parts) + "\n"


def _questions(answers: Sequence[Answer], experiments: Sequence[Experiment], settings: Settings) -> list[str]:
    """What visitors ask, and what answers it."""
    if not answers:
        return []
    scales = {each.name: scale_of(each, settings) for each in experiments}
    named = folded("Which methods and which study each is of 各答案所涉的方法与研究", [names_table(answers)])
    return ["## Questions and answers 问答", answers_table(answers, scales), *named]


def _older(studies: Sequence[StoredStudy]) -> str:
    """How many results in use do not say from which epoch their weights are, and what that may mean."""
    used = {(each.study, each.result["cell"]): each for stored in studies for each in stored.finished}.values()
    older = [each for each in used if each.best_epoch is None]
    if not older:
        return ""
    late = [each for each in older if {"linear_leakage", "channel_pruning"} & set(each.cell.config.defence)]
    ours = sum("linear_leakage" in each.cell.config.defence for each in late)
    return (
        f"{len(older)} of {len(used)} results in use are older and do not say from which epoch their weights are. "
        f"{ours} of them have the closed-form attacker, {len(late) - ours} pruning without it, whose rise the choice "
        "of weights did not wait for then: weights from before its end would be of a weaker defence, less private and "
        "more accurate, on whichever side of a comparison they stand.\n\n"
        f"在用的 {len(used)} 个结果中有 {len(older)} 个较早，未注明权重取自哪一轮；其中 {ours} 个带闭式攻击者，"
        f"{len(late) - ours} 个只带剪枝，当时选取权重并不等待其升满：升满之前的权重防御较弱，隐私较差而准确率较高，"
        "无论在比较的哪一边。"
    )


def _missing_table(missing: Sequence[Mapping[str, str]]) -> str:
    """Comparisons that are missing for the same reason, in one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        data, key = each["comparison"].split(".", 1)
        groups.setdefault((data, each["reason"]), []).append(key)
    rows = ([data, ", ".join(keys), reason] for (data, reason), keys in groups.items())
    return table(["data", "comparisons", "why"], rows)
