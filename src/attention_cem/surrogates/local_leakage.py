"""LocalLeakage: a closed-form attacker in two stages, a guess from all of z, then one correction for every place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


class LocalLeakage(nn.Module):
    r"""Share of the within-class variance of x that a linear guess and a local correction recover from z + noise.

    z is a map (C, h, w). First :math:`g=W_1^\top z` guesses the image from all of z, linearly. Then, at each place l,
    the attacker sees the :math:`k\times k` neighbourhood :math:`u_l` of both maps, noisy z and g, and random features
    :math:`\cos(P^\top u_l+p)` of it, and corrects the block of pixels beneath that place:

    .. math:: \hat x_l = g_l + W_2^\top\left[u_l,\cos(P^\top u_l+p)\right] .

    :math:`W_2` is the same everywhere, as the weights of a convolutional inverter are: every place of every image
    teaches it. Each stage is the least-squares solution for what the one before left over (`RunningLeastSquares`),
    solved anew at every step; the gradient reaches z with both held fixed.

    Args:
        z_shape: (C, h, w) of one sample's z. image_shape: (C, H, W) of an image, at least as large as z.
        reg_strength: σ of the noise at the cut.
        neighbourhood: k, odd; 1 costs least, since the guess has looked at all of z already.
        random_features: columns of P.
        momentum: share of the old covariances in the running ones.
        seed: of the random features and of the noise.
        followed: as in `LinearLeakage`, both stages.

    >>> leakage = LocalLeakage((3, 2, 2), (3, 4, 4), reg_strength=0.01, random_features=0)
    >>> x, y = torch.rand(256, 3, 4, 4), torch.arange(256) % 2
    >>> z = F.avg_pool2d(x, 2)           # a client that sends the mean of every two by two pixels
    >>> 0.2 < leakage(z, y, x).share.item() < 0.4
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
        neighbourhood: int = 1,
        random_features: int = 512,
        momentum: float = 0.98,
        seed: int = 0,
        followed: bool = False,
    ) -> None:
        super().__init__()
        if len(z_shape) != 3 or len(image_shape) != 3 or image_shape[1] < z_shape[1] or image_shape[2] < z_shape[2]:
            raise ValueError(
                "a local attacker needs z as a map (C, h, w) and images (C, H, W) at least as large, got "
                f"z {tuple(z_shape)} and images {tuple(image_shape)}; LinearLeakage takes any z"
            )
        if require_positive_int("neighbourhood", neighbourhood) % 2 == 0:
            raise ValueError(f"neighbourhood must be odd, so that it has a middle, got {neighbourhood}")
        require_count("random_features", random_features)
        channels, height, width = z_shape
        self.z_shape, self.image_shape = tuple(z_shape), tuple(image_shape)
        self.neighbourhood, self.random_features = neighbourhood, random_features
        self.sigma = require_positive("reg_strength", reg_strength)
        # an image that z's places do not divide is shrunk a little, to a size that they do
        self.block = (image_shape[1] // height, image_shape[2] // width)
        self.target_size = (self.block[0] * height, self.block[1] * width)
        beneath = image_shape[0] * math.prod(self.block)
        seen = (channels + beneath) * neighbourhood**2
        self.image_dim = beneath * height * width
        self.guess = RunningLeastSquares(math.prod(z_shape), self.image_dim, momentum, followed=followed)
        self.correction = RunningLeastSquares(seen + random_features, beneath, momentum, followed=followed)
        generator = torch.Generator().manual_seed(seed)
        frequency = torch.randn(random_features, channels + beneath, neighbourhood, neighbourhood, generator=generator)
        self.register_buffer("frequency", frequency)
        self.register_buffer("phase", 2 * math.pi * torch.rand(random_features, generator=generator))
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))

    @property
    def steps(self) -> Tensor:
        """() int64: batches that were measured so far."""
        return self.guess.steps

    def maintain(self) -> None:
        """As in `RunningLeastSquares`, both stages."""
        self.guess.maintain()
        self.correction.maintain()

    def forward(self, z: Tensor, y: Tensor, x: Tensor) -> LeakageOutput:
        """Features z (N, C, h, w), labels y (N,), images x (N, C, H, W) in [0, 1]."""
        flat, labels = check_features(z, y, math.prod(self.z_shape))
        require_full_precision(self.guess.cov_zz.dtype)
        expected = (z.shape[0], *self.image_shape)
        if tuple(x.shape) != expected:
            raise ValueError(f"images must be {expected}, one for each feature, got {tuple(x.shape)}")
        with torch.autocast(device_type=z.device.type, enabled=False):
            dtype = self.guess.cov_zz.dtype
            segments = segment_classes(labels, min_count=2)
            samples = samples_in_pairs(segments)
            image = x.to(dtype)
            if self.target_size != self.image_shape[1:]:
                image = F.adaptive_avg_pool2d(image, self.target_size)
            noisy = self._noisy(flat.to(dtype))
            of_z, of_x = deviations(noisy, segments), deviations(self._blocks(image), segments)
            first = self.guess.solve(of_z, of_x, samples)
            of_guess = of_z @ first.weight
            of_seen = self._neighbours(of_z, of_guess)
            if self.random_features:
                waves = deviations(self._waves(noisy, noisy @ first.weight).flatten(1), segments)
                of_seen = torch.cat([of_seen, self._by_place(waves, self.random_features)], 1)
            left = self._by_place(of_x - of_guess, self.correction.targets)
            second = self.correction.solve(of_seen, left, samples)
            return leakage_output(
                first.recovered + second.recovered,
                first.variance,
                left - of_seen @ second.weight,
                samples,
                self.image_dim,
            )

    def _noisy(self, z: Tensor) -> Tensor:
        # a look in evaluation mode sees the noise of the last step
        counter = self.steps if self.training else (self.steps - 1).clamp_min(0)
        return z + self.sigma * counter_normal(self.seed, counter, tuple(z.shape), z.dtype)

    def _blocks(self, image: Tensor) -> Tensor:
        """Images as maps of the blocks beneath each place, flat: (N, C·b·b·h·w)."""
        return F.unfold(image, self.block, stride=self.block).flatten(1)

    def _by_place(self, values: Tensor, channels: int) -> Tensor:
        """Flat maps (N, channels·h·w) as a row for every place of every sample."""
        return _places(values.view(values.shape[0], channels, self.z_shape[1] * self.z_shape[2]))

    def _maps(self, z: Tensor, guess: Tensor) -> Tensor:
        size, (_, height, width) = z.shape[0], self.z_shape
        return torch.cat([z.view(size, *self.z_shape), guess.view(size, self.correction.targets, height, width)], 1)

    def _neighbours(self, z: Tensor, guess: Tensor) -> Tensor:
        """What stands around each place, in both maps: (N·h·w, (C + C·b·b)·k·k)."""
        return _places(F.unfold(self._maps(z, guess), self.neighbourhood, padding=self.neighbourhood // 2))

    def _waves(self, z: Tensor, guess: Tensor) -> Tensor:
        """Random Fourier features (N, F, h, w) of every place's neighbourhood."""
        maps = self._maps(z, guess)
        fixed = maps.detach()
        variance = (fixed - fixed.mean(0)).square().sum() / max(maps.numel(), 1)
        # the noise alone is a floor, also for a batch of one
        bandwidth = (2 * self.neighbourhood**2 * maps.shape[1] * variance.clamp_min(self.sigma**2)).sqrt()
        return torch.cos(F.conv2d(maps, self.frequency / bandwidth, self.phase, padding=self.neighbourhood // 2))


def _places(values: Tensor) -> Tensor:
    """(N, F, L) → (N·L, F): a row for every place of every sample."""
    return values.mT.flatten(0, 1)
