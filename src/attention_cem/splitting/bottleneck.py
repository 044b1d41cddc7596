"""A narrow pair of layers at the cut: the client compresses z, the server expands it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

ACTIVATIONS = ("sigmoid", "none")


@dataclass(frozen=True)
class Bottleneck:
    """What to put at the cut.

    Spatial z `(B, C, H, W)`: 3×3 convolutions C → `channels` (client) and `channels` → C (server); tokens
    `(B, T, E)` and flat z `(B, D)`: linear layers on the last dimension. No ReLU on either side: the client's
    layer ends in the activation alone. A sigmoid bounds z to (0, 1), which fixes the scale of added noise.

    Args:
        channels: width of z after the client's layer.
        activation: `"sigmoid"` or `"none"`.

    >>> client_side, server_side = Bottleneck(8).layers((128, 8, 8))
    >>> sum(p.numel() for p in client_side.parameters())
    9224
    """

    channels: int
    activation: str = "sigmoid"

    def __post_init__(self) -> None:
        if self.channels < 1:
            raise ValueError(f"Bottleneck channels must be at least 1, got {self.channels}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"Bottleneck activation must be one of {ACTIVATIONS}, got {self.activation!r}")

    def layers(self, z_shape: Sequence[int]) -> tuple[nn.Sequential, nn.Module]:
        """The client's and the server's layers for a z of `z_shape` (without the batch dimension)."""
        reduce: nn.Module
        expand: nn.Module
        if len(z_shape) == 3:
            reduce = nn.Conv2d(z_shape[0], self.channels, kernel_size=3, padding=1)
            expand = nn.Conv2d(self.channels, z_shape[0], kernel_size=3, padding=1)
        elif len(z_shape) in (1, 2):
            reduce = nn.Linear(z_shape[-1], self.channels)
            expand = nn.Linear(self.channels, z_shape[-1])
        else:
            raise ValueError(
                f"a bottleneck needs z of shape (C, H, W), (T, E) or (D,), got {tuple(z_shape)}; "
                "cut elsewhere or pass bottleneck=None"
            )
        for layer in (reduce, expand):
            xavier_init(layer)
        client_side = nn.Sequential()
        client_side.add_module("reduce", reduce)
        if self.activation == "sigmoid":
            client_side.add_module("sigmoid", nn.Sigmoid())
        return client_side, expand


def xavier_init(module: nn.Module) -> None:
    """Xavier-uniform weights and zero biases of one convolution or linear layer; use with `Module.apply`."""
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
