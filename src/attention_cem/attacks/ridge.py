"""The best linear attacker, in closed form: it cannot be under-trained, and no client can hide from it by luck."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from attention_cem.attacks.attacker_data import AttackerData, load_attacker_data
from attention_cem.attacks.base import Attack, AttackResult, Progress, no_progress, seeded
from attention_cem.attacks.baselines import Guess, choose_guess
from attention_cem.attacks.challenge import Challenge
from attention_cem.data import to_float

_STRENGTHS = tuple(10.0**power for power in range(-10, 2))  # the weak ones find what is drowned by what is loud


@dataclass(frozen=True)
class RidgeAttack(Attack):
    r"""Ridge regression of the pixels on z and on random Fourier features of it.

    .. math:: \hat x = \bar x + W^\top(\phi(z)-\bar\phi), \qquad
        W = (C_{\phi\phi}+\alpha I)^{-1}C_{\phi x}, \qquad \phi(z) = [z, \cos(\Omega z + b)]

    with α chosen on the attack's own validation images; infinite α, the mean image, is among the choices. In double
    precision: from its linear part no linear map hides a z that is not projected, however loud some directions are.

    Args:
        random_features: so many cosines join z; 0 for a linear attack.
        most_inputs: a z with more coordinates is projected to so many by a fixed random matrix.
    """

    random_features: int = 512
    most_inputs: int = 2048

    kind: ClassVar[str] = "ridge"
    rebuilds_unseen: ClassVar[bool] = False  # with fewer images than coordinates it cannot, whatever z shows

    def settings(self) -> dict[str, Any]:
        """Sizes, and the strengths to choose from."""
        sizes = {"random_features": self.random_features, "most_inputs": self.most_inputs}
        return {"kind": self.kind, **sizes, "strengths": list(_STRENGTHS)}

    def run(
        self,
        challenge: Challenge,
        *,
        device: torch.device,
        seed: int = 0,
        progress: Progress = no_progress,
        starts: Mapping[str, AttackResult] | None = None,
    ) -> AttackResult:
        """One eigendecomposition, of the smaller of the two Gram matrices; then every α is a matrix product."""
        with seeded(device, self.kind, seed):
            data = load_attacker_data(challenge, device)
            features = data.training_features().flatten(1)
            lift = _Lift(features, self.random_features, self.most_inputs)
        mean_input, mean_pixels, solution = _solved(lift, features, data)
        shape = data.images.shape[1:]

        def guess_with(strength: float) -> Guess:
            def guess(z: Tensor) -> Tensor:
                rebuilt = mean_pixels + solution.apply(lift(z.flatten(1)) - mean_input, strength)
                return rebuilt.clamp(0, 1).float().view(-1, *shape)

            return guess

        def mean_image(z: Tensor) -> Tensor:
            return mean_pixels.float().view(shape).expand(len(z), *shape)

        guesses: dict[Any, Guess] = {strength: guess_with(strength) for strength in _STRENGTHS}
        guesses[math.inf] = mean_image
        return choose_guess(self.kind, guesses, data, challenge, features, progress)


class _Lift:
    """z in standard units, projected if it is long, and random cosines of it."""

    def __init__(self, features: Tensor, random_features: int, most_inputs: int) -> None:
        self.mean, self.spread = features.mean(0), features.std(0, correction=0)
        # a coordinate that never varies carries nothing; the floor keeps rounding from being blown up
        self.spread = self.spread.clamp_min(1e-6 + 1e-3 * float(self.spread.mean()))
        width = features.shape[1]
        self.projection: Tensor | None = None
        if width > most_inputs:
            self.projection = torch.randn(width, most_inputs, device=features.device).double() / most_inputs**0.5
            width = most_inputs
        # frequencies at which typical distances between standardised features turn the cosine by about one
        self.frequency = torch.randn(width, random_features, device=features.device).double() / (2 * width) ** 0.5
        self.phase = 2 * math.pi * torch.rand(random_features, device=features.device).double()

    def __call__(self, z: Tensor) -> Tensor:
        inputs = ((z - self.mean) / self.spread).double()
        if self.projection is not None:
            inputs = inputs @ self.projection
        return torch.cat([inputs, math.sqrt(2) * torch.cos(inputs @ self.frequency + self.phase)], 1)


@dataclass(frozen=True)
class _Solution:
    """W for every α at once: ``basis (scale + α)⁻¹ along``, shapes ``(D, R)``, ``(R,)``, ``(R, P)``.

    α is in units of the mean variance of an input.
    """

    basis: Tensor
    scale: Tensor
    along: Tensor

    def apply(self, inputs: Tensor, strength: float) -> Tensor:
        """Inputs ``(N, D)``, centred, times W: ``(N, P)``; W itself is never made."""
        mean_variance = self.scale.sum() / len(self.basis)
        return (inputs @ self.basis / (self.scale + strength * mean_variance.clamp_min(1e-30))) @ self.along


def _solved(lift: _Lift, features: Tensor, data: AttackerData) -> tuple[Tensor, Tensor, _Solution]:
    """Means ``(D,)`` and ``(P,)`` of inputs and pixels, and the ridge regression between them."""
    count = len(features)
    width, pixels = lift(features[:1]).shape[1], data.images[0].numel()
    zeros = partial(torch.zeros, dtype=torch.float64, device=features.device)
    mean_input, mean_pixels = zeros(width), zeros(pixels)
    for z, images in zip(features.split(2048), data.images.split(2048), strict=True):
        mean_input += lift(z).sum(0) / count
        mean_pixels += to_float(images).flatten(1).sum(0) / count
    if count < width:
        # the same W by way of images × images: (AᵀA + αI)⁻¹Aᵀ = Aᵀ(AAᵀ + αI)⁻¹
        inputs = (lift(features) - mean_input) / count**0.5
        scale, axes = torch.linalg.eigh(inputs @ inputs.T)
        shared = (to_float(data.images).flatten(1).double() - mean_pixels) / count**0.5
        return mean_input, mean_pixels, _Solution(inputs.T @ axes, scale.clamp_min(0), axes.T @ shared)
    covariance, shared = zeros(width, width), zeros(width, pixels)
    for z, images in zip(features.split(2048), data.images.split(2048), strict=True):
        inputs = lift(z) - mean_input
        covariance += inputs.T @ inputs / count
        shared += inputs.T @ (to_float(images).flatten(1) - mean_pixels) / count
    scale, axes = torch.linalg.eigh(covariance)
    return mean_input, mean_pixels, _Solution(axes, scale.clamp_min(0), axes.T @ shared)
