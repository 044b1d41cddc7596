"""The goals of ``results/comparisons.toml``: where we stand, met or not, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attention_cem.studies.verdicts import ENOUGH_SEEDS
from studies.publish_reading import Experiment
from studies.publish_rows import Row, rows_of, short_commit
from studies.publish_settings import Settings
from studies.publish_stamps import benchmark_files
from studies.publish_tables import both_ssim, interval

SETTING = ("mode", "batch", "classes")


def targets_of(
    root: Path,
    settings: Settings,
    experiments: Sequence[Experiment],
    comparisons: Mapping[str, Mapping[str, Any]],
    missing: Sequence[Mapping[str, str]],
) -> list[dict[str, Any]]:
    """Each target as ``name``, ``threshold`` and ``why`` in words, ``figure``, ``ci95`` and ``met``, each or null."""
    made = []
    for target in settings.targets:
        if "comparison" in target:
            standing = _comparison(target, comparisons, missing)
        elif "method" in target:
            standing = _worst_case(target, settings, experiments)
        elif "cost_of" in target:
            standing = _cost(target, cost_figures(root))
        else:
            raise ValueError(f"a target needs `comparison`, `method` or `cost_of`, got {dict(target)}")
        made.append({"name": target["name"], **standing})
    return made


def cost_figures(root: Path) -> dict[str, Any]:
    """What trainings cost that ran alone: ``source``, ``rows`` as measured, ``seconds_per_epoch`` of the first setting.

    Runs of studies share a GPU with each other: their seconds say nothing about cost.
    """
    for file in benchmark_files(root):
        figures = json.loads(file.read_text(encoding="utf-8"))
        rows, machine = figures["rows"], figures["machine"]
        if not rows:
            continue
        commit = short_commit(figures.get("commit") or "unknown")
        setting = [rows[0][key] for key in SETTING]
        seconds = {row["method"]: row["epoch_s"] for row in rows if [row[key] for key in SETTING] == setting}
        return {
            "source": f"results/benchmarks/{file.name}",
            "machine": f"{machine['gpu']}, torch {machine['torch']}, commit {commit}",
            "rows": rows,
            "seconds_per_epoch": seconds,
        }
    return {"source": None, "machine": None, "rows": [], "seconds_per_epoch": {}}


def _comparison(
    target: Mapping[str, Any], comparisons: Mapping[str, Mapping[str, Any]], missing: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    data, key = target["comparison"].split(".", 1)
    record = comparisons.get(data, {}).get(key)
    least, above = target["gain_at_least"], target.get("ci95_above")
    threshold = f"MSE ≥ {least:g}×" + (f", interval above {above:g}" if above is not None else "")
    if record is None:
        reasons = [each["reason"] for each in missing if each["comparison"] == target["comparison"]]
        return _standing(threshold, None, None, None, reasons[0] if reasons else "not among the comparisons")
    gain, ci95 = record["mse_gain"], record["ci95"]
    at = (
        f"{'at least ' * record['at_least']}{gain:.3f}× at {100 * record['accuracy']:.2f} % accuracy "
        f"(SSIM {both_ssim(record, 2)}), "
        f"{record['seeds']} seeds, study {record['study']}"
    )
    if ci95 is None:
        return _standing(threshold, gain, None, None, f"{at}: no interval, so nothing is decided")
    why = f"{at}, 95 % interval {interval(ci95, at_least=record['at_least'])}"
    receipts = record["receipts"]
    proven = receipts["passed"] == receipts["runs"]
    if not proven:
        why += f"; {receipts['passed']} of {receipts['runs']} runs have a passing receipt"
    if record["study"] != target.get("study", record["study"]):
        return _standing(threshold, gain, ci95, None, f"{why}; decided by {target['study']} alone")
    if record["seeds"] < ENOUGH_SEEDS:
        return _standing(threshold, gain, ci95, None, f"{why}; a target is decided by {ENOUGH_SEEDS} seeds or more")
    if record["left_out_seeds"]:
        return _standing(threshold, gain, ci95, None, f"{why}; seeds are left out, so nothing is decided")
    met = gain >= least and (above is None or ci95[0] > above)
    standing = _standing(threshold, gain, ci95, None if record["at_least"] and not met else met, why)
    return {**standing, "proven": proven}


def _worst_case(target: Mapping[str, Any], settings: Settings, experiments: Sequence[Experiment]) -> dict[str, Any]:
    method, data, budget = target["method"], target["data"], target["budget"]
    accuracy, mse = target["accuracy_at_least"], target["mse_at_least"]
    threshold = f"worst-case MSE ≥ {mse:g} at ≥ {100 * accuracy:g} % accuracy, {budget} attacks"
    meant = settings.defence_and_core(method)
    every = [row for each in experiments for row in rows_of(each, data)]
    rows = [row for row in every if settings.defence_and_core(row.method) == meant]
    if not rows:
        return _standing(threshold, None, None, None, f"no results of {method} on {data}")
    reached = [row for row in rows if row.accuracy.mean >= accuracy]
    if not reached:
        highest = max(row.accuracy.mean for row in rows)
        why = f"no setting reaches the accuracy: the highest is {100 * highest:.2f} %"
        waiting = [
            stored.study.budget
            for each in experiments
            for stored in each.studies
            for cell in stored.missing
            if cell.config.data.name == data and settings.defence_and_core(cell.method) == meant
        ]
        if waiting:
            told = (
                f"{why}; {len(waiting)} runs are still missing, {waiting.count(budget)} of them with {budget} attacks"
            )
            return _standing(threshold, None, None, None, told)
        return _standing(threshold, None, None, False, why)
    best = max(reached, key=lambda row: (row.budgets == (budget,), row.mse.mean))
    return _standing(threshold, best.mse.mean, None, *_worst_case_verdict(best, mse, budget))


def _worst_case_verdict(best: Row, mse: float, budget: str) -> tuple[bool | None, str]:
    why = (
        f"{best.mse.mean:.4f} at {100 * best.accuracy.mean:.2f} %, σ {best.sigma}, λ or weight {best.strength}, "
        f"{best.seeds} seed{'s' * (best.seeds != 1)}, study {best.study}"
    )
    if best.mse.mean < mse:
        return False, why
    if best.budgets != (budget,):
        return None, f"{why}; attacked with budget {', '.join(best.budgets)}, not {budget}"
    if best.passed < best.seeds:
        return None, f"{why}; {best.seeds - best.passed} without a passing receipt: the worst case may be lower"
    if best.seeds < ENOUGH_SEEDS:
        return None, f"{why}; a target is decided by {ENOUGH_SEEDS} seeds or more"
    return True, why


def _cost(target: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    most, below = target.get("ratio_at_most"), target.get("ratio_below")
    threshold = f"≤ {most:g}×" if most is not None else f"< {below:g}×"
    seconds = figures["seconds_per_epoch"]
    absent = [name for name in (target["cost_of"], target["cost_over"]) if name not in seconds]
    if absent:
        return _standing(threshold, None, None, None, f"no measurement of {' and '.join(absent)} alone on a machine")
    ours, theirs = seconds[target["cost_of"]], seconds[target["cost_over"]]
    ratio = ours / theirs
    met = ratio <= most if most is not None else ratio < (below or 0.0)
    return _standing(threshold, ratio, None, met, f"{ours:.3f} s against {theirs:.3f} s per epoch, {figures['source']}")


def _standing(
    threshold: str, figure: float | None, ci95: Sequence[float] | None, met: bool | None, why: str
) -> dict[str, Any]:
    return {
        "threshold": threshold,
        "figure": figure,
        "ci95": None if ci95 is None else list(ci95),
        "met": met,
        "why": why,
    }
