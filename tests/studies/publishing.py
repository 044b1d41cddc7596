"""A small repository with made-up results, for the tests of the published pages; for temporary folders only."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attention_cem.studies import Cell, load_study
from attention_cem.studies.results import RESULT_FORMAT, RESULT_VERSION, write_result
from attention_cem.training.config_reading import config_hash

ROOT = Path(__file__).parents[2]
README = "# A project\n\n<!-- results:begin -->\n<!-- results:end -->\n\nMore.\n"
MAIN = """
name = "main-cifar10"
title = "Main study in small"
budget = "standard"
accuracies = [0.87]
smallest_difference = 0.0001
[settings]
"data.name" = "cifar10"
"train.epochs" = 60
[matrix]
seed = [0, 1, 2]
[[method]]
name = "noise"
settings = { "surrogate.name" = "none" }
matrix = { sigma = [0.05, 0.1, 0.2] }
[[method]]
name = "kmeans_published"
settings = { "surrogate.name" = "kmeans", "surrogate.lambd_schedule" = "reference" }
matrix = { lambda = [4.0, 16.0, 64.0] }
[[method]]
name = "kmeans_constant"
settings = { "surrogate.name" = "kmeans", "surrogate.lambd_schedule" = "constant" }
matrix = { lambda = [4.0, 16.0, 64.0] }
[[method]]
name = "sound"
settings = { "surrogate.name" = "slot_mixture" }
matrix = { lambda = [0.1, 0.3, 1.0] }
"""
LEVEL = {"noise": 1.0, "kmeans_published": 1.5, "kmeans_constant": 2.0, "sound": 3.0}
Figures = Callable[[Cell], tuple[float, float]]


def repository(folder: Path, *studies: str) -> Path:
    """Study files with the real settings of the pages, and no results."""
    for name in ("studies", "results/studies"):
        (folder / name).mkdir(parents=True)
    for name in ("comparisons.toml", "published-cifar10.toml"):
        shutil.copy(ROOT / "results" / name, folder / "results" / name)
    for name in ("README.md", "README.zh.md"):
        (folder / name).write_text(README)
    for text in studies:
        name = text.split('"')[1]
        (folder / "studies" / f"{name}.toml").write_text(text)
    return folder


def figures(cell: Cell) -> tuple[float, float]:
    """Accuracy and MSE on a straight line: at 87 % a method's MSE is its level, in hundredths."""
    step = {0.1: 0, 0.3: 1, 1.0: 2, 4.0: 0, 16.0: 1, 64.0: 2}.get(cell.lambd)
    if step is None:
        step = {0.05: 0, 0.1: 1, 0.2: 2}[cell.sigma or 0.0]
    seed = cell.config.train.seed
    accuracy = 0.89 - 0.02 * step + 0.001 * seed
    level = LEVEL[cell.method.removesuffix("_arl")] * (1 + 0.01 * seed * (cell.method == "sound"))
    return accuracy, 0.01 * level * (1 + (0.87 - accuracy) / 0.04)


def result(study: str, cell: Cell, accuracy: float, mse: float, **more: Any) -> dict[str, Any]:
    attack = {"mse": mse, "ci95": [mse * 0.99, mse * 1.01], "psnr": 15.0, "ssim": 0.5 - mse, "status": "passed"}
    return {
        "format": RESULT_FORMAT,
        "version": RESULT_VERSION,
        "study": study,
        "cell": cell.id,
        "method": cell.method,
        "data": cell.config.data.name,
        "seed": cell.config.train.seed,
        "lambda": cell.lambd,
        "sigma": cell.sigma,
        "settings": dict(cell.settings),
        "config_hash": config_hash(cell.config),
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "accuracy": accuracy,
        "validation_accuracy": accuracy,
        "mse": mse,
        "ci95": [mse * 0.99, mse * 1.01],
        "psnr": float("inf"),
        "ssim": 0.5 - mse,
        "attack": "inverter",
        "status": "passed",
        "receipt_ok": True,
        "note": None,
        "budget": "standard",
        "attacks": {"inverter": attack, "inverter_augmented": attack, "gan_inverter": {**attack, "mse": mse * 1.1}},
        "warnings": [],
        "shutoff_share": None,
        "floor_mse": 0.06,
        "cost": {"seconds_per_epoch": 1.2, "images_per_s": 40000.0, "train_seconds": 70.0, "audit_seconds": 90.0},
        "device": "a device",
        "versions": {},
        **more,
    }


def fill(
    root: Path,
    study: str,
    make: Figures = figures,
    keep: Callable[[Cell], bool] = lambda cell: True,
    more: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write results of the study's cells."""
    written = []
    for cell in load_study(root / "studies" / f"{study}.toml").cells:
        if keep(cell):
            file = root / "results" / "studies" / study / f"{cell.id}.json"
            write_result(file, {**result(study, cell, *make(cell)), **(more or {})})
            written.append(file)
    return written


STACKED = """
name = "stacked-cifar10"
title = "Stacked on an adversarial inverter"
budget = "thorough"
[settings]
"data.name" = "cifar10"
[matrix]
seed = [0, 1]
[[method]]
name = "noise_arl"
settings = { "surrogate.name" = "none" }
matrix = { sigma = [0.05, 0.1, 0.2] }
[[method]]
name = "kmeans_constant_arl"
settings = { "surrogate.name" = "kmeans" }
matrix = { lambda = [4.0, 16.0, 64.0] }
[[method]]
name = "sound_arl"
settings = { "surrogate.name" = "slot_mixture" }
matrix = { lambda = [0.1, 0.3, 1.0] }
"""


def summary(root: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((root / "results" / "summary.json").read_text())
    return content


def page(root: Path, name: str) -> str:
    return (root / "results" / f"{name}.md").read_text()
