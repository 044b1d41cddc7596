from pathlib import Path
from typing import Any

import torch

from attention_cem.training import Config, load_config
from attention_cem.training.checkpoint import Checkpoint, read_checkpoint, step_checkpoints

# Surrogates as the trainer builds them, with the switches that would keep them silent in a short run turned off.
SURROGATES: dict[str, dict[str, Any]] = {
    "slot_cross": {
        "early_shut_steps": 0,
        "early_hard_thresh": 1.0,
        "early_gate_thresh": 1.0,
        "slot_dim": 32,
        "min_count": 2,
    },
    "gated": {"hidden": 16},
    "kmeans": {"num_clusters": 2},
    "slot_mixture": {"num_slots": 2, "bank_size": 8, "reseed_every": 3},
    "hybrid": {"quota": 2},
}
TIMINGS = ("images_per_s", "seconds")


def tiny_config(folder: Path, **overrides: Any) -> Config:
    """A run of a few steps on 16 px synthetic images; ``train__epochs=3`` sets ``train.epochs``."""
    settings: dict[str, Any] = {
        "data.options.size": 16,
        "data.options.num_classes": 4,
        "data.options.num_train": 80,
        "data.options.num_test": 40,
        "data.validation_fraction": 0.2,
        "data.crop_padding": 2,
        "model.name": "tiny_cnn",
        "model.bottleneck_channels": 2,
        "defence.gaussian_noise.sigma": 0.05,
        "train.epochs": 3,
        "train.batch_size": 16,
        "train.lr": 0.02,
        "run.folder": str(folder),
        "run.device": "cpu",
        "run.tensorboard": False,
        "run.figures": False,
    }
    settings.update({name.replace("__", "."): value for name, value in overrides.items()})
    return load_config(overrides=settings)


def with_surrogate(name: str, lambd: float = 1.0) -> dict[str, Any]:
    """Overrides for `tiny_config` that switch a surrogate on from the second epoch."""
    arguments = {f"surrogate__arguments__{key}": value for key, value in SURROGATES.get(name, {}).items()}
    return {"surrogate__name": name, "surrogate__lambd": lambd, "surrogate__reg_strength": 0.05, **arguments}


def last_checkpoint(folder: Path) -> Checkpoint:
    return read_checkpoint(step_checkpoints(folder / "checkpoints")[-1])


def assert_same_tensors(ours: Checkpoint, theirs: Checkpoint) -> None:
    assert ours.tensors.keys() == theirs.tensors.keys()
    for key, value in ours.tensors.items():
        assert torch.equal(value, theirs.tensors[key]), key


def without_timings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows]
