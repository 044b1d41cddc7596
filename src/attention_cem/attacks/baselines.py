"""Two attacks without training: guess from the class, guess from the neighbours. Strong when z is compact.

Both have one setting (a temperature, a number of neighbours), chosen on the attack's own validation images. One end
of each range is the mean image, so neither can do worse than one who sees nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from attention_cem.attacks.attacker_data import AttackerData, load_attacker_data
from attention_cem.attacks.base import Attack, AttackResult, Progress, no_progress, rebuilt, seeded
from attention_cem.attacks.challenge import Challenge
from attention_cem.attacks.receipts import CurvePoint, Receipt
from attention_cem.data import mse_per_image, to_float

Guess = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ClassMeanAttack(Attack):
    r"""Mean image of the class, weighted by how likely each class is given z.

    .. math:: \hat x = \sum_c p_T(c|z)\, \bar x_c, \qquad
        p_T(c|z) \propto \pi_c \exp\Big(-\tfrac{1}{2T}\sum_d (z_d - \mu_{cd})^2/s_d^2\Big)

    where μ and s are class means and the pooled within-class deviation of the attacker's features. The class is
    never given, only read out of z.
    """

    kind: ClassVar[str] = "class_mean"
    rebuilds_unseen: ClassVar[bool] = False

    def settings(self) -> dict[str, Any]:
        """None but its name."""
        return {"kind": self.kind}

    def run(
        self,
        challenge: Challenge,
        *,
        device: torch.device,
        seed: int = 0,
        progress: Progress = no_progress,
        starts: Mapping[str, AttackResult] | None = None,
    ) -> AttackResult:
        """Fit class means, choose the temperature, guess."""
        with seeded(device, self.kind, seed):
            data = load_attacker_data(challenge, device)
            features = data.training_features().flatten(1)
            means, spread, prior, pictures = _class_statistics(features, data, len(challenge.class_names))

        def guess_at(temperature: float) -> Guess:
            def guess(z: Tensor) -> Tensor:
                scaled = z.flatten(1) / spread
                distance = torch.cdist(scaled, means / spread).square()  # (B, classes)
                weight = (prior.log() - distance / (2 * temperature)).softmax(1)
                return torch.einsum("bc,cijk->bijk", weight, pictures)

            return guess

        width = features.shape[1]
        temperatures = [1.0, *(width * 10.0**power for power in (-2, -1.5, -1, -0.5, 0, 0.5, 1, 2)), float("inf")]
        return choose_guess(self.kind, {t: guess_at(t) for t in temperatures}, data, challenge, features, progress)


@dataclass(frozen=True)
class NearestNeighbourAttack(Attack):
    """Mean of the attacker's k images whose released features lie nearest to z; k chosen on validation images.

    Args:
        neighbours: numbers of neighbours to choose from; all images together are always tried as well.
    """

    neighbours: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)

    kind: ClassVar[str] = "nearest_neighbour"
    rebuilds_unseen: ClassVar[bool] = False

    def settings(self) -> dict[str, Any]:
        """The numbers of neighbours."""
        return {"kind": self.kind, "neighbours": list(self.neighbours)}

    def run(
        self,
        challenge: Challenge,
        *,
        device: torch.device,
        seed: int = 0,
        progress: Progress = no_progress,
        starts: Mapping[str, AttackResult] | None = None,
    ) -> AttackResult:
        """Choose k, then look the test features up."""
        with seeded(device, self.kind, seed):
            data = load_attacker_data(challenge, device)
            features = data.training_features().flatten(1)
        mean_image = data.mean_image()

        def guess_with(k: int) -> Guess:
            def guess(z: Tensor) -> Tensor:
                if k == len(data):
                    return mean_image.expand(len(z), *mean_image.shape)
                parts = []
                for chunk in z.flatten(1).split(128):
                    nearest = torch.cdist(chunk, features).topk(k, largest=False).indices  # (b, k)
                    parts.append(to_float(data.images[nearest]).mean(1))
                return torch.cat(parts)

            return guess

        numbers = [k for k in self.neighbours if k < len(data)] + [len(data)]
        return choose_guess(self.kind, {k: guess_with(k) for k in numbers}, data, challenge, features, progress)


def _class_statistics(features: Tensor, data: AttackerData, num_classes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Means ``(classes, D)``, pooled deviation ``(D,)``, prior ``(classes,)`` and mean images of the classes."""
    device = features.device
    counts = torch.bincount(data.labels, minlength=num_classes).to(features.dtype)
    per_class = counts.clamp_min(1)[:, None]
    means = torch.zeros(num_classes, features.shape[1], device=device).index_add_(0, data.labels, features) / per_class
    spread = (features - means[data.labels]).square().mean(0).sqrt()
    # A coordinate that never varies carries nothing; the floor keeps it from counting as infinitely precise.
    spread = spread.clamp_min(1e-6 + 1e-3 * float(spread.mean()))
    pictures = torch.zeros(num_classes, *data.images.shape[1:], device=device)
    for images, labels in zip(data.images.split(4096), data.labels.split(4096), strict=True):
        pictures.index_add_(0, labels, to_float(images))
    return means, spread, counts / counts.sum(), pictures / per_class[:, :, None, None]


def choose_guess(
    kind: str,
    guesses: Mapping[Any, Guess],
    data: AttackerData,
    challenge: Challenge,
    training_features: Tensor,
    progress: Progress,
) -> AttackResult:
    """Take the setting that is best on the attack's own validation images, and guess the test images with it."""
    began = time.perf_counter()
    curve: list[CurvePoint] = []
    best: Guess | None = None
    for number, guess in enumerate(guesses.values(), start=1):
        mse = float(mse_per_image(guess(data.validation_features), data.validation_images).mean())
        if best is None or mse < min(point.mse for point in curve):
            best = guess
        curve.append(CurvePoint(float(number), number, mse))
        progress(kind, number, len(guesses), min(point.mse for point in curve))
    if best is None:
        raise ValueError(f"{kind} has no setting to choose from")
    few = min(len(data), len(data.validation_images))
    train_mse = float(mse_per_image(best(training_features[:few]), to_float(data.images[:few])).mean())
    receipt = Receipt(
        curve=tuple(curve),
        converged=True,
        reason="nothing is trained: the setting was chosen among all tried on the attack's own validation images",
        train_mse=train_mse,
        validation_mse=min(point.mse for point in curve),
        epochs=0,
        seconds=time.perf_counter() - began,
    )
    return AttackResult(rebuilt(best, challenge, data.device), receipt)
