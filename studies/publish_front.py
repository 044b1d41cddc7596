"""The block of results on the repository's front page: what was asked, what came out, how far it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attention_cem.studies.verdicts import BETTER, ENOUGH_SEEDS, SAME, UNDECIDED, WORSE
from studies.publish_comparisons import Compared
from studies.publish_figures import figure_name
from studies.publish_pictures import picture_words
from studies.publish_proven import all_pass, on_receipts, proven, screening_missed
from studies.publish_reading import Experiment
from studies.publish_rows import rows_of
from studies.publish_settings import Settings
from studies.publish_stamps import BEGIN, END, block_of
from studies.publish_tables import RANKING, interval, table, verdict_across


@dataclass(frozen=True)
class Question:
    """What a visitor wants to know, in both languages, and the comparison that answers it.

    Args:
        key: the comparison.
        words, words_zh: the question.
        proof: whether answers by attacks whose receipts can pass stand below it.
    """

    key: str
    words: str
    words_zh: str
    proof: bool = False


QUESTIONS = (
    Question(
        "sound_mirrored_vs_kmeans_best_mirrored",
        "The default recipe against k-means CEM, trained alike",
        "默认做法对 k-means CEM，训练方式相同",
        proof=True,
    ),
    Question(
        "sound_attention_mirrored_vs_kmeans_best_mirrored",
        "The same with attention in it, against k-means CEM",
        "默认做法加上注意力，对 k-means CEM",
        proof=True,
    ),
    Question(
        "sound_attention_mirrored_vs_sound_mirrored",
        "What attention adds: against random features in its place",
        "注意力自身的贡献：对以随机特征代替注意力",
    ),
    Question(
        "sound_attention_mirrored_vs_blind_kmeans_constant_mirrored",
        "What is left without the blind client: against k-means CEM behind the same one",
        "除去盲客户端之后：对用同一盲客户端的 k-means CEM",
        proof=True,
    ),
    Question(
        "sound_vs_kmeans_best",
        "With black edges, as published: ours against k-means CEM at its best",
        "按已发表的黑色边缘：我们的方法对最好的 k-means CEM",
        proof=True,
    ),
    Question(
        "blind_sound_vs_blind_kmeans_best",
        "With black edges: both behind the same blind client",
        "黑色边缘：双方都用同一盲客户端",
    ),
    Question(
        "sound_vs_kmeans_published",
        "With black edges: ours against k-means CEM exactly as published",
        "黑色边缘：我们的方法对按原文的 k-means CEM",
    ),
    Question("sound_vs_noise", "With black edges: ours against noise alone", "黑色边缘：我们的方法对只加噪声"),
    Question(
        "sound_abrupt_vs_kmeans_best",
        "Our first recipe, one of whose runs never learned, against k-means CEM at its best",
        "最初的做法（有一次运行什么也没学到）对最好的 k-means CEM",
    ),
    Question(
        "slots_vs_kmeans_best",
        "Slot attention as the estimator of H(z|y), against k-means CEM at its best",
        "以槽注意力估计 H(z|y)，对最好的 k-means CEM",
    ),
    Question(
        "attention_vs_kmeans_best",
        "A closed-form attacker with attention alone, against k-means CEM at its best",
        "只用带注意力的闭式攻击者，对最好的 k-means CEM",
    ),
    Question(
        "sound_slots_vs_sound",
        "What the slot estimator adds to ours: with it against without",
        "槽估计为我们的方法增添多少：加与不加相比",
    ),
)
"""In the order of the page; those that no result answers are left out there and named on the index."""
CHINESE_LIMITS = {
    "not by SSIM": "，按 SSIM 则不然",
    "beyond its own runs": "，已超出其自身运行",
    "at no other accuracy": "，仅在该准确率",
    "where its own runs end": "，恰在其自身运行的末端",
}
CHINESE_OUTCOMES = {BETTER: "更好", WORSE: "更差", SAME: "未见差别", UNDECIDED: "未定"}
_NEW_LINE = "<br>"
BEYOND = "beyond its own runs"
_READ_UP = (
    "Beyond its own runs: read at an accuracy that the first has only where part of the images is sent through the "
    "undefended run. 已超出其自身运行：该准确率只有让部分图像经由不加防御的那次运行才能达到。\n\n"
)


def front_block(
    experiments: Sequence[Experiment],
    compared: Sequence[Compared],
    comparisons: Mapping[str, Mapping[str, Any]],
    targets: Sequence[Mapping[str, Any]],
    settings: Settings,
    pictures: Mapping[str, str],
) -> str:
    """The first data set: questions and answers, a plot, how far they can be trusted, what names mean."""
    title, data = "## Where we stand\n\n", settings.data[0]
    made = comparisons.get(data, {})
    answered = [
        (asked, record := made.get(asked.key), _proofs(asked, record, on_receipts(compared, data, asked.key)))
        for asked in QUESTIONS
    ]
    records = [record for _, record, proofs in answered for record in (record, *proofs) if record is not None]
    if not records:
        run = any(rows_of(each, data) for each in experiments)
        told = f"No comparison that is asked for can be made on {data} yet" if run else "The studies are not run yet"
        never = f"{_never_learned(experiments, data)} {_never_learned(experiments, data, chinese=True)}"
        return f"{title}{told}: [what is missing and how to make it](results/README.md). {never}".rstrip() + "\n"
    scales = {each.name: _scale(each) for each in experiments}
    rows = [row for asked, record, proofs in answered for row in _rows(asked, record, proofs, scales)]
    head = ["compared", "MSE ratio", "95 % interval", "at accuracy", "verdict", "runs"]
    pictured = next(each for each in experiments if each.name == records[0]["study"])
    notes = {
        "Evidence 证据": f"{_trust(records)}{_what_screening_missed(experiments, compared, data)}",
        "Cost 开销": _cost(targets, settings),
        "Failed runs 失败的运行": (
            f"{_never_learned(experiments, data)} {_never_learned(experiments, data, chinese=True)}".strip()
        ),
        "Targets 目标": _goals(targets),
    }
    return (
        f"{title}"
        f"How many times larger the error (MSE) of the best attack is on the first than on the second, on {data} at "
        "equal accuracy; above 1 the first hides more. "
        "同准确率下最强攻击的误差（MSE）之比，大于 1 表示前者隐藏得更多。\n\n"
        f"{table(head, rows)}\n\n{_READ_UP if any(BEYOND in row[4] for row in rows) else ''}"
        f"![Accuracy and MSE of every method on {data}, {pictured.name}]({figure_name(pictured, data)})\n\n"
        + "".join(f"{picture_words(name, of=f'`{study}` ({scales[study]})')}\n\n" for study, name in pictures.items())
        + "".join(f"- **{about}.** {told.strip()}\n" for about, told in notes.items() if told.strip())
        + "\n[Every figure and how it was measured](results/README.md) · [attack by attack](results/main.md) · "
        "[beside the published table](results/paper-table.md) · [cost](results/cost.md) · "
        "[all of it as data](results/summary.json)\n\n"
        f"{_words(records, settings)}\n"
    )


def _rows(
    asked: Question,
    record: Mapping[str, Any] | None,
    proofs: Sequence[Mapping[str, Any]],
    scales: Mapping[str, str],
) -> list[list[str]]:
    """The answer that speaks for the data set, then what other studies found on passing receipts."""
    question = f"{asked.words}{_NEW_LINE}{asked.words_zh}"
    rows = [] if record is None else [_row(question, record, scales)]
    for each in proofs:
        rows.append(_row(_receipts_words(each) if rows else f"{question} {_receipts_words(each)}", each, scales))
    return rows


def _proofs(
    asked: Question, answer: Mapping[str, Any] | None, found: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """What stands below the answer: not the answer itself."""
    spoken_for = None if answer is None else answer["study"]
    return [each for each in found if asked.proof and each["study"] != spoken_for]


def _receipts_words(record: Mapping[str, Any]) -> str:
    """Which of the answer's receipts pass, in the place of its question."""
    if all_pass(record):
        return f"… on passing receipts{_NEW_LINE}……凭据全部通过"
    passed, runs = record["receipts"]["passed"], record["receipts"]["runs"]
    return f"… on receipts, of which {passed} of {runs} pass{_NEW_LINE}……{runs} 张凭据中 {passed} 张通过"


def _row(question: str, record: Mapping[str, Any], scales: Mapping[str, str]) -> list[str]:
    one, other = (_name(record, side) for side in "ab")
    attacks = " and ".join(record["budgets"])
    return [
        question,
        _gain(record),
        interval(record["ci95"], at_least=record["at_least"], digits=2),
        f"{100 * record['accuracy']:.1f} %",
        f"{verdict_across(record)}{_NEW_LINE}{_chinese_verdict(record)}",
        f"`{one}` / `{other}`{_NEW_LINE}`{record['study']}`: {scales[record['study']]}, {record['seeds']} seeds, "
        f"{attacks} audit",
    ]


def _scale(experiment: Experiment) -> str:
    """Network, images and epochs of a study: what its figures are figures of."""
    configs = [each.cell.config for each in experiment.finished]
    networks = "/".join(dict.fromkeys(config.model.name for config in configs))
    limits = "/".join(dict.fromkeys(f"{config.data.limit:,}" for config in configs if config.data.limit))
    return f"{networks}, {limits or 'all'} images, {experiment.epochs} epochs"


def _name(record: Mapping[str, Any], side: str) -> str:
    """The method, by its own name where an envelope has only one to choose from."""
    methods = record["methods"][side]
    return methods[0] if len(methods) == 1 else record[side]


def _gain(record: Mapping[str, Any]) -> str:
    """The ratio; bold where it is a difference, and enough seeds stand behind it."""
    told = f"{'≥ ' * record['at_least']}{record['mse_gain']:.2f}×"
    return f"**{told}**" if record["seeds"] >= ENOUGH_SEEDS and record["outcome"] in (BETTER, WORSE) else told


def _chinese_verdict(record: Mapping[str, Any]) -> str:
    whole = verdict_across(record)
    limits = "".join(chinese for english, chinese in CHINESE_LIMITS.items() if english in whole)
    return f"{CHINESE_OUTCOMES[record['outcome']]}{limits}"


def _trust(records: Sequence[Mapping[str, Any]]) -> str:
    """What keeps the figures from being claims; nothing where nothing does."""
    words = ""
    if any(record["seeds"] < ENOUGH_SEEDS for record in records):
        words += f"Fewer than {ENOUGH_SEEDS} seeds are a lead and no claim. "
    ranking = sorted({budget for record in records for budget in record["budgets"]} & set(RANKING))
    if ranking:
        passed = sum(map(all_pass, records))
        words += (
            f"Attacks of a {' and '.join(ranking)} audit rank and prove nothing: a thorough one may find more. "
            f"{passed} of these {len(records)} answers stand on passing receipts alone. "
            f"{' 与 '.join(ranking)} 审计的攻击只用于排序，彻底的攻击可能找到更多；"
            f"{len(records)} 个答案中有 {passed} 个的凭据全部通过。"
        )
    return words


def _what_screening_missed(experiments: Sequence[Experiment], compared: Sequence[Compared], data: str) -> str:
    """How far the same configurations fell under stronger attacks, and which audits call themselves not settled."""
    words = ""
    for name in dict.fromkeys(each["study"] for asked in QUESTIONS for each in proven(compared, data, asked.key)):
        experiment = next(one for one in experiments if one.name == name)
        changes = [100 * missed.change for missed in screening_missed(experiments, experiment, data)]
        if changes:
            words += (
                f" Worst cases of `{name}` lie {min(changes):+.0f} to {max(changes):+.0f} % from what screening said."
            )
        unsettled = sum(len(row.not_settled) for row in rows_of(experiment, data))
        if unsettled:
            words += f" Of the audits of `{name}` {unsettled} will find more with more effort, by their own account."
    return words


def _cost(targets: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What training takes, as far as it was measured, run as the targets ask."""
    names = {"none": "no surrogate", "k-means": "k-means CEM"}
    figures = [
        (f"{stands['figure']:.2f}× that of {names.get(asked['cost_over'], asked['cost_over'])}", asked.get("mode"))
        for stands, asked in zip(targets, settings.targets, strict=True)
        if asked.get("cost_of") == "sound" and stands["figure"] is not None
    ]
    if not figures:
        return ""
    modes = " and ".join(dict.fromkeys(mode for _, mode in figures if mode))
    told = ", ".join(words for words, _ in figures)
    return f"An epoch of training with `sound` takes {told}{modes and f' ({modes})'}; [other ways](results/cost.md)."


def _never_learned(experiments: Sequence[Experiment], data: str, *, chinese: bool = False) -> str:
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


def _goals(targets: Sequence[Mapping[str, Any]]) -> str:
    """How many of the targets are met, and how well."""
    met, missed, open_ = (sum(target["met"] is state for target in targets) for state in (True, False, None))
    screened = [target for target in targets if target["met"] is True and target.get("screened") is True]
    again = sum(bool(target.get("confirmed_in")) for target in screened)
    later = sum(target["met"] is True and target["named_afterwards"] is not None for target in targets)
    before = sum(target["met"] is None and target["missed_before"] for target in targets)
    return (
        f"Of {len(targets)} targets {met} are met ({len(screened)} of them by attacks that prove nothing yet"
        f"{f'; for {again} of these another study says so on passing receipts' if again else ''}, "
        f"{later} by a recipe, a study or a mode named when the figures were known), "
        f"{missed} {'is' if missed == 1 else 'are'} not, "
        f"{open_} {'is' if open_ == 1 else 'are'} open"
        f"{f' ({before} of them missed with an earlier recipe)' if before else ''}."
    )


def _words(records: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What the methods of a table are, a line each."""
    shown = {name for record in records for side in ("a", "b") for name in (record[side], _name(record, side))}
    shown |= {settings.split_method(name)[1] for name in shown}
    lines = [f"- `{name}`: {words}" for name, words, _ in settings.methods if shown & set(name.split(", "))]
    lines += [
        f"- `{name}`: at each accuracy the best of all `{core}…`"
        for name, core in settings.envelopes.items()
        if name in shown
    ]
    return "\n".join(lines)


def with_block(text: str, block: str) -> str:
    """The front page with its block replaced.

    Raises:
        ValueError: the markers are not there, once and in order.
    """
    if block_of(text) is None:
        raise ValueError(f"README.md needs the lines {BEGIN} and {END}, once each and in this order")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    return f"{before}{BEGIN}\n{block}{after}"
