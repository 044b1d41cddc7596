"""Gaussian mixtures with diagonal covariances, fitted by expectation maximisation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_cem.data.random_streams import generator_for
from attention_cem.surrogates.clustering import cluster_classes, plus_plus_start

_KMEANS_ROUNDS = 20
_CHUNK = 8192


@dataclass(frozen=True, eq=False)
class DiagonalMixture:
    """Density Σ_k π_k N(x; μ_k, diag σ²_k), in float64.

    Args:
        weights: ``(K,)``, summing to one.
        means: ``(K, D)``.
        variances: ``(K, D)``.
    """

    weights: Tensor
    means: Tensor
    variances: Tensor

    def log_joint(self, x: Tensor) -> Tensor:
        """log π_k + log N(x_n; μ_k, σ²_k), ``(N, K)``."""
        precision = 1 / self.variances
        # Around the data's mean, so that |x|² − 2xμ + |μ|² loses little to cancellation.
        centre = x.mean(0)
        shifted, means = x - centre, self.means - centre
        squared = (
            shifted.square() @ precision.T - 2 * shifted @ (means * precision).T + (means.square() * precision).sum(1)
        )
        constant = self.weights.log() - 0.5 * (x.shape[1] * math.log(2 * math.pi) + self.variances.log().sum(1))
        return constant - 0.5 * squared

    def log_prob(self, x: Tensor) -> Tensor:
        """log density of each row, ``(N,)``, in nats."""
        return torch.cat([self.log_joint(chunk).logsumexp(1) for chunk in x.split(_CHUNK)])

    def responsibilities(self, x: Tensor) -> Tensor:
        """How likely each component made each row, ``(N, K)``."""
        return torch.cat([self.log_joint(chunk).softmax(1) for chunk in x.split(_CHUNK)])


def fit_mixture(
    x: Tensor, components: int, *, iterations: int = 100, tolerance: float = 1e-3, floor: float = 1e-6, seed: int = 0
) -> DiagonalMixture:
    """Fit by EM from a k-means start.

    Args:
        x: ``(N, D)``.
        components: K; at most N.
        iterations: rounds of EM at most.
        tolerance: stop when the mean log-likelihood gains less than this.
        floor: added to every variance, as scikit-learn's ``reg_covar``.
        seed: of the k-means++ start.

    >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> fit_mixture(x, components=1).variances.shape
    torch.Size([1, 3])
    """
    if x.ndim != 2 or not 1 <= components <= len(x):
        raise ValueError(f"expected (N, D) with N at least {components} components, got shape {tuple(x.shape)}")
    x = x.double()
    row = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    generator = generator_for("mixture", seed, device=x.device)
    start = plus_plus_start(x, row, 1, components, generator)
    clusters = cluster_classes(x, row, start, _KMEANS_ROUNDS)
    filled = clusters.weight[0] > 0
    overall = x.var(0, correction=0) + floor
    fitted = DiagonalMixture(
        clusters.weight[0][filled] / clusters.weight[0][filled].sum(),
        clusters.centroid[0][filled],
        # A cluster of one sample has no spread of its own; it starts with a share of the data's.
        clusters.variance[0][filled] + floor + 1e-3 * overall,
    )
    previous = -math.inf
    for _ in range(iterations):
        log_joint = torch.cat([fitted.log_joint(chunk) for chunk in x.split(_CHUNK)])
        score = float(log_joint.logsumexp(1).mean())
        fitted = moments(x, log_joint.softmax(1), floor)
        if score - previous < tolerance:
            break
        previous = score
    return fitted


def moments(x: Tensor, responsibilities: Tensor, floor: float) -> DiagonalMixture:
    """Weights, means and variances of the rows under given responsibilities ``(N, K)``."""
    mass = responsibilities.sum(0).clamp_min(10 * torch.finfo(x.dtype).eps)
    means = responsibilities.T @ x / mass[:, None]
    centre = x.mean(0)
    shifted, shifted_means = x - centre, means - centre
    variances = responsibilities.T @ shifted.square() / mass[:, None] - shifted_means.square()
    return DiagonalMixture(mass / mass.sum(), means, variances.clamp_min(0) + floor)


def best_mixture(fit_on: Tensor, held_out: Tensor, choices: tuple[int, ...], seed: int = 0) -> DiagonalMixture:
    """The mixture, among several numbers of components, that is likeliest on rows it was not fitted to."""
    usable = sorted({k for k in choices if 1 <= k <= len(fit_on)})
    if not usable:
        raise ValueError(f"no number of components among {choices} fits {len(fit_on)} rows")
    fitted = [fit_mixture(fit_on, k, seed=seed) for k in usable]
    return max(fitted, key=lambda mixture: float(mixture.log_prob(held_out.double()).mean()))
