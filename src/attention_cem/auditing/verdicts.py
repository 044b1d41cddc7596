"""From finished attacks to the audit's words: which figure stands for the worst case, and how far to trust it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch

from attention_cem.attacks import Attack
from attention_cem.attacks.receipts import CONVERGENCE_TOLERANCE
from attention_cem.auditing.audit_files import FinishedAttack
from attention_cem.auditing.budgets import SHORT_INVERTER
from attention_cem.auditing.effort import OVERRATED

PASSED, UNDER_TRAINED, MISCALIBRATED = "passed", "under-trained", "miscalibrated"
KEPT_START = "kept its start"


def status_of(finished: FinishedAttack) -> str:
    """One of four words.

    ``passed``, ``under-trained`` (no passing receipt), ``kept its start`` (another attack's result, unchanged) or
    ``miscalibrated`` (it knows what it cannot know).
    """
    if finished.receipt.calibration.get("beats_floor"):
        return MISCALIBRATED
    if finished.receipt.kept_start:
        return KEPT_START
    return PASSED if finished.receipt.passes else UNDER_TRAINED


def beaten_by_baseline(finished: Sequence[FinishedAttack], attacks: Mapping[str, Attack]) -> list[FinishedAttack]:
    """Take the verdict "converged" from every attack that an untrained baseline beats on validation images.

    A network stuck on a plateau has a flat curve too; the baselines give it away.
    """
    baselines = [each for each in finished if not attacks[each.name].rebuilds_unseen]
    if not baselines:
        return list(finished)
    best = min(baselines, key=lambda each: each.receipt.validation_mse)
    limit = best.receipt.validation_mse * (1 + CONVERGENCE_TOLERANCE)

    def judged(each: FinishedAttack) -> FinishedAttack:
        if not attacks[each.name].rebuilds_unseen or each.receipt.validation_mse <= limit or not each.receipt.converged:
            return each
        reason = (
            f"stuck: validation MSE {each.receipt.validation_mse:.5f}, {best.name} reaches "
            f"{best.receipt.validation_mse:.5f} without training"
        )
        return replace(each, receipt=replace(each.receipt, converged=False, reason=reason))

    return [judged(each) for each in finished]


def attack_entry(finished: FinishedAttack) -> dict[str, Any]:
    """One row of the record's list of attacks."""
    return {
        "name": finished.name,
        **finished.scores.summary(),
        "status": status_of(finished),
        "images": len(finished.scores.mse),
        "identity": finished.identity,
        "receipt": finished.receipt.to_plain(),
    }


def attack_entries(finished: Sequence[FinishedAttack]) -> list[dict[str, Any]]:
    """All rows, with ``compared_mse``: the MSE over the test images that every attack which counts rebuilt.

    A search rebuilds a part of the test images only; one figure over a part and one over all do not say which attack
    is better.
    """
    counting = [each.rebuilt() for each in finished if status_of(each) != MISCALIBRATED]
    nothing = torch.empty(0, dtype=torch.int64)
    shared = reduce(lambda kept, each: kept[torch.isin(kept, each)], counting) if counting else nothing
    return [{**attack_entry(each), "compared_mse": each.on(shared)} for each in finished]


def _compared(entry: Mapping[str, Any]) -> float:
    """The MSE by which attacks are compared; attacks without an image in common, by what each has."""
    shared = entry.get("compared_mse")
    return float(entry["mse"] if shared is None else shared)


def headline(entries: Sequence[Mapping[str, Any]], rebuilding: Collection[str]) -> dict[str, Any] | None:
    """The worst case: the lowest MSE among attacks with a passing receipt, on the images that those compared rebuilt.

    The figures are over all images its attack rebuilt; ``images`` says how many.
    An under-trained attack that already does better takes its place, marked as such: what it rebuilt is rebuilt, and
    more training can only find more. A miscalibrated attack never counts, nor does one that kept its start: the attack
    it started from is in the list itself, and rounding alone would decide between the two. Without one passing attack
    that rebuilds images it never saw, the headline is marked as well: baselines alone are no fair attacker.

    Args:
        entries: rows of the record, see :func:`attack_entry`.
        rebuilding: names of the attacks that can rebuild unseen images.
    """
    usable = [entry for entry in entries if entry["status"] not in (MISCALIBRATED, KEPT_START)]
    if not usable:
        return None
    # Attacks on as many images as any by all of these; those on fewer by the images that all have.
    most = max(entry["images"] for entry in usable)
    widest = min((entry for entry in usable if entry["images"] == most), key=lambda entry: float(entry["mse"]))
    worst = min((widest, *(entry for entry in usable if entry["images"] < most)), key=_compared)
    fair = any(entry["status"] == PASSED and entry["name"] in rebuilding for entry in entries)
    status = worst["status"] if fair else UNDER_TRAINED
    if status == PASSED:
        note = "worst case over attacks with passing receipts"
    elif not fair:
        note = "no attack that rebuilds unseen images has a passing receipt: the true worst case may be lower"
    else:
        note = "the worst case comes from an attack that was still improving: the true one is lower"
    figures = {key: worst[key] for key in ("mse", "ci95", "psnr", "ssim")}
    figures |= {"waves": worst.get("waves"), "compared_mse": _compared(worst)}
    return {"attack": worst["name"], **figures, "images": worst["images"], "status": status, "note": note}


def short_attack(
    entries: Sequence[Mapping[str, Any]], rebuilding: Collection[str], worst: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """What a short attack alone would have reported, beside the worst case; None if it was the only one, or not run.

    Args:
        entries: rows of the record.
        rebuilding: names of the attacks that can rebuild unseen images.
        worst: the headline.
    """
    short = next((entry for entry in entries if entry["name"] == SHORT_INVERTER), None)
    if short is None or worst is None or set(rebuilding) == {SHORT_INVERTER}:
        return None
    of_short, of_worst = short["mse"], worst["mse"]
    if short["images"] != worst["images"]:
        of_short, of_worst = _compared(short), _compared(worst)
    if of_worst <= 0:
        return None
    excess = of_short / of_worst - 1
    overrates = excess > OVERRATED
    told = f"a short inverter attack alone gives MSE {of_short:.5f}, the worst case is {of_worst:.5f}"
    if overrates:
        told += f": a quick audit overrates this client by {100 * excess:.0f} %"
    return {"mse": of_short, "worst_case_mse": of_worst, "overrates": overrates, "text": told}
