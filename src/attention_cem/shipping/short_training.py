"""Training as the advisor does it: short, on the CPU, with nothing written but the run itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attention_cem.data import ImageData
from attention_cem.splitting import SplitModel
from attention_cem.training.config_reading import load_config
from attention_cem.training.loading import TrainedRun, load_run
from attention_cem.training.run import RunResult, train


def train_shortly(
    halves: SplitModel, data: ImageData, folder: Path, *, epochs: int, lr: float, seed: int, sigma: float = 0.0
) -> tuple[RunResult, TrainedRun]:
    """Train two halves, and load the weights best on validation into them.

    Args:
        halves: trained in place.
        data: images to train with; batches are smaller where there are few.
        folder: run folder to make.
        epochs: passes over the training images.
        lr: step size.
        seed: of everything random.
        sigma: of the Gaussian noise on z; 0 for none.
    """
    overrides: dict[str, Any] = {
        "train.epochs": epochs,
        "train.lr": lr,
        "train.seed": seed,
        "train.batch_size": min(128, max(8, len(data.train) // 16)),
        "run.folder": str(folder),
        "run.device": "cpu",
        "run.tensorboard": False,
        "run.figures": False,
    }
    if sigma:
        overrides["defence.gaussian_noise.sigma"] = sigma
    result = train(load_config(overrides=overrides), data=data, model=halves)
    return result, load_run(folder, model=halves)
