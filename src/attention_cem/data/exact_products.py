"""Matrix products in full float32, whatever the training around them allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Neither TF32 nor autocast inside the block: ten bits of mantissa are too few for variances and covariances.

    Gradients are computed later and as the training around says.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device_type=device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
