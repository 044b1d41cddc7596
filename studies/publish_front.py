"""The block of results on the repository's front page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attention_cem.studies.verdicts import BETTER, ENOUGH_SEEDS, SAME, UNDECIDED, WORSE
from studies.publish_comparisons import Compared
from studies.publish_figures import figure_name
from studies.publish_proven import proven, proven_block, screening_missed
from studies.publish_reading import Experiment
from studies.publish_rows import rows_of
from studies.publish_settings import Settings
from studies.publish_stamps import BEGIN, END, block_of
from studies.publish_tables import (
    RANKING,
    accuracy_words,
    both_ssim,
    interval,
    table,
    undefended,
    verdict,
    verdict_across,
)

SHOWN = ("sound_mirrored", "sound_attention_mirrored", "sound", "sound_abrupt", "slots")
"""On the front page: the recipe of the preset, with attention, with black edges, as first tried, and slots."""
CHINESE_LIMITS = {
    "not by SSIM": "，按 SSIM 则不然",
    "beyond its own runs": "，已超出其自身运行",
    "at no other accuracy": "，仅在该准确率",
    "where its own runs end": "，恰在其自身运行的末端",
}
CHINESE_OUTCOMES = {BETTER: "更好", WORSE: "更差", SAME: "未见差别", UNDECIDED: "未定"}
LEADING = "sound_vs_kmeans_best"
BEHIND_ONE_CLIENT = "blind_sound_vs_blind_kmeans_best"
OURS = "sound_mirrored_vs_kmeans_best_mirrored"
ATTENDING = "sound_attention_mirrored_vs_kmeans_best_mirrored"
BY_ATTENTION = "sound_attention_mirrored_vs_sound_mirrored"
TRAINED_ALIKE = (OURS, ATTENDING, BY_ATTENTION)
"""Ours, ours with attention, and k-means CEM at its best, all with mirrored edges."""
PROVEN = (OURS, ATTENDING, LEADING)
"""What is told, attack by attack, where it stands on passing receipts."""


def front_block(
    experiments: Sequence[Experiment],
    compared: Sequence[Compared],
    comparisons: Mapping[str, Mapping[str, Any]],
    targets: Sequence[Mapping[str, Any]],
    settings: Settings,
) -> str:
    """The first data set: a table, plots of its first rows, what names mean, how far figures can be trusted."""
    title, data = "## Where we stand\n\n", settings.data[0]
    made = comparisons.get(data, {})
    asked = {f"{a}_vs_{b}" for a, b in settings.comparisons if a in SHOWN} | {BEHIND_ONE_CLIENT, *TRAINED_ALIKE}
    wanted = sorted((record for key, record in made.items() if key in asked), key=_place)
    if not wanted:
        run = any(rows_of(each, data) for each in experiments)
        told = f"No comparison that is asked for can be made on {data} yet" if run else "The studies are not run yet"
        never = f"{_never_learned(experiments, data)}{_never_learned(experiments, data, chinese=True)}"
        return f"{title}{told}: [what is missing and how to make it](results/README.md). {never}".rstrip() + "\n"
    rows = [
        [
            f"`{record['a']}` against `{record['b']}`",
            accuracy_words(record, 1),
            _gain(record),
            interval(record["ci95"], at_least=record["at_least"]),
            both_ssim(record, 2),
            undefended(record),
            str(record["seeds"]),
            verdict_across(record),
            f"`{record['study']}`",
        ]
        for record in wanted
    ]
    head = [
        "comparison",
        "accuracy %",
        "MSE ratio",
        "95 % interval",
        "SSIM of each",
        "undefended %",
        "seeds",
        "verdict",
        "study",
    ]
    pictured = {record["study"] for record in wanted if record["a"] == wanted[0]["a"]}
    named = [each for each in experiments if each.name in pictured]
    met, missed, open_ = (sum(target["met"] is state for target in targets) for state in (True, False, None))
    screened = sum(target["met"] is True and target.get("screened") is True for target in targets)
    again = sum(
        target["met"] is True and target.get("screened") is True and bool(target.get("confirmed_in"))
        for target in targets
    )
    later = sum(target["met"] is True and target["named_afterwards"] is not None for target in targets)
    before = sum(target["met"] is None and target["missed_before"] for target in targets)
    goals = (
        f"Of {len(targets)} targets {met} are met ({screened} of them by attacks that prove nothing yet"
        f"{f'; for {again} of these another study says so on passing receipts' if again else ''}, "
        f"{later} by a recipe, a study or a mode named when the figures were known), "
        f"{missed} {'is' if missed == 1 else 'are'} not, "
        f"{open_} {'is' if open_ == 1 else 'are'} open"
        f"{f' ({before} of them missed with an earlier recipe)' if before else ''}."
    )
    receipts = "\n\n".join(filter(None, (proven_block(experiments, compared, data, key) for key in PROVEN)))
    in_english = {
        "Against k-means CEM": f"{_in_short(made, data)}{_trust(wanted)}",
        "Proof": _on_receipts(experiments, compared, data),
        "Attention": _attention(made, data),
        "Cost": _cost(targets, settings),
        "Failed runs": _never_learned(experiments, data),
        "Targets": goals,
    }
    in_chinese = f"{_chinese(made, compared, data)}{_never_learned(experiments, data, chinese=True)}"
    plots = "".join(
        f"![Accuracy and MSE of every method on {data}, {each.name}]({figure_name(each, data)})\n\n" for each in named
    )
    return (
        title
        + "".join(f"- **{about}.** {told.strip()}\n" for about, told in in_english.items() if told)
        + (f"- **中文。** {in_chinese}\n\n" if in_chinese else "\n")
        + f"Worst-case attack on {data} at equal accuracy: a higher MSE ratio is better for the first, a lower SSIM is "
        f"more private ([how measured, every figure](results/README.md)):\n\n"
        f"{table(head, rows)}\n\n{plots}" + (f"{receipts}\n\n" if receipts else "") + f"{_words(wanted, settings)}\n"
    )


def _place(record: Mapping[str, Any]) -> tuple[int, bool]:
    """Methods in the order of `SHOWN`, of each those against others that are trained alike first."""
    place = SHOWN.index(record["a"]) if record["a"] in SHOWN else len(SHOWN)
    return place, f"{record['a']}_vs_{record['b']}" not in TRAINED_ALIKE


def _trained_alike(made: Mapping[str, Mapping[str, Any]], data: str) -> str:
    """Ours against k-means CEM, both with mirrored edges, without and with attention; empty without such runs."""
    sentences = {
        OURS: "on `sound_mirrored`, the recipe of the preset, is {times} that of {other} trained alike",
        ATTENDING: "where the recipe's closed-form attacker attends to slots (`sound_attention_mirrored`), {times}",
    }
    told = [
        f"{words.format(times=_times(record), other=_k_means(record))} {_certainty(record)}"
        for key, words in sentences.items()
        if (record := made.get(key)) is not None
    ]
    return f"At equal accuracy on {data} the attack's MSE {'; '.join(told)}. " if told else ""


def _k_means(record: Mapping[str, Any]) -> str:
    """The baseline in words: at its best only where there was something to choose from."""
    methods = record["methods"]["b"]
    return "k-means CEM at its best" if len(methods) > 1 else f"`{methods[0]}`, the one form of k-means CEM"


def _certainty(record: Mapping[str, Any]) -> str:
    """Where it was read, its interval, and how far it holds."""
    where = f"at {accuracy_words(record, 1).split(' ')[0]} % accuracy"
    return f"({where}, {interval(record['ci95'], at_least=record['at_least'])}, {verdict_across(record)})"


def _in_short(made: Mapping[str, Mapping[str, Any]], data: str) -> str:
    """The answer for who reads one sentence; empty without `sound`."""
    against = (("kmeans_best", "k-means CEM at its best"), ("noise", "noise alone"))
    told = [
        f"{_times(record)} that of {words} {_certainty(record)}"
        for name, words in against
        if (record := made.get(f"sound_vs_{name}")) is not None
    ]
    if not told:
        return ""
    alike = _trained_alike(made, data)
    begins = "With black edges, as published, that" if alike else f"At equal accuracy on {data} the attack's MSE"
    return f"{alike}{begins} on `sound` is {', and '.join(told)}. "


def _attention(made: Mapping[str, Mapping[str, Any]], data: str) -> str:
    """What is due to attention and what is not, as far as the figures say; empty without `sound`."""
    if not any(record["a"] == "sound" for record in made.values()):
        return ""
    attacker = _attending_attacker(made)
    slots = made.get("slots_vs_kmeans_best")
    if slots is None:
        return f"`sound` contains no attention. {attacker}"
    figure = f"{_times(slots)} at equal accuracy on {data}, {verdict(slots)}"
    told = {
        BETTER: "attention (`slots`) shows a gain over k-means CEM at its best",
        UNDECIDED: "whether attention (`slots`) gains over k-means CEM at its best is undecided",
    }.get(slots["outcome"], "attention (`slots`) shows no gain over k-means CEM at its best")
    beside = made.get("sound_slots_vs_sound")
    added = "" if beside is None else f"; `sound` with it has {_times(beside)} the MSE of `sound` ({verdict(beside)})"
    return f"`sound` contains no attention; {told} ({figure}){added}. {attacker}"


def _attending_attacker(made: Mapping[str, Mapping[str, Any]]) -> str:
    """What the closed-form attacker gains by attending to slots; empty without such runs."""
    against = (
        ("attention_vs_kmeans_best", "that of k-means CEM at its best"),
        ("attention_vs_leakage", "that of the same attacker with random features instead (`leakage`)"),
        (BY_ATTENTION, "that of `sound_mirrored`"),
    )
    told = [
        f"`{record['a']}` {_times(record)} {words} ({verdict(record)})"
        for key, words in against
        if (record := made.get(key)) is not None
    ]
    return f"A closed-form attacker that attends to slots: MSE on {', '.join(told)}. " if told else ""


def _on_receipts(experiments: Sequence[Experiment], compared: Sequence[Compared], data: str) -> str:
    """What attacks with passing receipts say of the first comparison; empty where no study has them."""
    words = ""
    for each in (record for key in PROVEN for record in proven(compared, data, key)):
        words += (
            f"On passing receipts (`{each['study']}`, a {' and '.join(each['budgets'])} audit) `{each['a']}` has "
            f"{_times(each)} the MSE of `{each['b']}` ({interval(each['ci95'], at_least=each['at_least'])}, "
            f"{verdict_across(each)})"
        )
        experiment = next(one for one in experiments if one.name == each["study"])
        changes = [100 * missed.change for missed in screening_missed(experiments, experiment, data)]
        if changes:
            words += (
                f"; the study's worst cases lie {min(changes):+.0f} to {max(changes):+.0f} % from what screening said"
            )
        unsettled = sum(len(row.not_settled) for row in rows_of(experiment, data))
        if unsettled:
            words += f"; {unsettled} of its audits say of themselves that more effort will find more"
        words += ". "
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


def _times(record: Mapping[str, Any]) -> str:
    return f"{'at least ' * record['at_least']}{record['mse_gain']:.2f}×"


def _never_learned(experiments: Sequence[Experiment], data: str, *, chinese: bool = False) -> str:
    """Settings of which runs answer at random, so that none is overlooked for having left a comparison."""
    words = "{never} of {seeds} runs of `{method}` (`{study}`) never learned: accuracy at chance. "
    if chinese:
        words = "`{method}`（`{study}`）的 {seeds} 次运行中有 {never} 次什么也没学到：准确率等于随机猜测。"
    return "".join(
        words.format(never=row.never_learned, seeds=row.seeds, method=row.method, study=each.name)
        for each in experiments
        for row in rows_of(each, data)
        if row.never_learned
    )


def _chinese(made: Mapping[str, Mapping[str, Any]], compared: Sequence[Compared], data: str) -> str:
    """In one Chinese sentence: ours, and attention alone, against k-means CEM at its best; none without them."""
    wanted = (
        (OURS, "`sound_mirrored`（预设的做法，不含注意力，双方都用镜像边缘）"),
        (ATTENDING, "`sound_attention_mirrored`（同上，闭式攻击者用注意力读槽）"),
        (LEADING, "`sound`（黑色边缘，不含注意力）"),
        ("slots_vs_kmeans_best", "`slots`（注意力）"),
        ("attention_vs_kmeans_best", "`attention`（闭式攻击者用注意力读槽）"),
    )
    told = [f"{name}{_chinese_times(record)}" for key, name in wanted if (record := made.get(key)) is not None]
    if not told:
        return ""
    beside = made.get("sound_slots_vs_sound")
    added = "" if beside is None else f"；`slots` 与 `sound` 并用，为单用 `sound` 的 {_chinese_times(beside)}"
    for each in (record for key in PROVEN for record in proven(compared, data, key)):
        added += f"；在凭据全部通过的 `{each['study']}` 中，`{each['a']}` 为 {_chinese_times(each)}"
    only = [name for key in (OURS, ATTENDING) if key in made and len(name := made[key]["methods"]["b"]) == 1]
    alike = f"（镜像边缘下只有 `{only[0][0]}`，无从挑选）" if only else ""
    ranking = any(set(record["budgets"]) & set(RANKING) for key, _ in wanted if (record := made.get(key)) is not None)
    trust = "这些攻击除另注明外只是筛选，用于排序，彻底的攻击可能找到更多。" if ranking else ""
    return f"{data} 上与最好的 k-means CEM{alike}相比，同准确率下攻击的 MSE：{'，'.join(told)}{added}。{trust}"


def _chinese_times(record: Mapping[str, Any]) -> str:
    told, whole = CHINESE_OUTCOMES[record["outcome"]], verdict_across(record)
    told += "".join(chinese for english, chinese in CHINESE_LIMITS.items() if english in whole)
    ends = "" if record["ci95"] is None or record["at_least"] else "{:.3f} 至 {:.3f}，".format(*record["ci95"])
    return f"{'至少 ' * record['at_least']}{record['mse_gain']:.2f} 倍（{ends}{told}）"


def _gain(record: Mapping[str, Any]) -> str:
    """The ratio; bold where it is a difference, and enough seeds stand behind it."""
    told = f"{'≥ ' * record['at_least']}{record['mse_gain']:.2f}×"
    return f"**{told}**" if record["seeds"] >= ENOUGH_SEEDS and record["outcome"] in (BETTER, WORSE) else told


def _words(records: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What the methods of a table are, a line each."""
    shown = {record[side] for record in records for side in ("a", "b")}
    lines = [f"- `{name}`: {words}" for name, words, _ in settings.methods if shown & set(name.split(", "))]
    lines += [f"- `{name}`: at each accuracy the best of all `{core}…`" for name, core in settings.envelopes.items()]
    return "\n".join(lines)


def _trust(records: Sequence[Mapping[str, Any]]) -> str:
    """What keeps the figures from being claims; nothing where nothing does."""
    words = ""
    if any(record["seeds"] < ENOUGH_SEEDS for record in records):
        words += f"Fewer than {ENOUGH_SEEDS} seeds are a lead and no claim. "
    budgets = sorted({budget for record in records for budget in record["budgets"]})
    if set(budgets) & set(RANKING):
        proven = sum(record["receipts"]["passed"] == record["receipts"]["runs"] for record in records)
        passing = f"{proven} of these {len(records)} comparisons stand on passing receipts alone"
        if not any(record["receipts"]["passed"] for record in records):
            passing = "none of their receipts passes"
        words += (
            f"The attacks are those of a {' and '.join(budgets)} audit: they rank, a thorough one may find more, and "
            f"{passing}. "
        )
    return words


def with_block(text: str, block: str) -> str:
    """The front page with its block replaced.

    Raises:
        ValueError: the markers are not there, once and in order.
    """
    if block_of(text) is None:
        raise ValueError(f"README.md needs the lines {BEGIN} and {END}, once each and in this order")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    return f"{before}{BEGIN}\n{block}{after}"
