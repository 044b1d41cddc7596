"""The goals of ``results/comparisons.toml``: where we stand, met or not, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attention_cem.studies.verdicts import ENOUGH_SEEDS
from studies.publish_augmented import Found
from studies.publish_benchmarks import cost_figures, cost_standing
from studies.publish_comparisons import Compared, preferred
from studies.publish_proven import proven, proven_words
from studies.publish_reading import Experiment
from studies.publish_rows import Row, attacked_hardest, rows_of
from studies.publish_settings import Settings
from studies.publish_tables import RANKING, both_ssim, interval


def targets_of(
    root: Path,
    settings: Settings,
    experiments: Sequence[Experiment],
    compared: Sequence[Compared],
    comparisons: Mapping[str, Mapping[str, Any]],
    missing: Sequence[Mapping[str, str]],
    more_found: Found | None = None,
) -> list[dict[str, Any]]:
    """Each target as ``name``, ``threshold`` and ``why`` in words, ``figure``, ``ci95`` and ``met``, each or null."""
    made = []
    in_turn = preferred(compared, settings)
    by_study = {each.experiment: each for each in (*in_turn, *compared)}
    for target in settings.targets:
        if "comparison" in target:
            standing = _comparison(target, by_study, comparisons, missing, more_found)
        elif "method" in target:
            standing = _worst_case(target, settings, experiments)
        elif "cost_of" in target:
            standing = _cost(target, cost_figures(root))
        else:
            raise ValueError(f"a target needs `comparison`, `method` or `cost_of`, got {dict(target)}")
        before = _before(target, by_study)
        if before is not None:
            standing["why"] += f"; {before[0]}"
        chosen = target.get("named_afterwards")
        if chosen is not None:
            standing["why"] += f"; {chosen} was named when the figures were known"
        missed_before = before is not None and before[1]
        made.append({"name": target["name"], **standing, "named_afterwards": chosen, "missed_before": missed_before})
    return made


def _comparison(
    target: Mapping[str, Any],
    compared: Mapping[str, Compared],
    comparisons: Mapping[str, Mapping[str, Any]],
    missing: Sequence[Mapping[str, str]],
    more_found: Found | None,
) -> dict[str, Any]:
    data, key = target["comparison"].split(".", 1)
    study = target.get("study")
    record = comparisons.get(data, {}).get(key) if study is None else _record_of(compared.get(study), data, key)
    least, above = target["gain_at_least"], target.get("ci95_above")
    threshold = f"MSE ≥ {least:g}×" + (f", interval above {above:g}" if above is not None else "")
    if record is None:
        return _standing(threshold, None, None, None, _why_missing(target, compared, missing))
    gain, ci95 = record["mse_gain"], record["ci95"]
    at = (
        f"{'at least ' * record['at_least']}{gain:.3f}× at {100 * record['accuracy']:.2f} % accuracy "
        f"(SSIM {both_ssim(record, 2)}), "
        f"{record['seeds']} seeds, study {record['study']}"
    )
    if ci95 is None:
        return _standing(threshold, gain, None, None, f"{at}: no interval, so nothing is decided")
    why = f"{at}, 95 % interval {interval(ci95, at_least=record['at_least'])}"
    if record["never_learned"]:
        why += f"; {record['never_learned']} of {record['receipts']['runs']} runs never learned"
    receipts = record["receipts"]
    passing = receipts["passed"] == receipts["runs"]
    screened = bool(set(record["budgets"]) & set(RANKING))
    holds_with_less = True
    if record["augmented"] < receipts["runs"]:
        why += f"; {receipts['runs'] - record['augmented']} of {receipts['runs']} runs without augmented images"
        if more_found is not None:
            less, told = _with_less(record, more_found)
            holds_with_less = _reaches(less, target)
            why += f", which took up to {-100 * more_found.ours[0]:.0f} % from ours elsewhere: {told} then"
    if not passing:
        why += f"; {receipts['passed']} of {receipts['runs']} runs have a passing receipt"
    if study is not None:
        why += _elsewhere(study, compared, data, key)
    if record["seeds"] < ENOUGH_SEEDS:
        return _standing(threshold, gain, ci95, None, f"{why}; a target is decided by {ENOUGH_SEEDS} seeds or more")
    if record["left_out_seeds"]:
        return _standing(threshold, gain, ci95, None, f"{why}; seeds are left out, so nothing is decided")
    met = _reaches(record, target)
    if met and not holds_with_less:
        return _standing(threshold, gain, ci95, None, f"{why}, which would miss it: nothing is decided")
    others = [] if passing else proven(compared.values(), data, key)
    why += "".join(
        f"; on passing receipts in {each['study']}, which does not decide: {proven_words(each)}" for each in others
    )
    standing = _standing(threshold, gain, ci95, None if record["at_least"] and not met else met, why)
    confirmed = [_confirmed(each, record) for each in others if met and _reaches(each, target)]
    return {**standing, "proven": passing, "screened": screened, "confirmed_in": confirmed}


def _confirmed(record: Mapping[str, Any], decides: Mapping[str, Any]) -> str:
    """The study, and what it was against where that is less than the study that decides has."""
    fewer = record["methods"]["b"] if set(record["methods"]["b"]) < set(decides["methods"]["b"]) else ()
    return f"{record['study']} (against {' and '.join(fewer)} alone)" if fewer else str(record["study"])


def _reaches(record: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    least, above = target["gain_at_least"], target.get("ci95_above")
    return bool(record["mse_gain"] >= least and (above is None or record["ci95"][0] > above))


def _with_less(record: Mapping[str, Any], found: Found) -> tuple[dict[str, Any], str]:
    """The comparison if attackers with augmented images take from ours what they took at most where it was measured."""
    less = 1 + found.ours[0]
    gain, ci95 = record["mse_gain"] * less, [end * less for end in record["ci95"]]
    return {"mse_gain": gain, "ci95": ci95}, f"{gain:.3f}×, {interval(ci95, at_least=record['at_least'])}"


def _before(target: Mapping[str, Any], compared: Mapping[str, Compared]) -> tuple[str, bool] | None:
    """What the recipe that came before reached, in words, and whether that missed the target; None without one."""
    if "before" not in target:
        return None
    study, data, key = (str(target["before"][name]) for name in ("study", "data", "comparison"))
    record = _record_of(compared.get(study), data, key)
    if record is None:
        return None
    least, above = target["gain_at_least"], target.get("ci95_above", 0.0)
    ci95 = record["ci95"]
    missed = record["mse_gain"] < least or ci95 is None or ci95[0] <= above
    told = (
        f"with `{record['a']}` in {study}, which does not decide: {'at least ' * record['at_least']}"
        f"{record['mse_gain']:.3f}×, {interval(ci95, at_least=record['at_least'])}, {'missed' if missed else 'met'}"
    )
    never = f", {record['never_learned']} of its runs never learned" if record["never_learned"] else ""
    return f"{told}{never}", missed


def _record_of(compared: Compared | None, data: str, key: str) -> Mapping[str, Any] | None:
    return None if compared is None else compared.records.get(data, {}).get(key)


def _elsewhere(decides: str, compared: Mapping[str, Compared], data: str, key: str) -> str:
    """What the study says that would speak for the data set, had the target not named another; empty if none does."""
    others = (_record_of(each, data, key) for name, each in compared.items() if name != decides)
    record = next((each for each in others if each is not None and each["seeds"] >= ENOUGH_SEEDS), None)
    if record is None:
        return ""
    told = f"{'at least ' * record['at_least']}{record['mse_gain']:.3f}×, {record['outcome']}"
    never = f", {record['never_learned']} of its runs never learned" if record["never_learned"] else ""
    return f"; in {record['study']}, which does not decide: {told}{never}"


def _why_missing(
    target: Mapping[str, Any], compared: Mapping[str, Compared], missing: Sequence[Mapping[str, str]]
) -> str:
    data, key = target["comparison"].split(".", 1)
    study = target.get("study")
    if study is None:
        reasons = [each["reason"] for each in missing if each["comparison"] == target["comparison"]]
        return reasons[0] if reasons else "not among the comparisons"
    if study not in compared:
        return f"decided by {study} alone, and there is no such study"
    of_study = [each.reason for each in compared[study].missing if (each.data, each.key) == (data, key)]
    return f"decided by {study} alone: {of_study[0] if of_study else 'it has no results of these methods'}"


def _worst_case(target: Mapping[str, Any], settings: Settings, experiments: Sequence[Experiment]) -> dict[str, Any]:
    methods, data, budget = target["method"], target["data"], target["budget"]
    methods = [methods] if isinstance(methods, str) else methods
    accuracy, mse = target["accuracy_at_least"], target["mse_at_least"]
    threshold = f"worst-case MSE ≥ {mse:g} at ≥ {100 * accuracy:g} % accuracy, {budget} attacks"
    meant = {settings.defence_and_core(method) for method in methods}
    every = [row for each in experiments for row in rows_of(each, data)]
    rows = [row for row in every if settings.defence_and_core(row.method) in meant]
    if not rows:
        return _standing(threshold, None, None, None, f"no results of {' or '.join(methods)} on {data}")
    reached = [row for row in rows if row.accuracy.mean >= accuracy]
    if not reached:
        highest = max(row.accuracy.mean for row in rows)
        why = f"no setting reaches the accuracy: the highest is {100 * highest:.2f} %"
        waiting = [
            stored.study.budget
            for each in experiments
            for stored in each.studies
            for cell in stored.missing
            if cell.config.data.name == data and settings.defence_and_core(cell.method) in meant
        ]
        if waiting:
            told = (
                f"{why}; {len(waiting)} runs are still missing, {waiting.count(budget)} of them with {budget} attacks"
            )
            return _standing(threshold, None, None, None, told)
        return _standing(threshold, None, None, False, why)
    best = max(attacked_hardest(reached), key=lambda row: (row.budgets == (budget,), row.mse.mean))
    return _standing(threshold, best.mse.mean, None, *_worst_case_verdict(best, mse, budget))


def _worst_case_verdict(best: Row, mse: float, budget: str) -> tuple[bool | None, str]:
    strength = best.strength if "weight" in best.strength else f"λ {best.strength}"
    why = (
        f"{best.mse.mean:.4f} at {100 * best.accuracy.mean:.2f} %, σ {best.sigma}, {strength}, "
        f"{best.seeds} seed{'s' * (best.seeds != 1)}, study {best.study}"
    )
    plain = sum(not each.augmented for each in best.members)
    if plain:
        why += f"; {plain} attacked without augmented images: the worst case may be lower"
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
    ratio, why = cost_standing(target, figures)
    if ratio is None:
        return _standing(threshold, None, None, None, why)
    met = ratio <= most if most is not None else ratio < (below or 0.0)
    return _standing(threshold, ratio, None, met, why)


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
