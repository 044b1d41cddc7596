"""A whole, uncut model, trained: what the advisor starts from when it is given only a name."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn

from attention_cem.data import ImageData
from attention_cem.splitting import get_backbone, split
from attention_cem.training.config_reading import load_config
from attention_cem.training.loading import load_run
from attention_cem.training.run import train


def trained_backbone(
    name: str, data: ImageData, folder: str | os.PathLike[str], *, epochs: int, lr: float = 0.05, seed: int = 0
) -> nn.Module:
    """Train a backbone without cut, bottleneck or noise, and return it with the weights best on validation.

    Args:
        name: one of `backbone_names`.
        data: images to train with.
        folder: run folder to make.
        epochs: passes over the training images.
        lr: step size.
        seed: of everything random.
    """
    backbone = get_backbone(name)
    if min(data.image_shape[1:]) < backbone.smallest_image:
        raise ValueError(f"backbone '{name}' needs images of at least {backbone.smallest_image} px")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = backbone.build(data.num_classes, data.image_shape)
    # The trainer knows halves only. Bare halves hold the model's own parameters, so training them trains the model.
    halves = split(model, backbone.default_cut, example=torch.zeros(2, *data.image_shape))
    config = load_config(
        overrides={
            "train.epochs": epochs,
            "train.lr": lr,
            "train.seed": seed,
            "train.batch_size": min(128, max(8, len(data.train) // 16)),
            "run.folder": str(Path(folder)),
            "run.device": "cpu",
            "run.tensorboard": False,
            "run.figures": False,
        }
    )
    train(config, data=data, model=halves)
    load_run(folder, model=halves)
    return model.eval()
