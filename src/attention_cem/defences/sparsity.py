"""Releasing only part of the feature: random coordinates, or the largest ones."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from . import checks
from .base import FeatureDefence, Stage
from .randomness import Draw, NoiseSource, uniform_like
from .registry import register_defence


@register_defence
class FeatureDropout(FeatureDefence):
    """Each coordinate is released with probability 1−p, scaled by 1/(1−p); otherwise it is zero.

    Unlike `torch.nn.Dropout` it acts in evaluation too: the attacker and the server see the same thing.

    Args:
        p: probability of zeroing a coordinate, in (0, 1).

    Shape: ``(N, ...)`` → the same.

    >>> released = FeatureDropout(p=0.5).eval()(torch.ones(2, 100))
    >>> sorted(released.unique().tolist())
    [0.0, 2.0]
    """

    name: ClassVar[str] = "dropout"
    stage: ClassVar[Stage] = Stage.DROPOUT

    def __init__(self, p: float) -> None:
        super().__init__()
        if not (checks.is_finite(p) and 0 < p < 1):
            raise ValueError(f"p must lie between 0 and 1, both excluded, received {p!r}")
        self.p = float(p)

    def forward(self, z: Tensor, source: NoiseSource = None) -> Tensor:
        """Zero fresh random coordinates, in training and evaluation alike."""
        # Drawn in float32: the few values of a bfloat16 uniform would bias the share.
        kept = uniform_like(checks.features(z).float(), source) >= self.p
        return z * kept.to(z.dtype) * self.gain()

    def draws(self) -> tuple[Draw, ...]:
        """One uniform draw."""
        return ("uniform",)

    def gain(self) -> float:
        """1/(1−p)."""
        return 1 / (1 - self.p)

    def config(self) -> dict[str, Any]:
        """The probability."""
        return {"p": self.p}

    def guarantee(self) -> str:
        """None; repeated releases reveal everything."""
        return (
            f"No formal guarantee: a release withholds {self.p:.0%} of the coordinates on average and shows "
            "the others exactly; repeated releases of one input reveal one after the other."
        )


@register_defence
class TopKPruning(FeatureDefence):
    """Only the k coordinates of largest magnitude of each sample are released, the others are zero.

    Args:
        keep: share of the coordinates kept, in (0, 1]; k = max(1, round(keep · D)).

    Shape: ``(N, ...)`` → the same.

    >>> TopKPruning(keep=0.5)(torch.tensor([[1.0, -3.0, 2.0, 0.5]]))
    tensor([[ 0., -3.,  2.,  0.]])
    """

    name: ClassVar[str] = "top_k_pruning"
    stage: ClassVar[Stage] = Stage.PRUNE

    def __init__(self, keep: float) -> None:
        super().__init__()
        if not (checks.is_finite(keep) and 0 < keep <= 1):
            raise ValueError(f"keep must lie above 0 and at most at 1, received {keep!r}")
        self.keep = float(keep)

    def forward(self, z: Tensor, source: NoiseSource = None) -> Tensor:
        """Zero all but the largest coordinates, in training and evaluation alike."""
        flat = checks.features(z).flatten(1)
        count = max(1, round(self.keep * flat.shape[1]))
        # By index, not by threshold: equal magnitudes must not let more than k through.
        largest = flat.abs().topk(count, dim=1).indices
        mask = torch.zeros_like(flat).scatter(1, largest, 1.0)
        return (flat * mask).reshape(z.shape)

    def config(self) -> dict[str, Any]:
        """The share kept."""
        return {"keep": self.keep}

    def guarantee(self) -> str:
        """None; positions and values of the largest coordinates are released."""
        return (
            f"No formal guarantee: the largest {self.keep:.0%} of the coordinates are released exactly, "
            "and so is where they are."
        )
