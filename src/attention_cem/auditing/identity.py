"""Can the person still be recognised? A classifier trained on other images judges the reconstructions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention_cem.attacks.base import release_in_chunks, seeded
from attention_cem.data import Augment, ImageSet, to_float
from attention_cem.data.random_streams import generator_for
from attention_cem.splitting.backbones.tiny_cnn import TinyCNN

DEFINITION = (
    "share of test images whose reconstruction a classifier assigns to the right class (person); the classifier was "
    "trained on the attacker's images, which hold none of the test images; on_true_images is its share on the "
    "originals, chance that of always guessing the commonest class"
)


@dataclass(frozen=True, eq=False)
class IdentityJudge:
    """A trained classifier of identities.

    Args:
        network: images in [0, 1] → logits.
        chance: share of the commonest class in its training images.
    """

    network: nn.Module
    chance: float

    def matches(self, images: Tensor, labels: Tensor, device: torch.device) -> Tensor:
        """Whether each float image ``(N, C, H, W)`` is assigned to its label ``(N,)``: bool ``(N,)``."""
        return release_in_chunks(self.network, images, device).argmax(1) == labels.cpu()


def train_identity_judge(
    images: ImageSet, *, device: torch.device, epochs: int = 40, batch_size: int = 32, seed: int = 0
) -> IdentityJudge:
    """Train a small network to name the class of an image; crops and mirrors make the most of few images.

    Args:
        images: images with identities as labels; none of those to be judged.
        device: where to train.
        epochs: passes over the images.
        batch_size: images a step.
        seed: of everything random.
    """
    if epochs < 1 or batch_size < 1:
        raise ValueError(f"epochs and batch_size must be at least 1, got {epochs} and {batch_size}")
    batch = min(batch_size, len(images))
    steps = len(images) // batch
    augment = Augment(crop_padding=max(1, images.image_shape[1] // 16), flip=True)
    draws = generator_for("identity/augment", seed, device=device)
    pictures, labels = images.images.to(device), images.labels.to(device)
    with seeded(device, "identity", seed):
        network = TinyCNN(images.num_classes, in_channels=images.image_shape[0]).to(device)
        optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=0.05)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / (epochs * steps)))
        )
        for _ in range(epochs):
            order = torch.randperm(len(images), device=device)
            for index in order[: steps * batch].split(batch):
                optimizer.zero_grad(set_to_none=True)
                logits = network(augment(pictures[index], draws))
                F.cross_entropy(logits, labels[index], label_smoothing=0.1).backward()
                optimizer.step()
                schedule.step()
    chance = float(labels.bincount(minlength=images.num_classes).max() / len(labels))
    return IdentityJudge(network.eval().requires_grad_(False), chance)


def identity_match(
    judge: IdentityJudge, reconstructions: Tensor, images: Tensor, labels: Tensor, device: torch.device
) -> dict[str, float]:
    """Match rates of reconstructions and of the true uint8 images, beside chance; plain data."""
    count = len(reconstructions)
    return {
        "on_reconstructions": float(judge.matches(reconstructions, labels[:count], device).double().mean()),
        "on_true_images": float(judge.matches(to_float(images[:count]), labels[:count], device).double().mean()),
        "chance": judge.chance,
    }
