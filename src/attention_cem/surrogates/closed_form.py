"""The best linear map from what an attacker sees to what it wants, from running covariances."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from attention_cem.surrogates.base import require_momentum
from attention_cem.surrogates.followed_solution import FollowedSolution
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
    (measured, results/exploration.md). One Cholesky solve a step is exact; where it costs too much, W follows the
    covariances (`FollowedSolution`), in training alone.

    Args:
        width: values seen. targets: values wanted.
        momentum: share of the old covariances in the running ones.
        noise: added to the diagonal of C_zz.
        followed: let W follow instead of solving for it.
    """

    steps: Tensor
    cov_zz: Tensor
    cov_xz: Tensor
    var_x: Tensor

    def __init__(
        self, width: int, targets: int, momentum: float, *, noise: float = 0.0, followed: bool = False
    ) -> None:
        super().__init__()
        self.momentum, self.targets, self.noise = require_momentum(momentum), targets, noise
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cov_zz", torch.zeros(width, width))
        self.register_buffer("cov_xz", torch.zeros(targets, width))
        self.register_buffer("var_x", torch.zeros(()))
        self.following = FollowedSolution(width, targets) if followed else None

    @torch.no_grad()
    def solve(self, of_z: Tensor, of_x: Tensor, pairs: Tensor) -> Solution:
        """From deviations (M, width) and (M, targets) of so many samples.

        A sample may have several rows: covariances are sums over the rows of a sample, and means over samples.
        """
        count = pairs.clamp_min(1)
        batch = (of_z.T @ of_z / count, of_x.T @ of_z / count, of_x.square().sum() / count)
        cov_zz, cov_xz, var_x = self._running(*batch, measured=pairs > 0)
        system = self._system(cov_zz)
        if self.following is not None and self.training:
            weight, recovered = self.following(system, cov_xz.T)
        else:
            weight, recovered = self._solved(system, cov_xz)
        return Solution(weight, recovered, var_x)

    @torch.no_grad()
    def maintain(self) -> None:
        """The rare work of a W that follows, which `solve` does by itself.

        Call it every five steps or so where `solve` is compiled or replayed as a CUDA graph. On a CUDA device the work
        is done beside the steps that follow.
        """
        if self.following is not None:
            self.following.renew_beside(self._system(self.cov_zz))

    def _running(self, zz: Tensor, xz: Tensor, xx: Tensor, *, measured: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        old = (self.cov_zz, self.cov_xz, self.var_x)
        # a plain mean until the memory is full: else the first batch would count as much as all that are forgotten
        steps = self.steps.to(zz.dtype)
        kept = (steps / (steps + 1)).clamp_max(self.momentum)
        # a batch without two samples of a class says nothing: averaging its zeros in would look like privacy
        keep = torch.where(measured, kept, 1.0)
        cov_zz, cov_xz, var_x = (torch.lerp(batch, was, keep) for was, batch in zip(old, (zz, xz, xx), strict=True))
        if self.training:
            usable = torch.stack([torch.isfinite(value).all() for value in (zz, xz, xx)]).all()
            self.steps.add_((measured & usable).to(torch.int64))
            for buffer, value in zip(old, (cov_zz, cov_xz, var_x), strict=True):
                buffer.copy_(torch.where(usable, value, buffer))  # a bad batch shows in the output alone
        return cov_zz, cov_xz, var_x

    def _system(self, cov_zz: Tensor) -> Tensor:
        # the last term keeps the factorisation alive in float32 where a few directions carry everything
        kind, diagonal = torch.finfo(cov_zz.dtype), cov_zz.diagonal()
        ridge = self.noise + 1e-5 * diagonal.mean() + 8 * kind.eps * diagonal.sum() + kind.tiny
        return cov_zz + ridge * torch.eye(cov_zz.shape[0], dtype=cov_zz.dtype, device=cov_zz.device)

    def _solved(self, system: Tensor, cov_xz: Tensor) -> tuple[Tensor, Tensor]:
        """The best attacker's weights (width, targets), and the variance of x it recovers."""
        factor, failed = torch.linalg.cholesky_ex(system)
        weight = torch.where(failed == 0, torch.cholesky_solve(cov_xz.T, factor), torch.nan)
        return weight, (weight * cov_xz.T).sum()


def leakage_output(
    recovered: Tensor, variance: Tensor, unexplained: Tensor, samples: Tensor, image_dim: int
) -> LeakageOutput:
    """The share recovered, a running value, with the gradient of what the batch (M, P) left unexplained."""
    total = variance.clamp_min(torch.finfo(variance.dtype).tiny)
    # while covariances are young, one that follows may be worse than nothing, and two stages come to more than all
    recovered = recovered.clamp_min(0).minimum(total)
    found = -unexplained.square().sum() / samples.clamp_min(1)
    share = (recovered + found - found.detach()) / total
    return LeakageOutput(share, (total - recovered) / image_dim)


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
