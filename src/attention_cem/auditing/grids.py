"""Pictures for the eye: true images above, what each attack made of them below."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from attention_cem.data import to_uint8
from attention_cem.training.files import write_atomically

_GAP = 2
_LABEL_GAP = 6
_LABEL_HEIGHT = 11
_LEAST_SIDE = 64  # small images are enlarged by whole factors, so that pixels stay pixels


def image_grid(rows: Sequence[Tensor]) -> Tensor:
    """Lay rows of images out on white: ``(H, W, 3)`` uint8.

    Args:
        rows: each ``(n, C, H, W)``, uint8 or float in [0, 1]; C is 1 or 3. Shorter rows are left white at the end.

    >>> image_grid([torch.zeros(2, 3, 8, 8), torch.zeros(2, 3, 8, 8)]).shape
    torch.Size([134, 134, 3])
    """
    if not rows or not all(row.ndim == 4 and len(row) for row in rows):
        raise ValueError(f"a grid needs rows of images (n, C, H, W), got {[tuple(row.shape) for row in rows]}")
    whole = [row if row.dtype == torch.uint8 else to_uint8(row) for row in rows]
    whole = [row.expand(-1, 3, -1, -1) if row.shape[1] == 1 else row for row in whole]
    factor = max(1, -(-_LEAST_SIDE // whole[0].shape[-1]))
    large = [row.repeat_interleave(factor, 2).repeat_interleave(factor, 3) for row in whole]
    height, width = large[0].shape[2:]
    columns = max(len(row) for row in large)
    canvas = torch.full(
        (len(large) * height + (len(large) + 1) * _GAP, columns * width + (columns + 1) * _GAP, 3),
        255,
        dtype=torch.uint8,
    )
    for i, row in enumerate(large):
        top = _GAP + i * (height + _GAP)
        for j, picture in enumerate(row):
            left = _GAP + j * (width + _GAP)
            canvas[top : top + height, left : left + width] = picture.permute(1, 2, 0)
    return canvas


def write_grid(path: Path, rows: Sequence[Tensor], labels: Sequence[str]) -> None:
    """Write :func:`image_grid` of ``rows`` as a PNG, each row with its label on the left."""
    if len(labels) != len(rows):
        raise ValueError(f"{len(rows)} rows of images need as many labels, got {len(labels)}")
    pictures = Image.fromarray(image_grid(rows).numpy())
    font = ImageFont.load_default()
    margin = 2 * _LABEL_GAP + max(int(font.getlength(label)) for label in labels)
    page = Image.new("RGB", (margin + pictures.width, pictures.height), "white")
    page.paste(pictures, (margin, 0))
    pen = ImageDraw.Draw(page)
    pitch = (pictures.height - _GAP) / len(rows)
    for number, label in enumerate(labels):
        pen.text((_LABEL_GAP, _GAP / 2 + (number + 0.5) * pitch - _LABEL_HEIGHT / 2), label, fill="black", font=font)
    stream = io.BytesIO()
    page.save(stream, format="PNG")
    write_atomically(path, stream.getvalue())
