"""The best linear map from what an attacker sees to what it wants, from running covariances and one Cholesky solve."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from attention_cem.surrogates.segments import ClassSegments, class_mean


class LeakageOutput(NamedTuple):
    """What a closed-form attacker returns."""

    share: Tensor
    """Scalar in [0, 1], differentiable in z: share of the within-class variance of x that is recovered."""
    mse: Tensor
    """Scalar without gradient: the attacker's mean squared error per pixel on within-class deviations."""


class Solution(NamedTuple):
    """What :meth:`RunningLeastSquares.solve` returns; nothing here has a gradient."""

    weight: Tensor
    """(width, targets): the best linear map."""
    recovered: Tensor
    """Scalar: variance of the targets that it recovers, summed over the values of a sample."""
    variance: Tensor
    """Scalar: all their variance."""


class RunningLeastSquares(nn.Module):
    r"""The best linear map :math:`W=(C_{zz}+rI)^{-1}C_{zx}` by covariances that are running averages over batches.

    It recovers :math:`\mathrm{tr}(C_{xz}W)` of :math:`\mathrm{tr}\,C_{xx}`. A penalty on that takes its gradient
    through what W recovers of the batch, :math:`-E\lVert x-W^\top z\rVert^2`, with W held fixed: at the best W this is
    the gradient through the solve as well, because W is optimal and its own change does not count. W must be solved
    anew at every step: a client that meets the same W for 22 steps learns to evade *it*, at the cost of accuracy
    (measured, results/exploration.md).

    Args:
        width: values seen. targets: values wanted.
        momentum: share of the old covariances in the running ones.
    """

    steps: Tensor
    cov_zz: Tensor
    cov_xz: Tensor
    var_x: Tensor

    def __init__(self, width: int, targets: int, momentum: float) -> None:
        super().__init__()
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {momentum!r}")
        self.momentum, self.targets = momentum, targets
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cov_zz", torch.zeros(width, width))
        self.register_buffer("cov_xz", torch.zeros(targets, width))
        self.register_buffer("var_x", torch.zeros(()))

    @torch.no_grad()
    def solve(self, of_z: Tensor, of_x: Tensor, pairs: Tensor, noise: float = 0.0) -> Solution:
        """From deviations (M, width) and (M, targets) of so many samples; ``noise`` is added to the diagonal of C_zz.

        A sample may have several rows: covariances are sums over the rows of a sample, and means over samples.
        """
        count = pairs.clamp_min(1)
        batch = (of_z.T @ of_z / count, of_x.T @ of_z / count, of_x.square().sum() / count)
        cov_zz, cov_xz, var_x = self._running(*batch, measured=pairs > 0)
        weight, recovered = self._solved(cov_zz, cov_xz, noise)
        return Solution(weight, recovered, var_x)

    def _running(self, zz: Tensor, xz: Tensor, xx: Tensor, *, measured: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        old = (self.cov_zz, self.cov_xz, self.var_x)
        # a batch without two samples of a class says nothing: averaging its zeros in would look like privacy
        keep = torch.where(measured, torch.where(self.steps > 0, self.momentum, 0.0), 1.0).to(zz.dtype)
        cov_zz, cov_xz, var_x = (torch.lerp(batch, was, keep) for was, batch in zip(old, (zz, xz, xx), strict=True))
        if self.training:
            usable = torch.stack([torch.isfinite(value).all() for value in (zz, xz, xx)]).all()
            self.steps.add_((measured & usable).to(torch.int64))
            for buffer, value in zip(old, (cov_zz, cov_xz, var_x), strict=True):
                buffer.copy_(torch.where(usable, value, buffer))  # a bad batch shows in the output alone
        return cov_zz, cov_xz, var_x

    def _solved(self, cov_zz: Tensor, cov_xz: Tensor, noise: float) -> tuple[Tensor, Tensor]:
        """The best attacker's weights (width, targets), and the variance of x it recovers."""
        # the last term keeps the factorisation alive in float32 where a few directions carry everything
        kind, diagonal = torch.finfo(cov_zz.dtype), cov_zz.diagonal()
        ridge = noise + 1e-5 * diagonal.mean() + 8 * kind.eps * diagonal.sum() + kind.tiny
        identity = torch.eye(cov_zz.shape[0], dtype=cov_zz.dtype, device=cov_zz.device)
        factor, failed = torch.linalg.cholesky_ex(cov_zz + ridge * identity)
        weight = torch.where(failed == 0, torch.cholesky_solve(cov_xz.T, factor), torch.nan)
        return weight, (weight * cov_xz.T).sum()


def leakage_output(
    recovered: Tensor, variance: Tensor, unexplained: Tensor, samples: Tensor, image_dim: int
) -> LeakageOutput:
    """The share recovered, a running value, with the gradient of what the batch (M, P) left unexplained."""
    total = variance.clamp_min(torch.finfo(variance.dtype).tiny)
    found = -unexplained.square().sum() / samples.clamp_min(1)
    share = (recovered + found - found.detach()) / total
    return LeakageOutput(share, ((total - recovered) / image_dim).clamp_min(0))


def deviations(values: Tensor, segments: ClassSegments) -> Tensor:
    """Values (N, F) minus the mean of their class, zero where a class has a single sample.

    Deviations from the mean of M samples are too small by (M-1)/M: corrected.
    """
    size = segments.size.clamp_min(2).to(values.dtype)
    scale = ((size / (size - 1)).sqrt() * segments.active).index_select(0, segments.row).unsqueeze(1)
    return (values - class_mean(values, segments).index_select(0, segments.row)) * scale


def samples_in_pairs(segments: ClassSegments) -> Tensor:
    """() int64: samples whose class has at least two."""
    return segments.active.index_select(0, segments.row).sum()
