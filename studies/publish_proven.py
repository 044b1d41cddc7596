"""What stands on attacks whose receipts pass, told beside figures of attacks that rank and prove nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attention_cem.studies.verdicts import ENOUGH_SEEDS
from studies.publish_comparisons import Compared
from studies.publish_finished import Finished
from studies.publish_reading import Experiment
from studies.publish_rows import Row, Spread, rows_of
from studies.publish_tables import (
    RANKING,
    interval,
    table,
    verdict_across,
)


def on_receipts(compared: Iterable[Compared], data: str, key: str) -> list[Mapping[str, Any]]:
    """Records of one comparison, study by study, with enough seeds and attacks whose receipts can pass."""
    records = (each.records.get(data, {}).get(key) for each in compared)
    return [
        record
        for record in records
        if record is not None
        and record["seeds"] >= ENOUGH_SEEDS
        and not record["left_out_seeds"]
        and not set(record["budgets"]) & set(RANKING)
    ]


def proven(compared: Iterable[Compared], data: str, key: str) -> list[Mapping[str, Any]]:
    """Those in which every run has a passing receipt."""
    return [each for each in on_receipts(compared, data, key) if all_pass(each)]


def all_pass(record: Mapping[str, Any]) -> bool:
    """Whether every run of a comparison stands on a passing receipt."""
    return bool(record["receipts"]["passed"] == record["receipts"]["runs"])


def proven_words(record: Mapping[str, Any]) -> str:
    """The figure, where it was read, its interval, what it says, and how many runs each side could choose from."""
    runs = (round(len(record["config_hashes"][side]) / record["seeds"]) for side in "ab")
    return (
        f"{'at least ' * record['at_least']}{record['mse_gain']:.3f}× at {100 * record['accuracy']:.2f} % accuracy, "
        f"{interval(record['ci95'], at_least=record['at_least'])}, {verdict_across(record)}; "
        f"{' runs a seed against '.join(map(str, runs))}"
    )


def unsettled_words(rows: Sequence[Row]) -> str:
    """Which audits say themselves that more effort will find more; empty where none does."""
    unsettled = [each for row in rows for each in row.members if each.not_settled]
    if not unsettled:
        return ""
    told = "; ".join(_still_moving(method, unsettled) for method in dict.fromkeys(each.method for each in unsettled))
    return (
        f"{len(unsettled)} of {sum(row.seeds for row in rows)} audits call themselves not settled: more effort will "
        f"find more there. By how much the second half of the effort still moved the MSE: {told}. "
        f"其中 {len(unsettled)} 次审计自称尚未定论：再投入还会找到更多；上列为后一半投入仍使 MSE 变化的幅度。"
    )


def _still_moving(method: str, unsettled: Sequence[Finished]) -> str:
    mine = [each for each in unsettled if each.method == method]
    moved = [f"{100 * each.still_moving:+.0f}" for each in mine if each.still_moving is not None]
    ends = sorted(dict.fromkeys(moved), key=float)
    seeds = ", ".join(map(str, sorted({each.seed for each in mine})))
    return f"`{method}` seed{'s' * (', ' in seeds)} {seeds}" + (
        f" {' to '.join(ends[:1] + ends[1:][-1:])} %" if ends else ""
    )


def warned_words(rows: Sequence[Row]) -> str:
    """What trainings found wrong with themselves, each kind once in the words of one run; empty where nothing."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for each in row.members:
            for text in each.training_warnings:
                found.setdefault((row.method, re.sub(r"[\d.]+", "…", text)), []).append(text)
    lines = [
        f"`{method}`, {len(texts)} of {sum(row.seeds for row in rows if row.method == method)} runs: {texts[0]}"
        for (method, _), texts in found.items()
    ]
    return f"Trainings warned, a run of each quoted 训练中的警告（各引一次）: {'; '.join(lines)}." if lines else ""


def outright_words(rows: Sequence[Row]) -> str:
    """Where ours is ahead without any reading between runs; of methods on passing receipts alone. Empty if nowhere."""
    unproven = {row.method for row in rows if row.passed < row.seeds or set(row.budgets) & set(RANKING)}
    passing = [row for row in rows if row.method not in unproven]
    names = list(dict.fromkeys(row.method for row in passing))
    pairs = [(one, other) for one in names if "sound" in one for other in names if "sound" not in other]
    return " ".join(
        f"In every seed `{one}` is more accurate than `{other}` and has the higher worst-case MSE. "
        f"每个种子下 `{one}` 都比 `{other}` 更准确，最坏情形的 MSE 也更高。"
        for one, other in pairs
        if outdone(passing, one, other)
    )


def outdone(rows: Sequence[Row], by: str, method: str) -> bool:
    """Whether every run of ``method`` meets one of ``by``, same seed, of higher accuracy and worst-case MSE."""
    ours = [each for row in rows if row.method == by for each in row.members]
    theirs = [each for row in rows if row.method == method for each in row.members]
    return bool(theirs) and all(
        any(
            our.seed == their.seed
            and our.result["accuracy"] > their.result["accuracy"]
            and our.result["mse"] > their.result["mse"]
            for our in ours
        )
        for their in theirs
    )


@dataclass(frozen=True)
class Missed:
    """One setting under attacks that prove something, and the same configurations as screened."""

    row: Row
    screened: Spread
    runs: int

    @property
    def change(self) -> float:
        """How much lower or higher the worst case is than screening said, as a share."""
        return self.row.mse.mean / self.screened.mean - 1


def screening_missed(experiments: Sequence[Experiment], experiment: Experiment, data: str) -> list[Missed]:
    """Settings of ``experiment`` that were also trained and screened elsewhere, with both figures."""
    found = []
    others = [each for other in experiments if other.name != experiment.name for each in other.finished]
    # Each once: a study may show runs of another.
    elsewhere = list({(each.study, each.result["cell"]): each for each in others}.values())
    for row in rows_of(experiment, data):
        hashes = {each.config_hash for each in row.members}
        screened = [each for each in elsewhere if each.config_hash in hashes and each.budget in RANKING]
        if screened and not set(row.budgets) & set(RANKING):
            found.append(Missed(row, Spread.of(each.result["mse"] for each in screened), len(screened)))
    return found


def missed_block(experiments: Sequence[Experiment], experiment: Experiment, data: str) -> str:
    """How far screening may be trusted, where the same settings were attacked with more; empty where none was."""
    found = screening_missed(experiments, experiment, data)
    if not found:
        return ""
    head = ["method", "λ or weight", "screened runs", "MSE by screening", "runs", "worst-case MSE", "change"]
    rows = (
        [
            each.row.method,
            each.row.strength,
            str(each.runs),
            each.screened.text(4),
            str(each.row.seeds),
            each.row.mse.text(4),
            f"{100 * each.change:+.0f} %",
            each.row.source,
        ]
        for each in found
    )
    return (
        "What screening missed: the same configurations, trained apart, under both. 筛选漏掉多少：同样配置分别训练、"
        f"两种攻击下的结果。\n\n{table([*head, 'study · config · commit'], rows)}"
    )
