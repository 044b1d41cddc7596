"""Local differential privacy of one released feature: clip every sample, then add calibrated noise."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from . import checks
from .base import FeatureDefence, Stage
from .gaussian_mechanism import gaussian_sigma
from .randomness import Draw, NoiseSource, laplace_like, normal_like
from .registry import register_defence

_ROUNDING_MARGIN = 1e-6


def clip_per_sample(z: Tensor, clip_norm: float, order: int) -> Tensor:
    r"""Scale each sample so that its norm is at most C: z · min(1, C / ‖z‖).

    Args:
        z: ``(N, ...)``.
        clip_norm: C, for the norm over all coordinates of a sample.
        order: 1 or 2, which norm.

    Returns:
        ``(N, ...)``; samples inside the ball are changed by no more than rounding.

    >>> clip_per_sample(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 1.0, order=2)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    norm = torch.linalg.vector_norm(z.flatten(1), ord=order, dim=1)
    # A little inside the ball: rounding must not put a sample outside, the guarantee rests on it.
    room = clip_norm * (1 - _ROUNDING_MARGIN)
    factor = (room / norm.clamp_min(torch.finfo(z.dtype).tiny)).clamp(max=1.0)
    return z * factor.reshape(-1, *[1] * (z.dim() - 1))


@register_defence
class LocalDP(FeatureDefence):
    r"""(ε, δ)-local differential privacy of one release of z.

    - ``gaussian``: ‖z‖₂ ≤ C, then N(0, σ²I) with the smallest valid σ for Δ = 2C (Balle & Wang 2018,
      valid for every ε);
    - ``laplace``: ‖z‖₁ ≤ C, then Laplace noise of scale 2C/ε; pure ε-DP, δ = 0.

    The sensitivity is 2C, not C: in the local model two users' inputs may differ in everything.

    Args:
        epsilon: ε > 0.
        clip_norm: C in the units of z.
        delta: δ of the Gaussian mechanism (1e-5 when None); must be None or 0 for Laplace.
        mechanism: ``gaussian`` or ``laplace``.

    Shape: ``(N, ...)`` → the same.

    >>> LocalDP(epsilon=1.0, clip_norm=0.5).noise_scale  # σ, for Δ = 1
    3.7306...
    """

    name: ClassVar[str] = "local_dp"
    stage: ClassVar[Stage] = Stage.LOCAL_DP

    def __init__(
        self, epsilon: float, clip_norm: float, delta: float | None = None, mechanism: str = "gaussian"
    ) -> None:
        super().__init__()
        self.epsilon = checks.positive("epsilon", epsilon)
        self.clip_norm = checks.positive("clip_norm", clip_norm)
        self.mechanism = checks.one_of("mechanism", mechanism, ("gaussian", "laplace"))
        if mechanism == "laplace":
            if delta not in (None, 0):
                raise ValueError(f"the laplace mechanism has delta = 0, received {delta!r}; leave delta out")
            self.delta = 0.0
            self.noise_scale = 2 * self.clip_norm / self.epsilon
        else:
            self.delta = 1e-5 if delta is None else checks.not_negative("delta", delta)
            self.noise_scale = gaussian_sigma(self.epsilon, self.delta, 2 * self.clip_norm)

    def forward(self, z: Tensor, source: NoiseSource = None) -> Tensor:
        """Clip and add noise in float32 at least; rounding to a narrower type afterwards is harmless."""
        wide = checks.features(z) if z.dtype == torch.float64 else checks.features(z).float()
        gaussian = self.mechanism == "gaussian"
        clipped = clip_per_sample(wide, self.clip_norm, order=2 if gaussian else 1)
        noise = normal_like(wide, source) if gaussian else laplace_like(wide, source)
        return (clipped + self.noise_scale * noise).to(z.dtype)

    def draws(self) -> tuple[Draw, ...]:
        """One normal draw, or two uniform ones for the Laplace mechanism."""
        return ("normal",) if self.mechanism == "gaussian" else ("uniform", "uniform")

    def noise_variance(self) -> float:
        """σ² for the Gaussian, 2·scale² for the Laplace mechanism."""
        return self.noise_scale**2 * (1 if self.mechanism == "gaussian" else 2)

    def config(self) -> dict[str, Any]:
        """ε, δ, C and the mechanism."""
        return {
            "epsilon": self.epsilon,
            "clip_norm": self.clip_norm,
            "delta": self.delta,
            "mechanism": self.mechanism,
        }

    def guarantee(self) -> str:
        """What (ε, δ) covers here and what it does not."""
        promise = f"({self.epsilon:g}, {self.delta:g})" if self.mechanism == "gaussian" else f"{self.epsilon:g}"
        norm = "L2" if self.mechanism == "gaussian" else "L1"
        return (
            f"{promise}-local differential privacy of one release of the feature of one input, for any two "
            f"inputs (features clipped to {norm} norm {self.clip_norm:g}, {self.mechanism} noise of scale "
            f"{self.noise_scale:.6g}), in exact arithmetic with perfect random numbers. Budgets add up: "
            "every further release of the same or a related input weakens it, training steps included. It "
            "says nothing about the training data held in the model's weights, about what an attacker already "
            "knows, or about attacks on floating-point noise and the random generator. With a large epsilon "
            "it promises little: judge by measured attacks as well."
        )
