"""An audit's record in words for the terminal. It formats; every figure comes from the record."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

_DEFINED = ("mse", "ci95", "psnr", "ssim", "train_test_gap", "status", "converged", "calibrated", "floor_mse")
_BOUNDS = {
    "theorem2_leakage": "leakage, Theorem 2",
    "information_upper_bound": "information in a release, at most",
    "relative_mse_floor": "relative MSE, at least (Theorem 1)",
    "dfil": "Fisher-information leakage dFIL",
    "dfil_mse_floor": "MSE of an unbiased attacker, at least",
}
_MORE_EFFORT = {
    "settled": "More attack effort would not find more (settled).",
    "not settled": "More attack effort will find more (not settled).",
    "not judged": "Whether more attack effort would find more is beyond this budget (not judged).",
}
_EFFORT_SHARES = (0.01, 0.1, 0.5, 1.0)


def audit_text(record: Mapping[str, Any], width: int = 110) -> str:
    """The whole record: attacks, headline, receipts, bounds, membership, warnings, definitions."""
    parts = [
        _title(record),
        attack_table(record),
        _wrapped(headline_words(record), width),
        _section("Identity", _identity(record), width),
        _section("Receipts", _receipts(record), width),
        _section("Attack effort", [_effort(record)], width),
        _section("Membership inference", _membership(record), width),
        _section("Bounds", _bounds(record), width),
        _section("Take care", list(record["warnings"]), width),
        _section("Definitions", _definitions(record), width),
    ]
    return "\n\n".join(part for part in parts if part)


def headline_words(record: Mapping[str, Any]) -> str:
    """The worst case in sentences a person can quote."""
    worst = record["headline"]
    if worst is None:
        return "No headline: no attack passed its calibration, so no figure of this audit may be quoted."
    low, high = worst["ci95"]
    ssim = "" if worst["ssim"] is None else f", SSIM {worst['ssim']:.3f}"
    counted = len(record["attacks"])
    words = (
        f"An attacker rebuilds test images with MSE {worst['mse']:.5f} (95 % interval {low:.5f} to {high:.5f}), "
        f"PSNR {worst['psnr']:.2f} dB{ssim}; worst of {counted} attack{'s' if counted > 1 else ''} "
        f"({worst['attack']}, on {worst['images']:,} images); receipt: {worst['status']}"
    )
    words += ". " if worst["status"] == "passed" else f", {worst['note']}. "
    words += f"One who sees nothing gets MSE {record['floor_mse']:.5f}."
    if record["accuracy"] is not None:
        words += f" The model is right on {percent(record['accuracy'], 2)} of the test images."
    return f"{words} {_MORE_EFFORT[record['settled']['verdict']]}"


def percent(share: float, digits: int = 1) -> str:
    """A share as people write it.

    >>> percent(0.125)
    '12.5 %'
    """
    return f"{100 * share:.{digits}f} %"


def attack_table(record: Mapping[str, Any]) -> str:
    """One line an attack, the most successful first; the headline's is marked."""
    rows = sorted(record["attacks"], key=lambda row: row["mse"])
    identity = any(row["identity"] for row in rows)
    head = ["", "attack", "MSE", "95 % interval", "PSNR dB", "SSIM", "gap", "images", "seconds"]
    lines = [[*head, *(["identity"] if identity else []), "receipt"]]
    worst = record["headline"]["attack"] if record["headline"] else None
    for row in rows:
        receipt = row["receipt"]
        cells = [
            ">" if row["name"] == worst else "",
            row["name"],
            f"{row['mse']:.5f}",
            "{:.5f}–{:.5f}".format(*row["ci95"]),
            f"{row['psnr']:.2f}",
            "–" if row["ssim"] is None else f"{row['ssim']:.3f}",
            f"{receipt['train_test_gap']:+.5f}",
            f"{row['images']:,}",
            f"{receipt['seconds']:,.0f}",
        ]
        if identity:
            cells.append(percent(row["identity"]["on_reconstructions"]) if row["identity"] else "–")
        lines.append([*cells, row["status"]])
    return _aligned(lines, left={0, 1, len(lines[0]) - 1})


def _title(record: Mapping[str, Any]) -> str:
    about = record["about"] or {}
    run = "".join(sign for sign in str(about.get("run") or "") if sign.isprintable())
    of = f" of {run}" if run else ""
    box = "white-box" if record["threat_model"]["white_box"] else "black-box"
    return f"Audit{of}: budget {record['budget']}, {box}, on {record['device']}"


def _receipts(record: Mapping[str, Any]) -> list[str]:
    told = []
    for row in sorted(record["attacks"], key=lambda each: each["mse"]):
        receipt = row["receipt"]
        converged = "converged" if receipt["converged"] else "not converged"
        calibrated = "calibrated" if receipt["calibrated"] else "not calibrated"
        reason = receipt["calibration"].get("reason", "not tried")
        told.append(f"{row['name']}: {converged} ({receipt['reason']}); {calibrated} ({reason})")
    return told


def _effort(record: Mapping[str, Any]) -> str:
    """Best validation MSE at a few shares of all the effort, and the verdict."""
    settled = record["settled"]
    efforts, best = settled["effort"], settled["best_mse"]
    steps = []
    for share in _EFFORT_SHARES:
        reached = [mse for effort, mse in zip(efforts, best, strict=True) if effort <= share * efforts[-1]]
        if reached:
            steps.append(f"{percent(share, 0)} of the effort {reached[-1]:.5f}")
    curve = f"best validation MSE after {', '.join(steps)}. " if steps else ""
    return f"{settled['verdict']}: {curve}{settled['reason'][:1].upper()}{settled['reason'][1:]}."


def _identity(record: Mapping[str, Any]) -> list[str]:
    found = [row["identity"] for row in record["attacks"] if row["identity"]]
    if not found:
        return []
    best = max(found, key=lambda each: each["on_reconstructions"])
    return [
        f"the class (person) is recognised in {percent(best['on_reconstructions'])} of the rebuilt images at most; "
        f"in the true images {percent(best['on_true_images'])}, by chance {percent(best['chance'])}"
    ]


def _membership(record: Mapping[str, Any]) -> list[str]:
    found = record["membership"] or {}
    return [
        f"from {name}: AUC {each['auc']:.3f}, true positives at 1 % false positives "
        f"{percent(each['tpr_at_1_percent_fpr'])}, {each['candidates']:,} candidates"
        for name, each in found.items()
    ]


def _bounds(record: Mapping[str, Any]) -> list[str]:
    bounds = record["bounds"]
    if not bounds["available"]:
        return [f"none: {bounds['reason']}"]
    told = []
    for key, words in _BOUNDS.items():
        if bounds.get(key) is not None:
            assumption = bounds["assumptions"].get(key)
            told.append(f"{words}: {bounds[key]:.4g}" + (f" ({assumption})" if assumption else ""))
    return told


def _definitions(record: Mapping[str, Any]) -> list[str]:
    names = [*_DEFINED, "headline", "effort", "settled"]
    names += ["identity"] if any(row["identity"] for row in record["attacks"]) else []
    names += ["membership"] if record["membership"] else []
    names += ["accuracy"] if record["accuracy"] is not None else []
    shown = {"train_test_gap": "gap", "status": "receipt", "floor_mse": "one who sees nothing", "ci95": "95 % interval"}
    return [f"{shown.get(name, name)}: {record['definitions'][name]}" for name in names]


def _section(title: str, lines: Sequence[str], width: int) -> str:
    return "\n".join([title, *(_wrapped(line, width, "  ") for line in lines)]) if lines else ""


def _wrapped(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(
        text, max(width, 40), initial_indent=indent, subsequent_indent=2 * indent, break_on_hyphens=False
    )


def _aligned(lines: Sequence[Sequence[str]], left: set[int]) -> str:
    """Columns of equal width, figures to the right.

    >>> print(_aligned([["a", "MSE"], ["bb", "0.1"]], left={0}))
    a   MSE
    bb  0.1
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    placed = (
        "  ".join(
            cell.ljust(size) if number in left else cell.rjust(size)
            for number, (cell, size) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
    return "\n".join(line.rstrip() for line in placed)
