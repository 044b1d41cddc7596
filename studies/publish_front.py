"""The block of results on the repository's front pages: what was asked, what came out, how far it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attention_cem.studies.verdicts import ENOUGH_SEEDS
from studies.publish_augmented import Found, augmented_words
from studies.publish_comparisons import Compared
from studies.publish_figures import figure_name
from studies.publish_pictures import front_picture_words
from studies.publish_proven import all_pass, proven, screening_missed
from studies.publish_questions import Answer, answers_table, scale_of
from studies.publish_reading import Experiment
from studies.publish_rows import rows_of
from studies.publish_settings import Settings
from studies.publish_stamps import BEGIN, END, block_of
from studies.publish_tables import RANKING

TITLE = ("Where we stand", "结果")
NOT_RUN = ("The studies are not run yet", "研究尚未运行")
NOT_COMPARED = ("No comparison that is asked for can be made on {data} yet", "目前还无法在 {data} 上做所要的比较")
MISSING = ("[what is missing and how to make it](results/README.md)", "[缺什么、怎样得到](results/README.md)")
OURS = (
    "Ours is a client that does not see the slowest waves of an image, trained against an attacker that is solved in "
    "closed form at every step ([`cifar10-sound.toml`](configs/cifar10-sound.toml)); with attention, that attacker "
    "attends to slots ([`cifar10-attention.toml`](configs/cifar10-attention.toml)).",
    "我们的做法：客户端看不到图像中最慢的波，训练时对抗一个每步以闭式求解的攻击者"
    "（[`cifar10-sound.toml`](configs/cifar10-sound.toml)）；加上注意力时，该攻击者用注意力读槽"
    "（[`cifar10-attention.toml`](configs/cifar10-attention.toml)）。",
)
RATIO = (
    "The figure is how many times larger the error (MSE) of the best attack is on the first than on the second, at "
    "equal accuracy: above 1 the first hides more. CIFAR-10 where nothing else is said.",
    "数字是同准确率下最强攻击在前者与后者上的误差（MSE）之比：大于 1 表示前者隐藏得更多。未注明者为 CIFAR-10。",
)
PLOT = ("Accuracy and MSE of every method on {data}, {study}", "{data} 上各方法的准确率与 MSE，{study}")
LINKS = (
    "[Every answer, and how it was measured](results/README.md) · [attack by attack](results/main.md) · "
    "[beside the published table](results/paper-table.md) · [cost](results/cost.md) · "
    "[all of it as data](results/summary.json)",
    "[全部答案与测量方法](results/README.md) · [逐个攻击](results/main.md) · "
    "[与已发表结果对照](results/paper-table.md) · [开销](results/cost.md) · [全部数据](results/summary.json)",
)
NOTES = (("Evidence", "Cost", "Failed runs", "Targets"), ("证据", "开销", "失败的运行", "目标"))


def front_block(
    experiments: Sequence[Experiment],
    compared: Sequence[Compared],
    answers: Sequence[Answer],
    targets: Sequence[Mapping[str, Any]],
    settings: Settings,
    pictures: Mapping[str, str],
    more_found: Found | None = None,
    *,
    chinese: bool = False,
) -> str:
    """Questions and answers, a plot, images, how far they can be trusted; in one of the two languages."""
    data = settings.data[0]
    title = f"## {TITLE[chinese]}\n\n"
    shown = [answer for answer in answers if answer.asked.front] or answers
    records = [record for answer in shown for record in answer.records()]
    never = _never_learned(experiments, data, chinese)
    if not any(answer.data == data for answer in shown):
        run = any(rows_of(each, data) for each in experiments)
        told = (NOT_COMPARED if run else NOT_RUN)[chinese].format(data=data)
        colon, stop = "：。" if chinese else (": ", ".")
        return f"{title}{told}{colon}{MISSING[chinese]}{stop} {never}".rstrip() + "\n"
    scales = {each.name: scale_of(each, settings, chinese=chinese) for each in experiments}
    pictured = next(each for each in experiments if each.name == records[0]["study"])
    notes = (
        f"{_trust(records, chinese)}{_what_screening_missed(experiments, compared, shown, data, chinese)}",
        _cost(targets, settings, chinese),
        never,
        _goals(targets, chinese),
    )
    plot = PLOT[chinese].format(data=data, study=pictured.name)
    return (
        title
        + "".join(
            f"{front_picture_words(name, _of_study(study, scales[study], chinese), chinese=chinese)}\n\n"
            for study, name in pictures.items()
        )
        + f"{OURS[chinese]}{'' if chinese else ' '}{RATIO[chinese]}\n\n"
        + "".join(f"{told}\n\n" for told in [augmented_words(more_found, records, chinese=chinese)] if told)
        + f"{answers_table(shown, scales, chinese=chinese, brief=True)}\n\n"
        f"![{plot}]({figure_name(pictured, data)})\n\n"
        + "".join(
            f"- **{about}{'。' if chinese else '.'}** {told.strip()}\n"
            for about, told in zip(NOTES[chinese], notes, strict=True)
            if told.strip()
        )
        + f"\n{LINKS[chinese]}\n"
    )


def _of_study(study: str, scale: Sequence[str], chinese: bool) -> str:
    return f"`{study}`（{'，'.join(scale)}）" if chinese else f"`{study}` ({', '.join(scale)})"


def _trust(records: Sequence[Mapping[str, Any]], chinese: bool) -> str:
    """What keeps the figures from being claims; nothing where nothing does."""
    words = ""
    if any(record["seeds"] < ENOUGH_SEEDS for record in records):
        words += (
            f"少于 {ENOUGH_SEEDS} 个种子只是线索，不是结论。"
            if chinese
            else f"Fewer than {ENOUGH_SEEDS} seeds are a lead and no claim. "
        )
    ranking = sorted({budget for record in records for budget in record["budgets"]} & set(RANKING))
    if ranking:
        passed, told = sum(map(all_pass, records)), (" 与 " if chinese else " and ").join(ranking)
        words += (
            f"{told} 审计的攻击只用于排序，不能证明什么，彻底的攻击可能找到更多；"
            f"{len(records)} 个答案中有 {passed} 个的凭据全部通过。"
            if chinese
            else f"Attacks of a {told} audit rank and prove nothing: a thorough one may find more. "
            f"{passed} of these {len(records)} answers stand on passing receipts alone."
        )
    return words


def _what_screening_missed(
    experiments: Sequence[Experiment],
    compared: Sequence[Compared],
    answers: Sequence[Answer],
    data: str,
    chinese: bool,
) -> str:
    """How far the same configurations fell under stronger attacks, and which audits call themselves not settled."""
    missed = "`{name}` 的最坏情形与筛选所得相差 {low:+.0f} 至 {high:+.0f} %。"
    unsettled = "`{name}` 的审计中有 {count} 个自称投入更多还会找到更多。"
    if not chinese:
        missed = " Worst cases of `{name}` lie {low:+.0f} to {high:+.0f} % from what screening said."
        unsettled = " Of the audits of `{name}` {count} will find more with more effort, by their own account."
    words = ""
    keys = dict.fromkeys(answer.asked.key for answer in answers if answer.data == data)
    for name in dict.fromkeys(each["study"] for key in keys for each in proven(compared, data, key)):
        experiment = next(one for one in experiments if one.name == name)
        changes = [100 * each.change for each in screening_missed(experiments, experiment, data)]
        if changes:
            words += missed.format(name=name, low=min(changes), high=max(changes))
        count = sum(len(row.not_settled) for row in rows_of(experiment, data))
        if count:
            words += unsettled.format(name=name, count=count)
    return words


def _cost(targets: Sequence[Mapping[str, Any]], settings: Settings, chinese: bool) -> str:
    """What training takes, as far as it was measured, run as the targets ask."""
    names = {"none": ("no surrogate", "不加代理损失"), "k-means": ("k-means CEM", "k-means CEM ")}
    figures = [
        (stands["figure"], names.get(asked["cost_over"], (asked["cost_over"],) * 2)[chinese], asked.get("mode"))
        for stands, asked in zip(targets, settings.targets, strict=True)
        if asked.get("cost_of") == "sound" and stands["figure"] is not None
    ]
    if not figures:
        return ""
    modes = " and ".join(dict.fromkeys(mode for _, _, mode in figures if mode))
    if chinese:
        told = "，".join(f"{name}的 {figure:.2f}×" for figure, name, _ in figures)
        return f"用 `sound` 训练一轮的时间是{told}{modes and f'（{modes}）'}；[其他方式](results/cost.md)。"
    told = ", ".join(f"{figure:.2f}× that of {name}" for figure, name, _ in figures)
    return f"An epoch of training with `sound` takes {told}{modes and f' ({modes})'}; [other ways](results/cost.md)."


def _never_learned(experiments: Sequence[Experiment], data: str, chinese: bool) -> str:
    """Settings of which runs answer at random, so that none is overlooked for having left a comparison."""
    words = "{never} of {seeds} runs of `{method}` (`{study}`) never learned: accuracy at chance."
    if chinese:
        words = "`{method}`（`{study}`）的 {seeds} 次运行中有 {never} 次什么也没学到：准确率等于随机猜测。"
    return " ".join(
        words.format(never=row.never_learned, seeds=row.seeds, method=row.method, study=each.name)
        for each in experiments
        for row in rows_of(each, data)
        if row.never_learned
    )


def _goals(targets: Sequence[Mapping[str, Any]], chinese: bool) -> str:
    """How many of the targets are met, and how well."""
    met, missed, open_ = (sum(target["met"] is state for target in targets) for state in (True, False, None))
    screened = [target for target in targets if target["met"] is True and target.get("screened") is True]
    again = sum(bool(target.get("confirmed_in")) for target in screened)
    later = sum(target["met"] is True and target["named_afterwards"] is not None for target in targets)
    before = sum(target["met"] is None and target["missed_before"] for target in targets)
    if chinese:
        return (
            f"{len(targets)} 个目标中 {met} 个达到（其中 {len(screened)} 个所凭的攻击尚不能证明什么"
            f"{f'，但有 {again} 个另有研究以全部通过的凭据达到' if again else ''}；"
            f"{later} 个的做法、研究或运行方式是在数字已知之后选定的），{missed} 个未达到，{open_} 个未定"
            f"{f'（其中 {before} 个曾以较早的做法未达到）' if before else ''}。"
        )
    return (
        f"Of {len(targets)} targets {met} are met ({len(screened)} of them by attacks that prove nothing yet"
        f"{f'; for {again} of these another study says so on passing receipts' if again else ''}, "
        f"{later} by a recipe, a study or a mode named when the figures were known), "
        f"{missed} {'is' if missed == 1 else 'are'} not, "
        f"{open_} {'is' if open_ == 1 else 'are'} open"
        f"{f' ({before} of them missed with an earlier recipe)' if before else ''}."
    )


def with_block(text: str, block: str, *, name: str) -> str:
    """A front page, called ``name``, with its block replaced.

    Raises:
        ValueError: the markers are not there, once and in order.
    """
    if block_of(text) is None:
        raise ValueError(f"{name} needs the lines {BEGIN} and {END}, once each and in this order")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    return f"{before}{BEGIN}\n{block}{after}"
