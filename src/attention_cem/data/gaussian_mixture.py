r"""Feature vectors whose conditional entropy is known: the yardstick for estimators of H(z|y).

Each class is a mixture of Gaussians with diagonal covariance,

.. math:: p(z \mid y) = \sum_k \pi_{yk}\, \mathcal{N}(z;\, \mu_{yk}, \operatorname{diag} \sigma^2_{yk}),

and classes are equally frequent. Entropies are in nats and computed in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attention_cem.data.random_streams import generator_for


class EntropyEstimate(NamedTuple):
    """A Monte-Carlo estimate in nats and its standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class GaussianMixtureFeatures:
    """Samples of a known class-conditional mixture, and the mixture itself.

    Args:
        z: samples ``(N, D)``, float32.
        labels: class of each sample ``(N,)``.
        modes: component of each sample within its class ``(N,)``.
        weights: π, ``(C, K)``; each row sums to one.
        means: μ, ``(C, K, D)``, float64.
        variances: σ², ``(C, K, D)``, float64.
    """

    z: Tensor
    labels: Tensor
    modes: Tensor
    weights: Tensor
    means: Tensor
    variances: Tensor

    def log_density(self, z: Tensor, labels: Tensor, noise_std: float = 0.0) -> Tensor:
        r"""Return :math:`\log p(z + n \mid y)` at ``z`` ``(N, D)`` with Gaussian noise n of ``noise_std``."""
        means, variances = self.means[labels], self.variances[labels] + noise_std**2
        deviation = z.to(torch.float64)[:, None] - means  # (N, K, D)
        log_normal = -0.5 * (deviation.square() / variances + (2 * math.pi * variances).log()).sum(-1)
        return torch.logsumexp(self.weights[labels].log() + log_normal, dim=1)

    def conditional_entropy(
        self, noise_std: float = 0.0, *, num_samples: int = 100_000, seed: int = 0
    ) -> EntropyEstimate:
        """Estimate H(z + n | y) as the mean of −log p over fresh samples of the known density."""
        if num_samples < 2:
            raise ValueError(f"a standard error needs at least 2 samples, got {num_samples}")
        generator = generator_for("gaussian mixture/entropy", seed)
        labels = torch.arange(num_samples) % len(self.weights)
        z, _ = _sample(self.weights, self.means, self.variances + noise_std**2, labels, generator)
        surprise = -torch.cat(
            [
                self.log_density(part, part_labels, noise_std)
                for part, part_labels in zip(z.split(8192), labels.split(8192), strict=True)
            ]
        )
        return EntropyEstimate(surprise.mean().item(), surprise.std().item() / math.sqrt(num_samples))

    def conditional_entropy_bounds(self, noise_std: float = 0.0) -> tuple[float, float]:
        r"""Return a lower and an upper bound of H(z + n | y) in closed form.

        Upper: :math:`\sum_k \pi_k(-\log \pi_k + \tfrac12 \log|2\pi e \Sigma_k|)`, tight for modes far apart.
        Lower: :math:`-\sum_k \pi_k \log \sum_j \pi_j \mathcal{N}(\mu_k; \mu_j, \Sigma_k + \Sigma_j)`
        (Huber et al., *On entropy approximation for Gaussian mixture random vectors*, MFI 2008). With one mode
        the upper bound is the entropy itself.
        """
        variances = self.variances + noise_std**2
        of_mode = 0.5 * (2 * math.pi * math.e * variances).log().sum(-1)
        upper = (self.weights * (of_mode - self.weights.log())).sum(1).mean()
        both = variances[:, :, None] + variances[:, None]  # (C, K, K, D)
        deviation = self.means[:, :, None] - self.means[:, None]
        log_overlap = -0.5 * (deviation.square() / both + (2 * math.pi * both).log()).sum(-1)
        overlap = torch.logsumexp(self.weights.log()[:, None] + log_overlap, dim=2)
        lower = -(self.weights * overlap).sum(1).mean()
        return lower.item(), upper.item()


def gaussian_mixture_features(
    num_samples: int,
    *,
    num_classes: int = 4,
    modes_per_class: int = 3,
    dim: int = 8,
    mode_distance: float = 6.0,
    std_range: tuple[float, float] = (0.5, 1.5),
    seed: int = 0,
) -> GaussianMixtureFeatures:
    """Draw a random mixture per class and samples of it; equal arguments give equal features.

    Args:
        num_samples: N; classes are balanced to within one sample.
        num_classes: C.
        modes_per_class: K.
        dim: D.
        mode_distance: root mean square distance between the means of any two modes.
        std_range: each standard deviation is log-uniform between these two.
        seed: the only source of randomness.

    Example:
        >>> features = gaussian_mixture_features(100, modes_per_class=1, dim=2, std_range=(1.0, 1.0))
        >>> lower, upper = features.conditional_entropy_bounds()
        >>> round(upper, 4)  # log(2πe), two dimensions of unit variance
        2.8379
    """
    sizes = {"num_samples": num_samples, "num_classes": num_classes, "modes_per_class": modes_per_class, "dim": dim}
    for what, value in sizes.items():
        if value < 1:
            raise ValueError(f"gaussian_mixture_features: {what} must be at least 1, got {value}")
    low, high = std_range
    if not 0 < low <= high:
        raise ValueError(f"gaussian_mixture_features: std_range must satisfy 0 < low ≤ high, got {std_range}")
    if mode_distance < 0:
        raise ValueError(f"gaussian_mixture_features: mode_distance must not be negative, got {mode_distance}")
    generator = generator_for("gaussian mixture", seed)
    shape = (num_classes, modes_per_class, dim)
    weights = (0.5 * torch.randn(shape[:2], generator=generator, dtype=torch.float64)).softmax(1)
    means = mode_distance / math.sqrt(2 * dim) * torch.randn(shape, generator=generator, dtype=torch.float64)
    log_std = torch.rand(shape, generator=generator, dtype=torch.float64) * math.log(high / low) + math.log(low)
    variances = (2 * log_std).exp()
    labels = (torch.arange(num_samples) % num_classes)[torch.randperm(num_samples, generator=generator)]
    z, modes = _sample(weights, means, variances, labels, generator)
    return GaussianMixtureFeatures(z.to(torch.float32), labels, modes, weights, means, variances)


def _sample(
    weights: Tensor, means: Tensor, variances: Tensor, labels: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    modes = torch.multinomial(weights[labels], 1, generator=generator).squeeze(1)
    noise = torch.randn(len(labels), means.shape[-1], generator=generator, dtype=torch.float64)
    return means[labels, modes] + variances[labels, modes].sqrt() * noise, modes
