"""How images lie in memory where convolutions are fast."""

from __future__ import annotations

import torch


def prefers_channels_last(device: torch.device) -> bool:
    """Whether convolutions, batch norms and poolings run faster there with the channels of a pixel side by side.

    True on CUDA, and on a CPU: `python -m benchmarks.cpu`.

    >>> prefers_channels_last(torch.device("cpu"))
    True
    """
    return device.type in ("cuda", "cpu")
