"""What comes back: test images, and what the best linear attacker makes of their features.

The attacker owns the training images, the client and the defence. The linear attack is solved in closed form, so no
row looks better because an attacker was trained badly; a long-trained inverter may do better on any of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention_cem.auditing.scores import score
from attention_cem.data import ImageData, load_data, to_float
from attention_cem.training import TrainedRun
from docs.figures.drawing import ASSETS, keep, new_figure, plain
from docs.figures.small_run import COMMON, trained_run

SEED, SHOWN = 0, 6
LAMBDAS = (0.0, 1.0, 3.0)
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


@torch.no_grad()
def linear_attack(run: TrainedRun, images: ImageData) -> Tensor:
    """Reconstructions (N, C, H, W) of the test images; the ridge is chosen on a quarter of the attacker's images."""
    torch.manual_seed(SEED)
    z, seen = (
        run.stack(run.model.client(to_float(part.images))).flatten(1).double() for part in (images.train, images.test)
    )
    x = to_float(images.train.images).flatten(1).double()
    held = len(z) // 4
    errors = [(_answers(z[held:], x[held:], z[:held], ridge) - x[:held]).square().mean().item() for ridge in RIDGES]
    best = RIDGES[errors.index(min(errors))]
    return _answers(z, x, seen, best).clamp(0, 1).float().view(len(seen), *images.image_shape)


def _answers(z: Tensor, x: Tensor, seen: Tensor, ridge: float) -> Tensor:
    centre, mean = z.mean(0), x.mean(0)
    deviation = z - centre
    scatter = deviation.T @ deviation + ridge * torch.eye(z.shape[1], dtype=z.dtype)
    return mean + (seen - centre) @ torch.linalg.solve(scatter, deviation.T @ (x - mean))


def measure() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Accuracy and the attack's errors for each λ, and the pictures."""
    images = load_data("synthetic", None, seed=SEED, **COMMON["data.options"])
    numbers: dict[str, Any] = {}
    pictures = {"x": to_float(images.test.images[:SHOWN])}
    for lambd in LAMBDAS:
        settings = {"surrogate.lambd": lambd, "train.seed": SEED, "surrogate.attention_warmup_epochs": 1}
        result, run = trained_run("sound", settings)
        rebuilt = linear_attack(run, images)
        scores = score(rebuilt, images.test.images).summary()
        numbers[f"{lambd:g}"] = {"accuracy": result.test_accuracy, **scores}
        words = f"λ = {lambd:g}\nMSE {scores['mse']:.3f}\ny: {100 * result.test_accuracy:.0f} %"
        pictures[words] = rebuilt[:SHOWN]
    return numbers, pictures


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    numbers, pictures = measure()
    figure = new_figure(len(pictures), SHOWN, height=0.86 * len(pictures) + 0.2)
    grid = [figure.axes[start : start + SHOWN] for start in range(0, len(figure.axes), SHOWN)]
    for row, (name, shown) in zip(grid, pictures.items(), strict=True):
        for axes, image in zip(row, shown, strict=True):
            axes.imshow(image[0].numpy(), cmap="gray", vmin=0, vmax=1)
            plain(axes)
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return keep("leak", figure, numbers, seed=SEED, folder=folder)
