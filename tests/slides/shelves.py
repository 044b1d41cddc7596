"""Repositories for the deck: bare, or with a summary of drawn figures that must be found again on the slides."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
DATA = ("cifar10", "cifar100", "cifar100_coarse", "lfw158", "tinyimagenet20")


def bare(folder: Path) -> Path:
    """A repository without one result file or figure."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def copied(folder: Path) -> Path:
    """The repository's own figures and results, without git."""
    for part in ("results", "docs/assets"):
        shutil.copytree(ROOT / part, folder / part)
    return folder


def write_summary(root: Path, *, seeds: int = 3) -> dict[str, Any]:
    """A summary with results of two studies, in the form `make results` writes."""
    chance = random.Random(7)
    methods = ("noise", "kmeans_published", "kmeans_best", "sound", "seed_slot", "seed_gated", "sound_arl")
    cells = [
        {
            "study": "main-cifar10", "shown_in": "main-cifar10", "strength": f"{0.1 * step:g}",
            "cell": f"{method}-{step}-{seed}", "config_hash": "0" * 12,
            "commit": "0123456789abcdef0123456789abcdef01234567", "method": method, "data": "cifar10", "seed": seed,
            "epochs": 40, "lambda": 0.1 * step, "sigma": 0.1, "accuracy": 0.8 + 0.02 * step + 0.01 * chance.random(),
            "mse": 0.03 - 0.004 * step + 0.002 * chance.random(), "budget": "standard",
            "shutoff_share": 0.25 * seed if method == "seed_slot" else 0.0,
        }
        for method in methods for step in range(4) for seed in range(seeds)
    ]  # fmt: skip
    comparisons: dict[str, dict[str, Any]] = {}
    for data in DATA:
        for b in ("noise", "kmeans_published", "kmeans_best"):
            gain = round(chance.uniform(0.8, 2.4), 4)
            comparisons.setdefault(data, {})[f"sound_vs_{b}"] = {
                "a": "sound", "b": b, "data": data, "study": "main-cifar10" if data == "cifar10" else f"data-{data}",
                "accuracy": chance.uniform(0.6, 0.9), "mse_gain": gain, "at_least": False, "seeds": seeds,
                "ci95": [gain * 0.9, gain * 1.1] if data != "lfw158" else None,
            }  # fmt: skip
    stored = json.loads((ROOT / "results/summary.json").read_text())
    targets = [
        {**target, "figure": round(chance.uniform(0.5, 2.0), 3), "met": (None, True, False)[number % 3]}
        for number, target in enumerate(stored["targets"])
    ]
    studies = {
        "main-cifar10": {"planned": 90, "done": len(cells), "commits": [f"{n}123456789abcdef" for n in range(9)]}
    }
    summary = {"comparisons": comparisons, "targets": targets, "cells": cells, "studies": studies}
    (root / "results").mkdir(parents=True, exist_ok=True)
    (root / "results/summary.json").write_text(json.dumps(summary))
    return summary
