"""The two halves of a model, and the shape of what passes between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class SplitModel(nn.Module):
    """A model in two halves: `server(client(x))`.

    The client runs on the user's device and sends z = client(x); the server predicts from z. Nothing else
    passes between them, so either half can be exported, moved or trained alone.

    Args:
        client: maps images `(B, C, H, W)` to z, one tensor of any shape `(B, ...)`.
        server: maps z to the prediction.

    >>> model = SplitModel(nn.Linear(4, 2), nn.Linear(2, 3))
    >>> model(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    >>> [name for name, _ in model.named_parameters()]
    ['client.weight', 'client.bias', 'server.weight', 'server.bias']
    """

    client: nn.Module
    server: nn.Module

    def __init__(self, client: nn.Module, server: nn.Module) -> None:
        super().__init__()
        self.client = client
        self.server = server

    def forward(self, x: Tensor) -> Tensor:
        """Predict from images, without any defence between the halves."""
        return self.server(self.client(x))

    def z_shape(self, image_shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of one sample's z, without the batch dimension, for images of `image_shape` (C, H, W)."""
        return z_shape_of(self.client, image_shape)


def z_shape_of(client: nn.Module, image_shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of one sample's z for images of `image_shape` (C, H, W); the client's state is left untouched.

    >>> z_shape_of(nn.Conv2d(3, 8, 3, stride=2, padding=1), (3, 32, 32))
    (8, 16, 16)
    """
    like = next(client.parameters(), None)
    if like is None:
        images = torch.zeros(1, *image_shape)
    else:
        images = torch.zeros(1, *image_shape, dtype=like.dtype, device=like.device)
    with evaluating(client), torch.no_grad():
        return tuple(client(images).shape[1:])


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode inside the block; afterwards every submodule is back in the mode it was in.

    Unlike `module.eval()` followed by `module.train()`, layers frozen in eval mode stay frozen.
    """
    modes = [(each, each.training) for each in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for each, mode in modes:
            each.training = mode
