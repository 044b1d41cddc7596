"""What a blind client sees: drawn faces, their slowest cosine waves, and what is left of them.

The faces are drawn here, so that nobody's is shown; the layer that takes the waves out is the product's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention_cem.splitting.blind_input import BlindInput
from docs.figures.drawing import ASSETS, keep, new_figure, plain

SEED, SHOWN, SIZE, FREQUENCIES = 3, 6, 32, 4


def face(chance: torch.Generator) -> Tensor:
    """A grey face (SIZE, SIZE) on [0, 1]: ground, hair, skin, eyes, mouth, each of a drawn shade, width or place."""
    drawn = torch.rand(7, generator=chance).tolist()
    fine = 4 * SIZE
    row, column = torch.meshgrid(*(torch.linspace(-1, 1, fine),) * 2, indexing="ij")

    def disc(x: float, y: float, width: float, height: float) -> Tensor:
        return ((column - x) / width) ** 2 + ((row - y) / height) ** 2 < 1

    centre, width = 0.3 * (drawn[0] - 0.5), 0.45 + 0.12 * drawn[1]
    ground, hair, skin = drawn[2], 0.45 * drawn[3], 0.6 + 0.35 * drawn[4]
    picture = torch.full((fine, fine), ground)
    picture[disc(centre, -0.15, width + 0.14, 0.75)] = hair
    picture[disc(centre, 0.1, width, 0.68)] = skin
    for side in (-1, 1):
        picture[disc(centre + side * 0.2, -0.05, 0.08, 0.07)] = 0.05
    smile = disc(centre, 0.4, 0.22, 0.16) & ~disc(centre, 0.4 - 0.12 * drawn[5] - 0.05, 0.22, 0.16)
    picture[smile] = 0.15
    return picture.view(SIZE, 4, SIZE, 4).mean((1, 3))


@torch.no_grad()
def measure() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """How much of the faces' variance over pixels lies in the waves taken out, and the pictures."""
    chance = torch.Generator().manual_seed(SEED)
    faces = torch.stack([face(chance) for _ in range(SHOWN)])[:, None]
    left = BlindInput(SIZE, SIZE, FREQUENCIES)(faces)
    kept = (left.square().sum() / (faces - faces.mean()).square().sum()).item()
    pictures = {"x": faces, "4×4 waves": faces - left, "x − waves": left + 0.5}
    return {"frequencies": FREQUENCIES, "size": SIZE, "share_taken_out": 1 - kept}, pictures


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
    return keep("waves", figure, numbers, seed=SEED, folder=folder)
