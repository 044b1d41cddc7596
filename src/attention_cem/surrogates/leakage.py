"""LinearLeakage: what the best linear attacker recovers of x from z + noise, in closed form."""

from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_cem.surrogates.base import (
    check_features,
    require_count,
    require_full_precision,
    require_positive,
    require_positive_int,
)
from attention_cem.surrogates.closed_form import (
    LeakageOutput,
    RunningLeastSquares,
    deviations,
    leakage_output,
    samples_in_pairs,
)
from attention_cem.surrogates.noise import counter_normal
from attention_cem.surrogates.segments import segment_classes
from attention_cem.surrogates.slot_features import SlotFeatures


class LinearLeakage(RunningLeastSquares):
    r"""Share of the within-class variance of x that a linear attacker recovers from z + noise.

    .. math:: \frac{\mathrm{tr}\left(C_{xz}(C_{zz}+\sigma^2I)^{-1}C_{zx}\right)}{\mathrm{tr}\,C_{xx}} \in [0,1]

    with within-class covariances; see `RunningLeastSquares`. Its gradient makes it a penalty. Measured on the samples
    the attacker was solved on, it reads about width / effective samples for a client that leaks nothing; the trainer's
    monitor measures on other images, and bounds the leakage from below: a stronger attacker recovers more.

    Args:
        feature_dim: D. image_dim: values in one image. reg_strength: σ.
        momentum: share of the old covariances in the running ones.
        random_features: so many random Fourier features of z join z, for an attacker beyond linear.
        attention: attention over slots joins z, for an attacker beyond linear that looks where z is.
        seed: of the random features, and of the noise that features beyond z are made from.
        followed: in training the attacker follows the covariances instead of being solved at every step, at a
            fraction of the cost; what it then recovers is never more than the best does. See `FollowedSolution`.

    >>> leakage = LinearLeakage(feature_dim=4, image_dim=12, reg_strength=0.01)
    >>> x, y = torch.rand(64, 3, 2, 2), torch.arange(64) % 2
    >>> z = x.flatten(1)[:, :4]          # a client that sends four pixels as they are
    >>> 0.2 < leakage(z, y, x).share.item() < 0.5
    True
    """

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
        attention: SlotFeatures | None = None,
        seed: int = 0,
        followed: bool = False,
    ) -> None:
        require_positive_int("feature_dim", feature_dim)
        require_positive_int("image_dim", image_dim)
        require_count("random_features", random_features)
        sigma = require_positive("reg_strength", reg_strength)
        if attention is not None and prod(attention.z_shape) != feature_dim:
            raise ValueError(f"attention is for features of shape {attention.z_shape}, feature_dim is {feature_dim}")
        # further features are of a noisy z, which brings the noise along
        noise = 0.0 if random_features or attention is not None else sigma**2
        width = feature_dim + random_features + (0 if attention is None else attention.width)
        super().__init__(width, image_dim, momentum, noise=noise, followed=followed)
        self.feature_dim, self.image_dim, self.random_features = feature_dim, image_dim, random_features
        self.attention = attention
        self.sigma = sigma
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("frequency", torch.randn(feature_dim, random_features, generator=generator))
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))

    def forward(self, z: Tensor, y: Tensor, x: Tensor) -> LeakageOutput:
        """Features z (N, ...), labels y (N,), images x (N, C, H, W) in [0, 1]."""
        flat, labels = check_features(z, y, self.feature_dim)
        require_full_precision(self.cov_zz.dtype)
        if x.shape[0] != z.shape[0] or x[:1].numel() != min(1, x.shape[0]) * self.image_dim:
            raise ValueError(
                f"images must be (N, ...) with {self.image_dim} values for each of the {z.shape[0]} features, "
                f"got {tuple(x.shape)}"
            )
        with torch.autocast(device_type=z.device.type, enabled=False):
            segments = segment_classes(labels, min_count=2)
            of_z = deviations(self._features(flat.to(self.cov_zz.dtype)), segments)
            of_x = deviations(x.flatten(1).to(self.cov_zz.dtype), segments)
            samples = samples_in_pairs(segments)
            solved = self.solve(of_z, of_x, samples)
            left = of_x - of_z @ solved.weight
            return leakage_output(solved.recovered, solved.variance, left, samples, self.image_dim)

    def _features(self, z: Tensor) -> Tensor:
        if not self.random_features and self.attention is None:
            return z
        # a look in evaluation mode sees the noise of the last step
        counter = self.steps if self.training else (self.steps - 1).clamp_min(0)
        noisy = z + self.sigma * counter_normal(self.seed, counter, tuple(z.shape), z.dtype)
        features = [noisy]
        if self.random_features:
            fixed = z.detach()
            variance = (fixed - fixed.mean(0)).square().sum() / max(z.shape[0], 1)
            bandwidth = (2 * variance + 2 * self.feature_dim * self.sigma**2).sqrt()
            features.append(_of_one_size(torch.cos(noisy @ self.frequency / bandwidth)))
        if self.attention is not None:
            features.append(_of_one_size(self.attention(noisy, counter)))
        return torch.cat(features, 1)


def _of_one_size(features: Tensor) -> Tensor:
    """Columns scaled to a root mean square of one."""
    return F.normalize(features, dim=0) * features.shape[0] ** 0.5
