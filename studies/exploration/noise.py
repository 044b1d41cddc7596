"""The noise at the cut: white, or shaped to how z varies within its classes."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attention_cem.surrogates.closed_form import deviations, samples_in_pairs
from attention_cem.surrogates.segments import segment_classes

MOMENTUM = 0.98


class CutNoise:
    """Gaussian noise of variance σ² per value: in every value alike, or where z varies within its classes.

    Shaped, it has the covariance of z within classes, scaled to the same power: it covers what tells images of a class
    apart, and leaves alone the directions in which only the class varies. Until the first `renew` it is white.
    """

    def __init__(self, sigma: float, z_shape: Sequence[int], device: str, *, shaped: bool = False) -> None:
        self.sigma, self.shaped, self.dim = sigma, shaped, math.prod(z_shape)
        size = self.dim if shaped else 0
        self.covariance = torch.zeros(size, size, device=device)
        self.factor = sigma * torch.eye(size, device=device)

    def __call__(self, z: Tensor) -> Tensor:
        """z and noise."""
        if not self.shaped:
            return z + self.sigma * torch.randn_like(z)
        drawn = torch.randn(z.shape[0], self.dim, device=z.device, dtype=self.factor.dtype)
        return z + (drawn @ self.factor.T).view(z.shape).to(z.dtype)

    @torch.no_grad()
    def learn(self, z: Tensor, labels: Tensor) -> None:
        """Take in the features of a batch."""
        if self.shaped:
            segments = segment_classes(labels, min_count=2)
            within = deviations(z.flatten(1), segments)
            found = within.T @ within / samples_in_pairs(segments).clamp_min(1)
            self.covariance.mul_(MOMENTUM).add_(found, alpha=1 - MOMENTUM)

    @torch.no_grad()
    def renew(self) -> None:
        """Shape the noise to what was learnt so far."""
        if not self.shaped:
            return
        mean = self.covariance.diagonal().mean().clamp_min(torch.finfo(self.factor.dtype).tiny)
        loaded = self.covariance / mean + 1e-4 * torch.eye(self.dim, device=self.factor.device)
        self.factor.copy_(torch.linalg.cholesky(loaded) * (self.sigma / math.sqrt(1 + 1e-4)))
