"""Which test images a slow attack rebuilds: a part that stands for all of them, whatever order they are listed in."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_GOLDEN = (math.sqrt(5) - 1) / 2
_PICTURED = 16  # images of the audit's pictures
_PICTURED_SHARE = 10


def spread_positions(total: int, count: int) -> Tensor:
    """``count`` of ``total`` positions, spread evenly over the list, sorted; all of them if there are no more.

    Image j has the key j·φ mod 1, φ the golden section, and the smallest keys are taken: the gaps between positions
    have three lengths at most, so that of images listed class by class every class gives its share, and, φ being
    irrational, so it does of classes that take turns. The first few images, which the pictures of an audit show, are
    always among them, as a tenth of all at most.

    >>> spread_positions(100, 10).tolist()
    [0, 5, 13, 26, 34, 47, 60, 68, 81, 89]
    >>> spread_positions(3, 10).tolist()
    [0, 1, 2]
    """
    keys = torch.arange(total, dtype=torch.float64) * _GOLDEN % 1
    keys[: min(_PICTURED, count // _PICTURED_SHARE)] = -1
    return keys.argsort(stable=True)[:count].sort().values
