"""A run of the product's own trainer, small enough to be drawn in seconds: grey synthetic images of 16 pixels."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attention_cem.surrogates.objectives import StudyOnlyWarning
from attention_cem.training import RunResult, TrainedRun, load_config, load_run, train

CONFIGS = Path(__file__).parents[2] / "configs"
COMMON: dict[str, Any] = {
    "data.options": {"size": 16, "channels": 1, "num_classes": 4, "num_train": 1600, "num_test": 300},
    "data.crop_padding": 0,
    "data.flip": False,
    "model.bottleneck_channels": 0,
    "defence.gaussian_noise.sigma": 0.2,
    "train.epochs": 8,
    "train.batch_size": 32,
    "train.lr": 0.05,
    "train.milestones": [4, 6, 7],
    "run.device": "cpu",
    "run.tensorboard": False,
    "run.figures": False,
}
"""The setting of ``studies/defect-shut-off.toml`` and ``defect-pooling.toml``."""
SLOTS = {"surrogate.arguments.slot_dim": 128}
"""z has 1,024 values here; attention that wide would take most of the time."""
OPEN = {
    "surrogate.arguments.early_shut_steps": 0,
    "surrogate.arguments.early_hard_thresh": 1.0,
    "surrogate.arguments.early_gate_thresh": 1.0,
}
"""The slot surrogate of the documents with its shut-off removed."""


def small_run(preset: str, settings: Mapping[str, Any]) -> RunResult:
    """Train ``configs/synthetic-<preset>.toml`` in the small setting; settings by dotted name come last."""
    return _trained(preset, settings)[0]


def trained_run(preset: str, settings: Mapping[str, Any]) -> tuple[RunResult, TrainedRun]:
    """The same, with the trained halves."""
    return _trained(preset, settings)


def _trained(preset: str, settings: Mapping[str, Any]) -> tuple[RunResult, TrainedRun]:
    with tempfile.TemporaryDirectory(prefix="handbook-") as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore", StudyOnlyWarning)
        folder = Path(scratch) / "run"
        config = load_config(CONFIGS / f"synthetic-{preset}.toml", {**COMMON, **settings, "run.folder": str(folder)})
        return train(config), load_run(folder)
