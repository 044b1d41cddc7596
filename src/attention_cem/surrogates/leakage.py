"""LinearLeakage: what the best linear attacker recovers of x from z + noise, in closed form."""

from typing import Any, NamedTuple

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

    with within-class covariances that are running averages: one Cholesky solve, no adversary to train. As a monitor it
    bounds the leakage from below (a stronger attacker recovers more); as a penalty its gradient reaches z through the
    batch's own covariances.

    Args:
        feature_dim: D. image_dim: values in one image. reg_strength: σ.
        momentum: share of the old covariances in the running ones.
        random_features: so many random Fourier features of z join z, for an attacker beyond linear.
        solve_every: calls between two solves. With 1 the attacker is solved anew at every call, and the gradient
            passes through the solve. With more its weights W are kept in between, and the share is what *they*
            recover, :math:`1-E\lVert x-W^\top z\rVert^2/E\lVert x\rVert^2`: at the best W the gradient is the same
            (W is optimal, so its own change does not matter), and a step costs three matrix products.
            Where forward is compiled or replayed as a CUDA graph, call :meth:`maintain` yourself.
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
    weight: Tensor
    running_share: Tensor
    calls: Tensor

    def __init__(
        self,
        feature_dim: int,
        image_dim: int,
        *,
        reg_strength: float = 0.025,
        momentum: float = 0.98,
        random_features: int = 0,
        solve_every: int = 1,
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
        self.solve_every = require_positive_int("solve_every", solve_every)
        self._calls = 0
        width = feature_dim + random_features
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("frequency", torch.randn(feature_dim, random_features, generator=generator))
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cov_zz", torch.zeros(width, width))
        self.register_buffer("cov_xz", torch.zeros(image_dim, width))
        self.register_buffer("var_x", torch.zeros(()))
        kept = solve_every > 1
        self.register_buffer("weight", torch.zeros(width, image_dim) if kept else torch.zeros(0))
        self.register_buffer("running_share", torch.zeros(()))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

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
            if self.solve_every > 1:
                return self._of_kept_attacker(of_z, of_x, count, pairs > 0)
            running = self._running(
                of_z.T @ of_z / count, of_x.T @ of_z / count, of_x.square().sum() / count, pairs > 0
            )
            return self._of_best_attacker(of_z.T @ of_z / count, of_x.T @ of_z / count, running)

    @torch.no_grad()
    def maintain(self) -> None:
        """Solve for the attacker of the running covariances, to be kept until the next call."""
        if self.solve_every > 1:
            factor, failed = torch.linalg.cholesky_ex(self._with_noise(self.cov_zz))
            solved = torch.cholesky_solve(self.cov_xz.T, factor)
            self.weight.copy_(torch.where((failed == 0) & torch.isfinite(solved).all(), solved, self.weight))

    def _features(self, z: Tensor) -> Tensor:
        if not self.random_features:
            return z
        noisy = z + self.sigma * counter_normal(self.seed, self.steps, tuple(z.shape), z.dtype)
        fixed = z.detach()
        variance = (fixed - fixed.mean(0)).square().sum() / max(z.shape[0], 1)
        bandwidth = (2 * variance + 2 * self.feature_dim * self.sigma**2).sqrt()
        return torch.cat(
            [noisy, F.normalize(torch.cos(noisy @ self.frequency / bandwidth), dim=0) * z.shape[0] ** 0.5], 1
        )

    @torch.no_grad()
    def _running(self, zz: Tensor, xz: Tensor, xx: Tensor, measured: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # a batch without two samples of a class says nothing: averaging its zeros in would look like privacy
        keep = torch.where(measured, torch.where(self.steps > 0, self.momentum, 0.0), 1.0).to(zz.dtype)
        new = tuple(torch.lerp(batch, old, keep) for old, batch in zip(self._covariances(), (zz, xz, xx), strict=True))
        if self.training:
            usable = torch.stack([torch.isfinite(value).all() for value in (zz, xz, xx)]).all()
            self.steps.add_((measured & usable).to(torch.int64))
            for buffer, value in zip(self._covariances(), new, strict=True):
                buffer.copy_(torch.where(usable, value, buffer))  # a bad batch shows in the output alone
        return new[0], new[1], new[2]

    def _covariances(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.cov_zz, self.cov_xz, self.var_x

    def _with_noise(self, cov_zz: Tensor) -> Tensor:
        noise = 0.0 if self.random_features else self.sigma**2
        ridge = noise + 1e-5 * cov_zz.detach().diagonal().mean() + torch.finfo(cov_zz.dtype).tiny
        return cov_zz + ridge * torch.eye(cov_zz.shape[0], dtype=cov_zz.dtype, device=cov_zz.device)

    def _of_best_attacker(self, zz: Tensor, xz: Tensor, running: tuple[Tensor, Tensor, Tensor]) -> LeakageOutput:
        # the running value with the batch's gradient
        cov_zz = running[0] + zz - zz.detach()
        cov_xz = running[1] + xz - xz.detach()
        factor, failed = torch.linalg.cholesky_ex(self._with_noise(cov_zz))
        recovered = torch.linalg.solve_triangular(factor, cov_xz.T, upper=False).square().sum()
        recovered = torch.where(failed == 0, recovered, torch.nan)
        total = running[2].clamp_min(torch.finfo(zz.dtype).tiny)
        return LeakageOutput(recovered / total, ((total - recovered.detach()) / self.image_dim).clamp_min(0))

    def _of_kept_attacker(self, of_z: Tensor, of_x: Tensor, count: Tensor, measured: Tensor) -> LeakageOutput:
        if self.training:
            self._solve_if_due(of_z)
        with torch.no_grad():
            fixed = of_z.detach()
            _, _, var_x = self._running(
                fixed.T @ fixed / count, of_x.T @ fixed / count, of_x.square().sum() / count, measured
            )
        total = var_x.clamp_min(torch.finfo(of_z.dtype).tiny)
        noise = 0.0 if self.random_features else self.sigma**2 * self.weight.square().sum()
        missed = (of_x - of_z @ self.weight).square().sum() / count + noise
        share = (of_x.square().sum() / count - missed) / total
        with torch.no_grad():
            keep = torch.where(measured, torch.where(self.running_share != 0, self.momentum, 0.0), 1.0).to(share.dtype)
            known = torch.lerp(share, self.running_share, keep).clamp(0, 1)
            if self.training:
                self.running_share.copy_(torch.where(torch.isfinite(known), known, self.running_share))
        return LeakageOutput(known + share - share.detach(), (1 - known) * total / self.image_dim)

    def _solve_if_due(self, z: Tensor) -> None:
        if torch.compiler.is_compiling() or (z.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        # often at the start, when the covariances are young
        done = self._calls
        if done and (done % self.solve_every == 0 or (done < self.solve_every and done & (done - 1) == 0)):
            self.maintain()
        self._calls += 1
        self.calls.add_(1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._calls = int(state_dict.get(prefix + "calls", 0))
