"""The gates of the slot surrogate, each a function named after the quantity it computes."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DimensionGate(nn.Module):
    r"""Soft gate per slot and dimension, :math:`g = \mathrm{sigmoid}(\mathrm{MLP}(\mathrm{LN}(\log\sigma^2)))`.

    Args:
        dim: width of the statistics.
        hidden: hidden width; the default ``min(256, max(32, dim // 8))`` equals the documents' for widths up to
            2,048 and keeps the gate's size proportional to ``dim`` beyond.
    """

    def __init__(self, dim: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = min(256, max(32, dim // 8)) if hidden is None else hidden
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, log_variance: Tensor) -> Tensor:
        """Map log variances (..., d) to gates in (0, 1)."""
        return self.mlp(self.norm(log_variance)).sigmoid()


def snr_gate(mean: Tensor, variance: Tensor, threshold: Tensor, sharpness: Tensor, eps: float) -> Tensor:
    r"""Gate on the documents' "signal-to-noise" ratio,
    :math:`\mathrm{sigmoid}(\alpha(\sigma^2/(\mu^2+\varepsilon)-\tau))`.
    """
    return (sharpness * (variance / (mean.square() + eps) - threshold)).sigmoid()


def softplus_margin(log_variance: Tensor, log_threshold: float, margin: Tensor, beta: Tensor) -> Tensor:
    r"""Smooth excess over a threshold,
    :math:`\mathrm{softplus}(\beta(\log\sigma^2-\log\sigma^2_\mathrm{thr}-m))/\beta`.
    """
    return F.softplus(beta * (log_variance - log_threshold - margin)) / beta


def slot_weights(mass: Tensor, count: Tensor, power: Tensor) -> Tensor:
    r"""Slot weights :math:`\tilde w_k \propto (w_k/M)^\gamma` from masses (R, S) and class sizes (R,)."""
    # softmax of the logarithm is the normalised power, without overflow for large powers
    share = mass / count.clamp_min(1).unsqueeze(-1)
    return (power * share.clamp_min(torch.finfo(mass.dtype).tiny).log()).softmax(-1)


def class_gate(share: Tensor, a: Tensor, b: Tensor) -> Tensor:
    r"""Gate on a class's share of the batch, :math:`\mathrm{sigmoid}(a(M/B-b))`."""
    return (a * (share - b)).sigmoid()
