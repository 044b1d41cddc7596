from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attention_cem.auditing.grids import image_grid, write_grid


def test_image_grid__every_picture_stands_in_its_place_pixel_by_pixel() -> None:
    torch.manual_seed(0)
    rows = [torch.randint(0, 256, (count, 3, 16, 16), dtype=torch.uint8) for count in (3, 2)]
    grid = image_grid(rows)
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            top, left = 2 + 66 * i, 2 + 66 * j
            for y, x in ((0, 0), (7, 3), (15, 15)):
                assert torch.equal(grid[top + 4 * y + 1, left + 4 * x + 2], picture[:, y, x])
    assert bool((grid[2 + 66 : 2 + 66 + 64, 2 + 2 * 66 : 2 + 3 * 66] == 255).all()), "a shorter row ends white"


def test_image_grid__grey_images_become_grey_pixels() -> None:
    grid = image_grid([torch.full((1, 1, 64, 64), 0.5)])
    assert torch.equal(grid[30, 30], torch.tensor([128, 128, 128], dtype=torch.uint8))


def test_write_grid__labels_stand_beside_the_pictures_and_leave_them_whole(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rows = [torch.rand(2, 3, 32, 32) for _ in range(3)]
    write_grid(tmp_path / "grid.png", rows, ["true images", "class_mean", "optimisation_from_inverter"])
    page = np.asarray(Image.open(tmp_path / "grid.png"))
    pictures = image_grid(rows).numpy()
    margin = page.shape[1] - pictures.shape[1]
    assert np.array_equal(page[:, margin:], pictures)
    ink = (page[:, :margin] < 128).all(2)
    assert all(ink[2 + 66 * i : 66 * (i + 1)].any() for i in range(3)) and not ink[:, -4:].any()


def test_write_grid__refuses_rows_without_pictures_or_labels(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 rows of images need as many labels, got 1"):
        write_grid(tmp_path / "grid.png", [torch.rand(1, 3, 8, 8)] * 2, ["one"])
    with pytest.raises(ValueError, match="needs rows of images"):
        image_grid([torch.rand(0, 3, 8, 8)])
    assert not list(tmp_path.iterdir())
