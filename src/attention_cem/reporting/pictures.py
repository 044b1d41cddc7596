"""Pictures for the page: small PNGs inside it, never files beside it."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from attention_cem.auditing.evidence import Evidence
from attention_cem.reporting.texts import clip, figure

MOST_PICTURES = 12
_LONGEST_SIDE = 160


@dataclass(frozen=True)
class Card:
    """One test image and what came back, as data addresses."""

    original: str
    rebuilt: str
    mse: str
    label: str
    position: int


def data_address(image: Tensor) -> str:
    """A uint8 image ``(C, H, W)`` with 1 or 3 channels as ``data:image/png;base64,…``, large ones made smaller.

    >>> import torch
    >>> data_address(torch.zeros(1, 4, 4, dtype=torch.uint8))[:22]
    'data:image/png;base64,'
    """
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise ValueError(f"expected an image (1 or 3, H, W), got {tuple(image.shape)}")
    pixels = image.permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def cards_of(evidence: Evidence, class_names: list[str], most: int = MOST_PICTURES) -> list[Card]:
    """The worst leaks first."""
    return [
        Card(
            original=data_address(evidence.originals[index]),
            rebuilt=data_address(evidence.reconstructions[index]),
            mse=figure(evidence.mse[index], 3),
            label=clip(class_names[evidence.labels[index]], 40) if evidence.labels[index] < len(class_names) else "",
            position=index,
        )
        for index in evidence.worst_first()[:most]
    ]
