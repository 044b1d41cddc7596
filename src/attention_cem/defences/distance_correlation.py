"""Distance correlation of input and feature: NoPeek (Vepakomma et al. 2020, arXiv 2008.09161)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from . import checks
from .base import PenaltyDefence
from .registry import register_defence


def distance_correlation(a: Tensor, b: Tensor) -> Tensor:
    r"""Sample distance correlation (Székely, Rizzo & Bakirov 2007, Definition 5), exact and differentiable.

    With A, B the doubly centred matrices of Euclidean distances, V²(a,b) = mean(A ⊙ B) and
    dCor = √( V²(a,b) / √(V²(a,a) · V²(b,b)) ), in [0, 1]; 0 when either side does not vary.

    Args:
        a: ``(N, ...)``, flattened per sample.
        b: ``(N, ...)``, flattened per sample.

    Returns:
        Scalar of float32 or wider. Its gradient is finite everywhere: coinciding samples contribute zero.

    >>> a = torch.arange(5.0)[:, None]
    >>> round(float(distance_correlation(a, 1 - 2 * a)), 5)
    1.0
    """
    if a.shape[0] != b.shape[0]:
        raise ValueError(f"both sides need the same number of samples, received {a.shape[0]} and {b.shape[0]}")
    A, B = _centred_distances(a), _centred_distances(b)
    samples = max(a.shape[0], 1)
    covariance = (A * B).sum() / samples**2
    spread = _safe_sqrt(A.square().sum() / samples**2) * _safe_sqrt(B.square().sum() / samples**2)
    varies = spread > 0
    ratio = torch.where(varies, covariance / torch.where(varies, spread, 1.0), covariance * 0)
    return _safe_sqrt(ratio)


def _centred_distances(a: Tensor) -> Tensor:
    flat = a.flatten(1) if a.dim() > 1 else a[:, None]
    wide = flat if flat.dtype == torch.float64 else flat.float()
    # Differences, not the Gram matrix: near-duplicates lose all their digits in ‖a‖² + ‖b‖² − 2a·b.
    distances = torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist")
    if distances.shape[0] == 0:
        return distances
    rows, columns = distances.mean(dim=1, keepdim=True), distances.mean(dim=0, keepdim=True)
    return distances - rows - columns + distances.mean()


def _safe_sqrt(value: Tensor) -> Tensor:
    # The derivative of the root at zero is infinite, and infinity times zero is not a number.
    above = value > torch.finfo(value.dtype).tiny
    return torch.where(above, torch.where(above, value, 1.0).sqrt(), value * 0)


@register_defence
class DistanceCorrelation(PenaltyDefence):
    """weight · dCor(x, z) on the clean feature: z is to depend on x as little as the task allows.

    Args:
        weight: weight of the term in the client's loss.

    >>> x, z = torch.rand(8, 3, 4, 4), torch.rand(8, 5)
    >>> term = DistanceCorrelation(weight=0.1).term(x, z, torch.zeros(8))
    >>> 0 <= float(term) <= 1
    True
    """

    name: ClassVar[str] = "distance_correlation"
    of_whole_batch: ClassVar[bool] = True

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = checks.positive("weight", weight)

    def term(self, x: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """dCor(x, z) over the batch; ``y`` is not used."""
        return distance_correlation(x, z)

    def config(self) -> dict[str, Any]:
        """The weight."""
        return {"weight": self.weight}

    def guarantee(self) -> str:
        """None; a statistic of the training batches."""
        return (
            "No formal guarantee: it lowers one statistic of dependence on the training batches; "
            "nothing is added or withheld when a feature is released."
        )
