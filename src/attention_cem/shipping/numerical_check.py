"""Does an exported graph compute what the torch module does? Asked after every export, on the graph as written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attention_cem.defences import DefenceStack
from attention_cem.shipping.bundle import FEATURE, IMAGES_INPUT, LOGITS, noise_name
from attention_cem.shipping.graphs import ReleasingClient
from attention_cem.shipping.sessions import open_session
from attention_cem.shipping.system_noise import system_draw

TOLERANCE = 1e-4
"""Largest deviation allowed, relative to the largest absolute value of the torch result (at least 1)."""
_SAMPLES = 24  # not the batch size of the export, so that a batch dimension frozen into the graph shows


class ExportMismatchError(ValueError):
    """A graph gives other values than the module it was made from."""


def probe_images(image_shape: Sequence[int]) -> NDArray[np.uint8]:
    """Images to compare on: plain greys, smooth patches of colour, and pixel noise, in equal parts.

    Noise alone will not do: it lies so far from photographs that a trained client may answer it with a saturated,
    constant z, on which every graph agrees.

    >>> probe_images((3, 8, 8)).shape
    (24, 3, 8, 8)
    """
    random = np.random.default_rng(0)
    channels, height, width = image_shape
    third = _SAMPLES // 3
    grey = np.broadcast_to(np.linspace(0, 255, third).reshape(-1, 1, 1, 1), (third, channels, height, width))
    coarse = random.integers(0, 256, (third, channels, 3, 3))
    rows, columns = (np.arange(side) * 3 // side for side in (height, width))
    patches = coarse[:, :, rows[:, None], columns[None, :]]
    noise = random.integers(0, 256, (_SAMPLES - 2 * third, channels, height, width))
    return np.concatenate([grey, patches, noise]).astype(np.uint8)


def check_client(
    path: Path, client: nn.Module, stack: DefenceStack, image_shape: Sequence[int], z_shape: Sequence[int]
) -> dict[str, float]:
    """Compare the client graph with torch on random images and one set of draws; returns the deviation."""
    images = probe_images(image_shape)
    noise = [system_draw(draw, (_SAMPLES, *z_shape)) for draw in stack.draws()]
    with torch.no_grad():
        expected = ReleasingClient(client, stack).eval()(torch.from_numpy(images), *map(torch.from_numpy, noise))
    feed = {IMAGES_INPUT: images, **{noise_name(position): draw for position, draw in enumerate(noise)}}
    found = open_session(path).run([FEATURE], feed)[0]
    return _compared(path.name, found, expected.numpy())


def check_server(path: Path, server: nn.Module, z_shape: Sequence[int], num_classes: int) -> dict[str, float]:
    """Compare the server graph with torch on random features; returns the deviation."""
    z = np.random.default_rng(0).random((_SAMPLES, *z_shape), dtype=np.float32)
    with torch.no_grad():
        expected = server.eval()(torch.from_numpy(z)).numpy()
    if expected.shape != (_SAMPLES, num_classes):
        raise ValueError(
            f"the server half gives {expected.shape}, expected logits of shape ({_SAMPLES}, {num_classes})"
        )
    return _compared(path.name, open_session(path).run([LOGITS], {FEATURE: z})[0], expected)


def _compared(name: str, found: NDArray[np.float32], expected: NDArray[np.float32]) -> dict[str, float]:
    if found.shape != expected.shape:
        raise ExportMismatchError(f"{name} gives shape {found.shape}, torch {expected.shape}; nothing was written")
    allowed = TOLERANCE * max(1.0, float(np.abs(expected).max()))
    deviation = float(np.abs(found - expected).max())
    if not deviation <= allowed:  # NaN is a mismatch too
        raise ExportMismatchError(
            f"{name} deviates from torch by {deviation:.3g} in ONNX Runtime, allowed is {allowed:.3g}; nothing was "
            "written. Is every layer exportable and in evaluation mode?"
        )
    # The spread over the samples tells a reader whether the comparison meant anything.
    spread = float(expected.std(axis=0).max())
    return {"largest_deviation": deviation, "allowed": allowed, "spread": spread, "samples": float(_SAMPLES)}
