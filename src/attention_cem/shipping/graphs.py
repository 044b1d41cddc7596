"""The two halves as ONNX graphs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attention_cem.data import to_float
from attention_cem.defences import DefenceStack
from attention_cem.shipping.bundle import FEATURE, IMAGES_INPUT, LOGITS, noise_name
from attention_cem.training.files import write_atomically

_LARGEST_GRAPH = 2**31 - 2**20


class ReleasingClient(nn.Module):
    """Pixels and noise in, the released feature out: z̃ = stack.release(client(images / 255), noise).

    Args:
        client: the client half.
        stack: its defences.

    Shape: images uint8 ``(N, C, H, W)``; each noise ``(N, *z_shape)``; the result like the noise.
    """

    def __init__(self, client: nn.Module, stack: DefenceStack) -> None:
        super().__init__()
        self.client = client
        self.stack = stack

    def forward(self, images: Tensor, *noise: Tensor) -> Tensor:
        """What leaves the device."""
        return self.stack.release(self.client(to_float(images)), noise)


def write_client_graph(
    path: Path, client: nn.Module, stack: DefenceStack, image_shape: Sequence[int], z_shape: Sequence[int]
) -> int:
    """Write the client with its defence; returns the ONNX opset. Every draw of the stack becomes a required input."""
    draws = stack.draws()
    images = torch.zeros(2, *image_shape, dtype=torch.uint8)
    noise = tuple(torch.full((2, *z_shape), 0.5) for _ in draws)
    names = [IMAGES_INPUT, *(noise_name(position) for position in range(len(draws)))]
    return _write(path, ReleasingClient(client, stack).eval(), (images, *noise), names, FEATURE, varargs=len(draws))


def write_server_graph(path: Path, server: nn.Module, z_shape: Sequence[int]) -> int:
    """Write the server half, from z to logits; returns the ONNX opset."""
    return _write(path, server.eval(), (torch.zeros(2, *z_shape),), [FEATURE], LOGITS, varargs=None)


def _write(
    path: Path, module: nn.Module, inputs: tuple[Tensor, ...], names: list[str], output: str, *, varargs: int | None
) -> int:
    batch = {0: torch.export.Dim("batch", min=1)}
    dynamic: tuple[Any, ...] = (batch,) if varargs is None else (batch, (batch,) * varargs)
    exporter_log = logging.getLogger("torch.onnx")
    level = exporter_log.level
    exporter_log.setLevel(logging.ERROR)  # it tells everybody that torchvision is absent
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                inputs,
                dynamo=True,
                verbose=False,
                input_names=names,
                output_names=[output],
                dynamic_shapes=dynamic,
            )
    finally:
        exporter_log.setLevel(level)
    if program is None:
        raise ValueError(f"torch exported nothing for {path.name}")
    graph = program.model_proto
    size = graph.ByteSize()
    if size > _LARGEST_GRAPH:
        raise ValueError(f"{path.name} would have {size} bytes; one ONNX file holds at most {_LARGEST_GRAPH}")
    write_atomically(path, graph.SerializeToString())
    return int(graph.opset_import[0].version)
