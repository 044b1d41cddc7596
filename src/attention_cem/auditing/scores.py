"""Figures of reconstructions: per image first, then the mean, with bootstrap confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from attention_cem.data import mse_by_waves, mse_per_image, psnr_per_image, ssim_per_image, to_float, wave_bands
from attention_cem.data.random_streams import generator_for

DEFINITIONS = {
    "mse": "mean over test images of the per-image mean squared error; RGB in [0, 1]; higher is more private",
    "psnr": "mean over test images of 10·log10(1/MSE) per image, in dB, MSE floored at 1e-10; lower is more private",
    "ssim": "mean over test images of SSIM (11×11 Gaussian window, σ 1.5, valid region, data range 1, mean of the "
    "channels; scikit-image's with gaussian_weights and use_sample_covariance=False); null for images below 11 px",
    "waves": "the MSE by the cosine waves (DCT-II) the error is in, coarse to fine; a wave of number k has k/2 periods "
    "along a side, the larger of its two numbers counts; the parts add up to the MSE",
    "ci95": "95 % percentile bootstrap interval of the mean MSE over test images, 2,000 resamples",
}
_LEAST_MSE = 1e-10  # one perfect image must not make the mean PSNR infinite
_RESAMPLES = 2000
_CHUNK = 500


@dataclass(frozen=True, eq=False)
class Scores:
    """Per-image figures, each ``(N,)``; ``ssim`` is None for images too small for its window.

    ``waves`` is the mean MSE by band of waves; None of an attack that was stored without.
    """

    mse: Tensor
    psnr: Tensor
    ssim: Tensor | None
    waves: Mapping[str, float] | None = None

    def summary(self) -> dict[str, Any]:
        """Means and the interval of the MSE, as plain data.

        >>> perfect = score(torch.zeros(3, 3, 16, 16), torch.zeros(3, 3, 16, 16, dtype=torch.uint8))
        >>> perfect.summary()["mse"], perfect.summary()["psnr"]
        (0.0, 100.0)
        """
        return {
            "mse": float(self.mse.double().mean()),
            "ci95": list(self._interval),
            "psnr": float(self.psnr.double().mean()),
            "ssim": None if self.ssim is None else float(self.ssim.double().mean()),
            "waves": None if self.waves is None else dict(self.waves),
        }

    @cached_property
    def _interval(self) -> tuple[float, float]:
        return bootstrap_ci(self.mse)


def score(reconstructions: Tensor, images: Tensor, device: torch.device | None = None) -> Scores:
    """Compare reconstructions ``(N, C, H, W)`` in [0, 1] with the true uint8 images of the same shape.

    Args:
        reconstructions: what an attack made of the images.
        images: the images.
        device: where to compute; by default where the reconstructions are. The scores are on the CPU.
    """
    if not bool(torch.isfinite(reconstructions).all()):
        raise ValueError("reconstructions hold NaN or infinity; the attack diverged")
    place = reconstructions.device if device is None else device
    large_enough = min(images.shape[-2:]) >= 11
    mse, psnr, ssim, waves = [], [], [], []
    for guess, truth in zip(reconstructions.split(_CHUNK), images.split(_CHUNK), strict=True):
        a, b = guess.to(place).float().clamp(0, 1), to_float(truth.to(place))
        mse.append(mse_per_image(a, b))
        psnr.append(psnr_per_image(a, b, 1.0))
        waves.append(mse_by_waves(a, b))
        if large_enough:
            ssim.append(ssim_per_image(a, b, 1.0))
    most = -10 * math.log10(_LEAST_MSE)
    by_waves = torch.cat(waves).double().mean(0).tolist()
    return Scores(
        torch.cat(mse).cpu(),
        torch.cat(psnr).cpu().clamp(max=most),
        torch.cat(ssim).cpu() if large_enough else None,
        dict(zip(wave_bands(*images.shape[-2:]), by_waves, strict=True)),
    )


def bootstrap_ci(values: Tensor, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of ``values`` ``(N,)``.

    >>> low, high = bootstrap_ci(torch.arange(100.0))
    >>> low < 49.5 < high
    True
    """
    if values.ndim != 1 or not len(values):
        raise ValueError(f"expected one value per image, got shape {tuple(values.shape)}")
    values = values.double().cpu()
    generator = generator_for("bootstrap", seed)
    means = []
    per_chunk = max(1, 2_000_000 // len(values))
    for size in [per_chunk] * (_RESAMPLES // per_chunk) + [_RESAMPLES % per_chunk]:
        means.append(values[torch.randint(len(values), (size, len(values)), generator=generator)].mean(1))
    tail = (1 - level) / 2
    low, high = torch.cat(means).quantile(torch.tensor([tail, 1 - tail], dtype=torch.float64))
    return float(low), float(high)
