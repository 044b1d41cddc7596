"""A whole, uncut model, trained: what the advisor starts from when it is given only a name."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn

from attention_cem.data import ImageData
from attention_cem.shipping.short_training import train_shortly
from attention_cem.splitting import get_backbone, split


def untrained_backbone(name: str, data: ImageData, *, seed: int = 0) -> nn.Module:
    """A whole backbone for these images, as it is before training.

    Raises:
        ValueError: an unknown name, or images too small for it.
    """
    backbone = get_backbone(name)
    if min(data.image_shape[1:]) < backbone.smallest_image:
        raise ValueError(f"backbone '{name}' needs images of at least {backbone.smallest_image} px")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return backbone.build(data.num_classes, data.image_shape)


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
    model = untrained_backbone(name, data, seed=seed)
    # The trainer knows halves only. Bare halves hold the model's own parameters, so training them trains the model.
    halves = split(model, get_backbone(name).default_cut, example=torch.zeros(2, *data.image_shape))
    train_shortly(halves, data, Path(folder), epochs=epochs, lr=lr, seed=seed)
    return model.eval()
