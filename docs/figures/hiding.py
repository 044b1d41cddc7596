"""A client that hides: trained against a small inverter, invertible by construction. More effort finds everything.

The client scrambles its channels by couplings that lose nothing, and is trained so that the small inverter beside it
fails. Shown is the best validation MSE over the effort of inverters, weakest first, as an audit records it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from attention_cem.attacks import Challenge, InverterAttack, TrainingPlan
from attention_cem.auditing.calibration import mean_image_mse
from attention_cem.auditing.challenge_files import write_challenge
from attention_cem.auditing.scores import score
from attention_cem.data.synthetic import synthetic_images
from attention_cem.testing.hiding_client import train_hiding_client
from docs.figures.drawing import ASSETS, BLUE, GREY, ORANGE, RED, keep, new_figure

SEED = 0
FAST: dict[str, Any] = {"batch_size": 8, "lr": 3e-3}
ATTACKS = {
    "width 8, 2 epochs": InverterAttack(TrainingPlan(epochs=2, **FAST), width=8, blocks=0),
    "width 32, 12 epochs": InverterAttack(TrainingPlan(epochs=12, weight_decay=0.0, **FAST), width=32, blocks=0),
}


def measure() -> dict[str, Any]:
    """Train the hiding client, attack it twice."""
    data = synthetic_images(num_train=300, num_test=40, num_classes=3, size=16, seed=SEED)
    hiding = train_hiding_client(data.train, seed=SEED)
    found: dict[str, Any] = {
        "adversary_loss_at_the_end": hiding.adversary_loss,
        "floor_mse": mean_image_mse(data.train, data.test.images),
        "attacks": {},
    }
    with tempfile.TemporaryDirectory(prefix="handbook-") as scratch:
        folder = write_challenge(
            Path(scratch) / "challenge",
            client=hiding.client,
            stack=hiding.stack,
            attacker=data.train,
            test=data.test,
            seed=SEED,
        )
        for name, attack in ATTACKS.items():
            result = attack.run(Challenge(folder), device=torch.device("cpu"), seed=SEED)
            found["attacks"][name] = {
                "effort": [point.effort for point in result.receipt.curve],
                "mse": [point.mse for point in result.receipt.curve],
                "test_mse": score(result.reconstructions, data.test.images).mse.mean().item(),
            }
    return found


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    found = measure()
    figure = new_figure(height=3.4)
    axes = figure.axes[0]
    styles = ((ORANGE, "s"), (BLUE, "o"))
    for (name, attack), (colour, marker) in zip(found["attacks"].items(), styles, strict=True):
        axes.plot(attack["effort"], attack["mse"], color=colour, marker=marker, ms=4, label=name)
    axes.axhline(found["floor_mse"], color=GREY, ls=":", label="floor_mse")
    axes.axhline(next(iter(found["attacks"].values()))["mse"][-1], color=RED, ls="--", lw=1)
    axes.set(xscale="log", yscale="log", xlabel="effort", ylabel="MSE")
    axes.legend()
    return keep("hiding", figure, found, seed=SEED, folder=folder)
