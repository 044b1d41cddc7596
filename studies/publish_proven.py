"""What stands on attacks whose receipts pass, told beside figures of attacks that rank and prove nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attention_cem.studies.verdicts import ENOUGH_SEEDS
from studies.publish_comparisons import Compared
from studies.publish_figures import figure_name
from studies.publish_reading import Experiment
from studies.publish_rows import FIRST_ATTACKS, Row, Spread, attack_names, rows_of
from studies.publish_tables import (
    OWN_RECEIPT,
    RANKING,
    attack_figure,
    interval,
    learned_words,
    spread,
    table,
    verdict_across,
)


def proven(compared: Iterable[Compared], data: str, key: str) -> list[Mapping[str, Any]]:
    """Records of one comparison, study by study, with enough seeds and passing receipts in every run."""
    records = (each.records.get(data, {}).get(key) for each in compared)
    return [record for record in records if record is not None and _is_proven(record)]


def _is_proven(record: Mapping[str, Any]) -> bool:
    receipts = record["receipts"]
    return (
        record["seeds"] >= ENOUGH_SEEDS
        and not record["left_out_seeds"]
        and receipts["passed"] == receipts["runs"]
        and not set(record["budgets"]) & set(RANKING)
    )


def proven_words(record: Mapping[str, Any]) -> str:
    """The figure, where it was read, its interval, what it says, and how many runs each side could choose from."""
    runs = (round(len(record["config_hashes"][side]) / record["seeds"]) for side in "ab")
    return (
        f"{'at least ' * record['at_least']}{record['mse_gain']:.3f}× at {100 * record['accuracy']:.2f} % accuracy, "
        f"{interval(record['ci95'], at_least=record['at_least'])}, {verdict_across(record)}; "
        f"{' runs a seed against '.join(map(str, runs))}"
    )


def proven_block(experiments: Sequence[Experiment], compared: Sequence[Compared], data: str, key: str) -> str:
    """Attack by attack, every study whose ``key`` stands on passing receipts alone; empty where there is none."""
    parts = []
    for record in proven(compared, data, key):
        experiment = next(each for each in experiments if each.name == record["study"])
        rows = [row for row in rows_of(experiment, data) if row.passed == row.seeds]
        budgets = " and ".join(record["budgets"])
        outright = "".join(
            f"In every seed `{record['a']}` is more accurate than `{other}` and has the higher worst-case MSE. "
            for other in dict.fromkeys(row.method for row in rows)
            if outdone(rows, record["a"], other)
        )
        parts.append(
            f"Under the attacks of a {budgets} audit (`{experiment.name}`) the worst case of each of these runs stands "
            f"on a passing receipt. {unsettled_words(rows)}{outright}MSE (SSIM) attack by attack; "
            f"{OWN_RECEIPT}{_refined(rows)}\n\n"
            f"{budgets} 审计（`{experiment.name}`）：下列每次运行的最坏情形都有通过的凭据；逐个攻击的 MSE（SSIM）：\n\n"
            f"![Accuracy and worst-case MSE on {data}, {experiment.name}]({figure_name(experiment, data)})\n\n"
            f"{_table(rows)}"
        )
    return "\n\n".join(parts)


def unsettled_words(rows: Sequence[Row]) -> str:
    """Which audits say themselves that more effort will find more; empty where none does."""
    told = [f"`{row.method}` seed {seed}" for row in rows for seed in row.not_settled]
    if not told:
        return ""
    return (
        f"{len(told)} of {sum(row.seeds for row in rows)} audits ({', '.join(told)}) call themselves not settled: more "
        f"effort will find more there. 其中 {len(told)} 次审计自称尚未定论：再投入还会找到更多。 "
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


def _refined(rows: Sequence[Row]) -> str:
    """Why the figures of two attacks may be one: no independent evidence then."""
    if "gan_inverter" not in attack_names(rows):
        return ""
    return (
        " `gan_inverter` refines `inverter` and keeps the epoch with the lowest validation MSE, the start counted: "
        "where the two agree, refining found nothing, and they are one piece of evidence."
    )


def _table(rows: Sequence[Row]) -> str:
    attacks = [name for name in attack_names(rows) if name in FIRST_ATTACKS]
    return table(
        ["method", "λ or weight", "seeds", "accuracy %", "worst-case MSE", "SSIM", *attacks],
        (
            [
                f"`{row.method}`",
                row.strength,
                str(row.seeds),
                row.accuracy.text(2, 100) + learned_words(row),
                row.mse.text(4),
                spread(row.ssim, 2),
                *(attack_figure(row, name) for name in attacks),
            ]
            for row in rows
        ),
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
