"""LocalLeakage: what one small closed-form attacker, the same at every place of z, recovers of the image beneath it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_cem.surrogates.base import check_features, require_positive, require_positive_int
from attention_cem.surrogates.closed_form import ClosedFormAttacker, LeakageOutput, deviations, samples_in_pairs
from attention_cem.surrogates.noise import counter_normal
from attention_cem.surrogates.segments import segment_classes


class LocalLeakage(ClosedFormAttacker):
    r"""Share of the within-class variance of x that an attacker recovers who looks at neighbourhoods of z + noise.

    z is a map (C, h, w). At each place l the attacker sees the :math:`k\times k` neighbourhood :math:`u_l` of the noisy
    map, and random features :math:`\cos(P^\top u_l+p)` of it, and wants the block of pixels beneath that place. Its
    weights are the same everywhere, as those of a convolutional inverter:

    .. math:: \hat x_l = W^\top\left[u_l,\cos(P^\top u_l+p)\right] .

    Every place of every image teaches the same few weights, so that they are known well after few images, and one solve
    is far smaller than that of `LinearLeakage` on the whole map. What a convolutional client puts at a place comes from
    the pixels around it: an attacker need not look further. See `ClosedFormAttacker`.

    Args:
        z_shape: (C, h, w) of one sample's z. image_shape: (C, H, W) of an image, at least as large as z.
        reg_strength: σ of the noise at the cut.
        neighbourhood: k, odd.
        random_features: columns of P.
        momentum: share of the old covariances in the running ones.
        seed: of the random features and of the noise.

    >>> leakage = LocalLeakage((3, 2, 2), (3, 4, 4), reg_strength=0.01, neighbourhood=1, random_features=0)
    >>> x, y = torch.rand(256, 3, 4, 4), torch.arange(256) % 2
    >>> z = F.avg_pool2d(x, 2)           # a client that sends the mean of every two by two pixels
    >>> 0.2 < leakage(z, y, x).share.item() < 0.3
    True
    """

    seed: Tensor
    frequency: Tensor
    phase: Tensor

    def __init__(
        self,
        z_shape: Sequence[int],
        image_shape: Sequence[int],
        *,
        reg_strength: float = 0.025,
        neighbourhood: int = 5,
        random_features: int = 256,
        momentum: float = 0.98,
        seed: int = 0,
    ) -> None:
        if len(z_shape) != 3 or len(image_shape) != 3 or image_shape[1] < z_shape[1] or image_shape[2] < z_shape[2]:
            raise ValueError(
                "a local attacker needs z as a map (C, h, w) and images (C, H, W) at least as large, got "
                f"z {tuple(z_shape)} and images {tuple(image_shape)}; LinearLeakage takes any z"
            )
        if require_positive_int("neighbourhood", neighbourhood) % 2 == 0:
            raise ValueError(f"neighbourhood must be odd, so that it has a middle, got {neighbourhood}")
        if random_features < 0:
            raise ValueError(f"random_features must not be negative, got {random_features!r}")
        channels, height, width = z_shape
        seen = channels * neighbourhood**2
        # an image that z's places do not divide is shrunk a little, to a size that they do
        self.block = (image_shape[1] // height, image_shape[2] // width)
        self.target_size = (self.block[0] * height, self.block[1] * width)
        wanted = image_shape[0] * math.prod(self.block)
        super().__init__(seen + random_features, wanted, image_shape[0] * math.prod(self.target_size), momentum)
        self.z_shape, self.image_shape = tuple(z_shape), tuple(image_shape)
        self.neighbourhood, self.random_features = neighbourhood, random_features
        self.sigma = require_positive("reg_strength", reg_strength)
        generator = torch.Generator().manual_seed(seed)
        frequency = torch.randn(random_features, channels, neighbourhood, neighbourhood, generator=generator)
        self.register_buffer("frequency", frequency)
        self.register_buffer("phase", 2 * math.pi * torch.rand(random_features, generator=generator))
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))

    def forward(self, z: Tensor, y: Tensor, x: Tensor) -> LeakageOutput:
        """Features z (N, C, h, w), labels y (N,), images x (N, C, H, W) in [0, 1]."""
        flat, labels = check_features(z, y, math.prod(self.z_shape))
        expected = (z.shape[0], *self.image_shape)
        if tuple(x.shape) != expected:
            raise ValueError(f"images must be {expected}, one for each feature, got {tuple(x.shape)}")
        with torch.autocast(device_type=z.device.type, enabled=False):
            segments = segment_classes(labels, min_count=2)
            noisy = self._noisy(flat.to(self.cov_zz.dtype))
            of_map = deviations(noisy, segments).unflatten(1, self.z_shape)
            # the neighbourhood of a deviation is the deviation of the neighbourhood
            seen = [_places(F.unfold(of_map, self.neighbourhood, padding=self.neighbourhood // 2))]
            if self.random_features:
                waves = self._waves(noisy.unflatten(1, self.z_shape))
                seen.append(_places(deviations(waves.flatten(1), segments).unflatten(1, (self.random_features, -1))))
            image = x.to(self.cov_zz.dtype)
            if self.target_size != self.image_shape[1:]:
                image = F.adaptive_avg_pool2d(image, self.target_size)
            of_image = deviations(image.flatten(1), segments).unflatten(1, (self.image_shape[0], *self.target_size))
            blocks = _places(F.unfold(of_image, self.block, stride=self.block))
            return self.leakage(torch.cat(seen, 1), blocks, samples_in_pairs(segments), 0.0)

    def _noisy(self, z: Tensor) -> Tensor:
        # a look in evaluation mode sees the noise of the last step
        counter = self.steps if self.training else (self.steps - 1).clamp_min(0)
        return z + self.sigma * counter_normal(self.seed, counter, tuple(z.shape), z.dtype)

    def _waves(self, noisy: Tensor) -> Tensor:
        """Random Fourier features (N, F, h, w) of every place's neighbourhood."""
        fixed = noisy.detach()
        variance = (fixed - fixed.mean(0)).square().sum() / max(noisy.numel(), 1)
        # the noise alone is a floor, also for a batch of one
        bandwidth = (2 * self.frequency[0].numel() * variance.clamp_min(self.sigma**2)).sqrt()
        return torch.cos(F.conv2d(noisy, self.frequency / bandwidth, self.phase, padding=self.neighbourhood // 2))


def _places(values: Tensor) -> Tensor:
    """(N, F, L) → (N·L, F): a row for every place of every sample."""
    return values.mT.flatten(0, 1)
