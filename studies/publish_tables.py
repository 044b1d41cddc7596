"""Markdown tables of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attention_cem.studies.verdicts import BETTER, WORSE
from studies.publish_rows import Row, Spread, attack_names, short_commit

NOTHING = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar inside a cell is escaped.

    >>> print(table(["a", "b"], [["1", "x|y"]]))
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    """
    lines = [list(head), ["---"] * len(head), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines)


RANKING = ("quick", "screening")
"""Budgets whose attacks rank and prove nothing."""
OWN_RECEIPT = (
    "†: in some seed the attack's own receipt does not pass; with more effort it might find more. ‡: it refines the "
    "inverter's result and in some seed found nothing, so that there it is no evidence of its own. "
    "†：有种子中该攻击自身的凭据未通过，更多投入可能找到更多。‡：它从反演网络的结果出发，有种子中一无所获，不构成独立证据。"
)
"""Beside every table of attacks."""


def settings_table(rows: Sequence[Row]) -> str:
    """Accuracy and worst case of every setting."""
    head = [
        "method",
        "σ",
        "λ or weight",
        "seeds",
        "accuracy %",
        "worst-case MSE",
        "SSIM",
        "worst attack",
        "receipts",
        "shut off",
    ]
    return table(
        [*head, "study · config · commit"],
        (
            [
                row.method,
                number(row.sigma),
                row.strength,
                str(row.seeds),
                row.accuracy.text(2, 100) + learned_words(row),
                row.mse.text(4),
                spread(row.ssim, 3),
                row.worst_attacks,
                f"{row.passed} of {row.seeds}",
                NOTHING if row.shutoff is None else f"{100 * row.shutoff.mean:.0f} %",
                row.source,
            ]
            for row in rows
        ),
    )


def learned_words(row: Row) -> str:
    """Said beside an accuracy where runs of the row are at chance."""
    return f" ({row.never_learned} of {row.seeds} never learned)" if row.never_learned else ""


def attacks_table(rows: Sequence[Row]) -> str:
    """MSE and SSIM of every attack on every setting; empty where no row names its attacks."""
    names = attack_names(rows)
    if not names:
        return ""
    return table(
        ["method", "σ", "λ or weight", *names, "study · config · commit"],
        (
            [row.method, number(row.sigma), row.strength, *(attack_figure(row, name) for name in names), row.source]
            for row in rows
        ),
    )


def attack_figure(row: Row, name: str) -> str:
    """MSE and SSIM of an attack, marked where a receipt of its own does not pass."""
    mse, ssim = row.attack(name), row.attack(name, "ssim")
    if mse is None:
        return NOTHING
    told = mse.text(4) if ssim is None else f"{mse.text(4)} ({ssim.mean:.3f})"
    if row.attack_proven(name):
        return told
    return f"{told} {'‡' if row.attack_kept_start(name) else '†'}"


def waves_table(rows: Sequence[Row]) -> str:
    """What stays hidden of each band of waves, coarse to fine; empty where no row has it."""
    bands = list(dict.fromkeys(band for row in rows for band in row.hidden))
    if not bands:
        return ""
    head = ["method", "σ", "λ or weight", "accuracy %", "of seeds"]
    return table(
        [*head, *(f"waves {band}" for band in bands), "study · config · commit"],
        (
            [
                row.method,
                number(row.sigma),
                row.strength,
                row.accuracy.text(2, 100) + learned_words(row),
                f"{row.seeds_with_waves} of {row.seeds}",
                *(spread(row.hidden.get(band), 2) for band in bands),
                row.source,
            ]
            for row in rows
            if row.hidden
        ),
    )


def comparisons_table(records: Iterable[Mapping[str, Any]]) -> str:
    """MSE at equal accuracy, one line per comparison."""
    return table(
        [
            "comparison",
            "data",
            "accuracy %",
            "MSE ratio",
            "95 % interval",
            "SSIM",
            "undefended %",
            "seeds",
            "verdict",
            "study · config · commit",
        ],
        (
            [
                f"{record['a']} / {record['b']}",
                record["data"],
                accuracy_words(record, 2),
                f"{'≥ ' * record['at_least']}{record['mse_gain']:.3f}×",
                interval(record["ci95"], at_least=record["at_least"]),
                both_ssim(record),
                undefended(record),
                str(record["seeds"]),
                verdict_across(record),
                comparison_source(record),
            ]
            for record in records
        ),
    )


def verdict(record: Mapping[str, Any]) -> str:
    """Better or worse by MSE, and whether SSIM says the same.

    >>> verdict({"outcome": "better", "ssim_a": 0.5, "ssim_b": 0.4, "at_least": False})
    'better, not by SSIM'
    >>> verdict({"outcome": "better", "ssim_a": 0.3, "ssim_b": 0.4, "at_least": True})
    'better'
    """
    outcome: str = record["outcome"]
    if outcome not in (BETTER, WORSE) or None in (record["ssim_a"], record["ssim_b"]):
        return outcome
    if (record["ssim_a"] < record["ssim_b"]) is (outcome == BETTER):
        return outcome
    return f"{outcome}, {'SSIM undecided' if record['at_least'] else 'not by SSIM'}"


def verdict_across(record: Mapping[str, Any]) -> str:
    """The verdict, and between which of the accuracies that were read it holds, so that none is chosen for its verdict.

    The whole verdict, SSIM included. One of a difference reaches no further than the first side has runs of its own
    (``own_until``): beyond them it is a mixture with the run without a surrogate, at whose accuracy all curves end.

    >>> ssim = {"ssim_a": 0.3, "ssim_b": 0.4}
    >>> record = {"outcome": "better", **ssim, "at_least": False, "accuracy": 0.8, "own_until": 0.9}
    >>> verdict_across({**record, "across": [{"accuracy": 0.8, "outcome": "better", **ssim}]})
    'better'
    >>> read = [(0.78, "undecided"), (0.8, "better"), (0.85, "better"), (0.9, "undecided")]
    >>> across = [{"accuracy": at, "outcome": outcome, **ssim} for at, outcome in read]
    >>> verdict_across({**record, "across": across})
    'better, from 80.0 to 85.0 %'
    >>> verdict_across({**record, "across": across, "own_until": 0.84})
    'better, where its own runs end'
    >>> verdict_across({**record, "across": [across[0], across[1], across[3]]})
    'better, at no other accuracy'
    >>> verdict_across({**record, "across": across, "own_until": 0.79})
    'better, beyond its own runs'
    >>> verdict_across({**record, "across": [across[0], across[1], across[3]], "own_until": 0.79})
    'better, beyond its own runs, at no other accuracy'
    """
    told, at_least = verdict(record), record["at_least"]
    a_difference = record["outcome"] in (BETTER, WORSE)
    until = (record["own_until"] or 0.0) if a_difference else 1.0
    across = sorted(record["across"], key=lambda each: float(each["accuracy"]))
    if record["accuracy"] > until:
        elsewhere = [at for at in across if at["accuracy"] != record["accuracy"]]
        alone = elsewhere and all(verdict({**at, "at_least": at_least}) != told for at in elsewhere)
        return f"{told}, beyond its own runs{', at no other accuracy' if alone else ''}"
    if all(verdict({**at, "at_least": at_least}) == told and at["accuracy"] <= until for at in across):
        return told
    low = high = record["accuracy"]
    for at in across:
        same = verdict({**at, "at_least": at_least}) == told
        if at["accuracy"] < record["accuracy"]:
            low = min(low, at["accuracy"]) if same else record["accuracy"]
        elif same and at["accuracy"] <= until:
            high = at["accuracy"]
        else:
            break
    if low < high:
        return f"{told}, from {100 * low:.1f} to {100 * high:.1f} %"
    above = next((at for at in across if at["accuracy"] > record["accuracy"]), None)
    ends = above is not None and verdict({**above, "at_least": at_least}) == told
    return f"{told}, {'where its own runs end' if ends else 'at no other accuracy'}"


def undefended(record: Mapping[str, Any]) -> str:
    """The share of the images that the run without a surrogate has, first side / second side, in per cent.

    >>> undefended({"undefended_share": {"a": 0.314, "b": 0.0}})
    '31 / 0'
    """
    return " / ".join(f"{100 * record['undefended_share'][side]:.0f}" for side in "ab")


def accuracy_words(record: Mapping[str, Any], digits: int) -> str:
    """Where a comparison was read, in per cent, marked where the study file names no accuracy that both sides cover."""
    return f"{100 * record['accuracy']:.{digits}f}{'' if record['accuracy_from'] == 'the study file' else ' (lowest)'}"


def both_ssim(record: Mapping[str, Any], digits: int = 3) -> str:
    """SSIM of the first side and of the second, or dashes."""
    return " / ".join(
        NOTHING if each is None else f"{each:.{digits}f}" for each in (record["ssim_a"], record["ssim_b"])
    )


def across_table(records: Iterable[Mapping[str, Any]]) -> str:
    """Comparisons at every accuracy that was read, so that none is chosen for its figure."""
    return table(
        [
            "comparison",
            "accuracy %",
            "MSE ratio",
            "95 % interval",
            "SSIM",
            "undefended %",
            "verdict",
            "study · config · commit",
        ],
        (
            [
                f"{record['a']} / {record['b']}",
                f"{100 * at['accuracy']:.2f}",
                f"{'≥ ' * record['at_least']}{at['mse_gain']:.3f}×",
                interval(at["ci95"], at_least=record["at_least"]),
                both_ssim(at),
                undefended(at),
                verdict({**at, "at_least": record["at_least"]}),
                comparison_source(record),
            ]
            for record in records
            for at in record["across"]
        ),
    )


def comparison_source(record: Mapping[str, Any]) -> str:
    """Study, configuration hashes of both sides and commits."""
    hashes = [*record["config_hashes"]["a"], *record["config_hashes"]["b"]]
    few = " ".join(f"`{each[:8]}`" for each in hashes[:3])
    more = f" + {len(hashes) - 3} more" if len(hashes) > 3 else ""
    commits = " ".join(f"`{short_commit(commit)}`" for commit in record["commits"])
    return f"{record['study']} · {few}{more} · {commits}"


def targets_table(targets: Iterable[Mapping[str, Any]]) -> str:
    """Each target and where we stand."""
    return table(
        ["target", "threshold", "figure", "met", "why"],
        (
            [
                target["name"],
                target["threshold"],
                NOTHING if target["figure"] is None else f"{target['figure']:.4g}",
                met_in_words(target),
                target["why"],
            ]
            for target in targets
        ),
    )


def met_in_words(target: Mapping[str, Any]) -> str:
    """Yes, no or open; a yes that stands on attacks without receipts says so."""
    if target["met"] is None:
        return "open"
    if not target["met"]:
        return "no"
    if target.get("proven") is not False:
        return "yes"
    told = "yes, by screening" if target["screened"] else "yes, not every receipt passes"
    also = ", ".join(target.get("confirmed_in", ()))
    return f"{told}; on receipts in {also}" if also else told


def number(value: float | None) -> str:
    """A setting as people write it."""
    return NOTHING if value is None else f"{value:g}"


def spread(value: Spread | None, digits: int) -> str:
    """Mean and deviation, or a dash."""
    return NOTHING if value is None else value.text(digits)


def interval(ci95: Sequence[float] | None, *, at_least: bool = False, digits: int = 3) -> str:
    """An interval, or why there is none; of a lower bound its lower end alone."""
    if ci95 is None:
        return "none (one seed)"
    low, high = (f"{end:.{digits}f}" for end in ci95)
    return f"above {low}" if at_least else f"{low} to {high}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
