"""LinearLeakage: what the best linear attacker recovers of x from z + noise, in closed form."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_cem.surrogates.base import check_features, require_positive, require_positive_int
from attention_cem.surrogates.noise import counter_normal
from attention_cem.surrogates.segments import class_mean, segment_classes


class LeakageOutput(NamedTuple):
    """What :class:`LinearLeakage` returns."""

    share: Tensor
    """Scalar in [0, 1], differentiable in z: share of the within-class variance of x that is recovered."""
    mse: Tensor
    """Scalar without gradient: the linear attacker's mean squared error per pixel on within-class deviations."""


class LinearLeakage(nn.Module):
    r"""Share of the within-class variance of x that a linear attacker recovers from z + noise.

    .. math:: \frac{\mathrm{tr}\left(C_{xz}(C_{zz}+\sigma^2I)^{-1}C_{zx}\right)}{\mathrm{tr}\,C_{xx}} \in [0,1]

    with within-class covariances that are running averages: one Cholesky solve for the attacker's weights
    :math:`W=(C_{zz}+\sigma^2I)^{-1}C_{zx}`, no adversary to train. As a monitor it bounds the leakage from below (a
    stronger attacker recovers more). As a penalty its gradient reaches z through what W recovers of the batch,

    .. math:: 1-E\lVert x-W^\top z\rVert^2/E\lVert x\rVert^2 ,

    with W held fixed: at the best W this is the gradient through the solve as well, because W is optimal and its own
    change does not count. W must be solved anew at every step: a client that meets the same W for 22 steps learns to
    evade *it*, at the cost of accuracy (measured, results/exploration.md).

    Args:
        feature_dim: D. image_dim: values in one image. reg_strength: σ.
        momentum: share of the old covariances in the running ones.
        random_features: so many random Fourier features of z join z, for an attacker beyond linear.
        seed: of the random features and their noise.

    >>> leakage = LinearLeakage(feature_dim=4, image_dim=12, reg_strength=0.01)
    >>> x, y = torch.rand(64, 3, 2, 2), torch.arange(64) % 2
    >>> z = x.flatten(1)[:, :4]          # a client that sends four pixels as they are
    >>> 0.2 < leakage(z, y, x).share.item() < 0.5
    True
    """

    steps: Tensor
    cov_zz: Tensor
    cov_xz: Tensor
    var_x: Tensor
    seed: Tensor
    frequency: Tensor

    def __init__(
        self,
        feature_dim: int,
        image_dim: int,
        *,
        reg_strength: float = 0.025,
        momentum: float = 0.98,
        random_features: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.feature_dim = require_positive_int("feature_dim", feature_dim)
        self.image_dim = require_positive_int("image_dim", image_dim)
        self.sigma = require_positive("reg_strength", reg_strength)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {momentum!r}")
        if random_features < 0:
            raise ValueError(f"random_features must not be negative, got {random_features!r}")
        self.momentum, self.random_features = momentum, random_features
        width = feature_dim + random_features
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("frequency", torch.randn(feature_dim, random_features, generator=generator))
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cov_zz", torch.zeros(width, width))
        self.register_buffer("cov_xz", torch.zeros(image_dim, width))
        self.register_buffer("var_x", torch.zeros(()))

    def forward(self, z: Tensor, y: Tensor, x: Tensor) -> LeakageOutput:
        """Features z (N, ...), labels y (N,), images x (N, C, H, W) in [0, 1]."""
        flat, labels = check_features(z, y, self.feature_dim)
        if x.shape[0] != z.shape[0] or x[:1].numel() != min(1, x.shape[0]) * self.image_dim:
            raise ValueError(
                f"images must be (N, ...) with {self.image_dim} values for each of the {z.shape[0]} features, "
                f"got {tuple(x.shape)}"
            )
        with torch.autocast(device_type=z.device.type, enabled=False):
            dtype = self.cov_zz.dtype
            features = self._features(flat.to(dtype))
            pixels = x.flatten(1).to(dtype)
            segments = segment_classes(labels, min_count=2)
            # deviations from a class mean of M samples are too small by (M-1)/M: correct it
            size = segments.size.clamp_min(2).to(dtype)
            scale = ((size / (size - 1)).sqrt() * segments.active).index_select(0, segments.row).unsqueeze(1)
            of_z = (features - class_mean(features, segments).index_select(0, segments.row)) * scale
            of_x = (pixels - class_mean(pixels, segments).index_select(0, segments.row)) * scale
            pairs = (scale > 0).sum()
            count = pairs.clamp_min(1)
            fixed = of_z.detach()
            batch = (fixed.T @ fixed / count, of_x.T @ fixed / count, of_x.square().sum() / count)
            cov_zz, cov_xz, var_x = self._running(*batch, measured=pairs > 0)
            weight, recovered = self._solved(cov_zz, cov_xz)
            total = var_x.clamp_min(torch.finfo(dtype).tiny)
            # the running value with the batch's gradient
            found = -(of_x - of_z @ weight).square().sum() / count
            share = (recovered + found - found.detach()) / total
            return LeakageOutput(share, ((total - recovered) / self.image_dim).clamp_min(0))

    def _features(self, z: Tensor) -> Tensor:
        if not self.random_features:
            return z
        # a look in evaluation mode sees the noise of the last step
        counter = self.steps if self.training else (self.steps - 1).clamp_min(0)
        noisy = z + self.sigma * counter_normal(self.seed, counter, tuple(z.shape), z.dtype)
        fixed = z.detach()
        variance = (fixed - fixed.mean(0)).square().sum() / max(z.shape[0], 1)
        bandwidth = (2 * variance + 2 * self.feature_dim * self.sigma**2).sqrt()
        return torch.cat(
            [noisy, F.normalize(torch.cos(noisy @ self.frequency / bandwidth), dim=0) * z.shape[0] ** 0.5], 1
        )

    @torch.no_grad()
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

    @torch.no_grad()
    def _solved(self, cov_zz: Tensor, cov_xz: Tensor) -> tuple[Tensor, Tensor]:
        """The best attacker's weights (D, P), and the variance of x it recovers."""
        noise = 0.0 if self.random_features else self.sigma**2
        # the last term keeps the factorisation alive in float32 where a few directions carry everything
        kind, diagonal = torch.finfo(cov_zz.dtype), cov_zz.diagonal()
        ridge = noise + 1e-5 * diagonal.mean() + 8 * kind.eps * diagonal.sum() + kind.tiny
        identity = torch.eye(cov_zz.shape[0], dtype=cov_zz.dtype, device=cov_zz.device)
        factor, failed = torch.linalg.cholesky_ex(cov_zz + ridge * identity)
        weight = torch.where(failed == 0, torch.cholesky_solve(cov_xz.T, factor), torch.nan)
        return weight, (weight * cov_xz.T).sum()
