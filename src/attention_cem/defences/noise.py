"""Additive noise on the released feature."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from . import checks
from .base import FeatureDefence, Stage
from .randomness import Draw, NoiseSource, laplace_like, normal_like
from .registry import register_defence


@register_defence
class GaussianNoise(FeatureDefence):
    r"""z̃ = z + σ·ε with ε ~ N(0, I).

    Args:
        sigma: standard deviation σ (not a variance) in the units of z.

    Shape: ``(N, ...)`` → the same.

    >>> import torch
    >>> defence = GaussianNoise(sigma=0.025)
    >>> defence.eval()(torch.zeros(2, 8, 4, 4)).std() > 0
    tensor(True)
    """

    name: ClassVar[str] = "gaussian_noise"
    stage: ClassVar[Stage] = Stage.NOISE

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma = checks.positive("sigma", sigma)

    def forward(self, z: Tensor, source: NoiseSource = None) -> Tensor:
        """Add fresh noise, in training and evaluation alike."""
        return checks.features(z) + self.sigma * normal_like(z, source)

    def draws(self) -> tuple[Draw, ...]:
        """One normal draw."""
        return ("normal",)

    def noise_variance(self) -> float:
        """σ²."""
        return self.sigma**2

    def config(self) -> dict[str, Any]:
        """The standard deviation."""
        return {"sigma": self.sigma}

    def guarantee(self) -> str:
        """No formal guarantee: z is unbounded here."""
        return (
            "No differential privacy: z is not clipped, so no sensitivity is known. Together with the "
            "measured spread of z the noise bounds the mutual information of input and feature. Averaging "
            "repeated releases of one input removes the noise."
        )


@register_defence
class LaplaceNoise(FeatureDefence):
    """z̃ = z + b·ε with ε ~ Laplace(0, 1), whose variance is 2b² per coordinate.

    Args:
        scale: scale b in the units of z; the standard deviation is √2·b.

    Shape: ``(N, ...)`` → the same.

    >>> round(LaplaceNoise(scale=0.1).noise_variance(), 6)
    0.02
    """

    name: ClassVar[str] = "laplace_noise"
    stage: ClassVar[Stage] = Stage.NOISE

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = checks.positive("scale", scale)

    def forward(self, z: Tensor, source: NoiseSource = None) -> Tensor:
        """Add fresh noise, in training and evaluation alike."""
        return checks.features(z) + self.scale * laplace_like(z, source)

    def draws(self) -> tuple[Draw, ...]:
        """Two uniform draws."""
        return ("uniform", "uniform")

    def noise_variance(self) -> float:
        """2b²."""
        return 2 * self.scale**2

    def config(self) -> dict[str, Any]:
        """The scale."""
        return {"scale": self.scale}

    def guarantee(self) -> str:
        """No formal guarantee: z is unbounded here."""
        return (
            "No differential privacy: z is not clipped, so no sensitivity is known (local_dp with the "
            "laplace mechanism clips). Averaging repeated releases of one input removes the noise."
        )
