"""Small clients, data and challenges shared by the tests of attacks and audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attention_cem.attacks import AttackResult, Challenge, InverterAttack, TrainingPlan
from attention_cem.auditing import write_challenge
from attention_cem.auditing.calibration import constant_client, identity_like_client
from attention_cem.data import ImageData, mse_per_image, synthetic_images, to_float
from attention_cem.defences import DefenceStack, GaussianNoise

CPU = torch.device("cpu")
IMAGE = (3, 16, 16)


def small_data(train: int = 200, test: int = 40) -> ImageData:
    return synthetic_images(num_train=train, num_test=test, size=16, num_classes=4)


def identity_client() -> nn.Module:
    return identity_like_client((12, 8, 8), IMAGE)


def blind_client() -> nn.Module:
    return constant_client((12, 8, 8), IMAGE)


def noise(sigma: float) -> DefenceStack:
    return DefenceStack([GaussianNoise(sigma)])


def challenge_for(
    folder: Path, client: nn.Module, stack: DefenceStack, data: ImageData, **options: object
) -> Challenge:
    write_challenge(folder, client=client, stack=stack, attacker=data.train, test=data.test, **options)  # type: ignore[arg-type]
    return Challenge(folder)


def small_inverter(epochs: int = 2, **options: Any) -> InverterAttack:
    plan = TrainingPlan(epochs=epochs, batch_size=8, lr=3e-3, weight_decay=0.0, probe=bool(options.pop("probe", False)))
    return InverterAttack(plan, **{"width": 16, "blocks": 0, **options})


def test_mse(result: AttackResult, data: ImageData) -> float:
    truth = to_float(result.rebuilt_of(data.test.images))
    return float(mse_per_image(result.reconstructions, truth).mean())


test_mse.__test__ = False  # type: ignore[attr-defined]


def floor_mse(data: ImageData) -> float:
    """The best constant answer of one who owns the training images."""
    mean: Tensor = to_float(data.train.images).mean(0)
    truth = to_float(data.test.images)
    return float(mse_per_image(mean.expand_as(truth), truth).mean())
