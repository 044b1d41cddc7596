"""Scoring a split model through its defences, and collecting the client's features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_cem.data import Batches
from attention_cem.defences import DefenceStack
from attention_cem.splitting import SplitModel, evaluating
from attention_cem.training.distributed import World


@dataclass(frozen=True)
class Score:
    """Cross-entropy, share of right answers, and the mean over classes of that share."""

    loss: float
    accuracy: float
    balanced_accuracy: float


@torch.no_grad()
def score(
    model: SplitModel,
    stack: DefenceStack,
    batches: Batches,
    *,
    num_classes: int,
    world: World | None = None,
    bf16: bool = False,
    watch: Callable[[Tensor, Tensor, Tensor], None] | None = None,
) -> Score:
    """Predict every image through ``server(defences(client(x)))`` in evaluation mode; one wait at the end.

    Args:
        model: the two halves.
        stack: the same object as in training: noise and dropout act here too.
        batches: this rank's part of the images.
        num_classes: classes, for the balanced accuracy.
        world: the processes that share the images.
        bf16: autocast, as in training.
        watch: given every batch that is not empty: images, the client's z, and what the defences released of it.
    """
    world = world or World()
    device = batches.device
    counts = torch.zeros(2, num_classes, dtype=torch.float64, device=device)  # rows: right answers, images
    loss = torch.zeros((), dtype=torch.float64, device=device)
    with evaluating(model):
        for images, labels in batches(epoch=0):
            if not len(labels):
                continue
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
                z = model.client(images).float()
                released = stack(z)
                logits = model.server(released).float()
            loss += F.cross_entropy(logits, labels, reduction="sum")
            right = (logits.argmax(1) == labels).to(torch.float64)
            counts.index_add_(1, labels, torch.stack([right, torch.ones_like(right)]))
            if watch is not None:
                watch(images, z, released)
    right, seen = world.sum_(counts).cpu()
    total = float(seen.sum())
    present = seen > 0
    return Score(
        loss=float(world.sum_(loss)) / total,
        accuracy=float(right.sum()) / total,
        balanced_accuracy=float((right[present] / seen[present]).mean()),
    )


@torch.no_grad()
def collect_features(
    model: SplitModel, stack: DefenceStack, batches: Batches, epoch: int, *, world: World | None = None, bf16: bool
) -> tuple[Tensor, Tensor]:
    """Clean features ``(N, D)`` and labels ``(N,)`` of one pass over the training images, the same on every rank.

    The client is in evaluation mode; the images vary as they do in training, because the batches that the
    statistics are compared with do.
    """
    world = world or World()
    features, classes = [], []
    with evaluating(model):
        for images, labels in batches(epoch):
            with torch.autocast(batches.device.type, dtype=torch.bfloat16, enabled=bf16):
                z = model.client(images).float()
            features.append(world.gather(stack.emission(z)).flatten(1))
            classes.append(world.gather(labels))
    return torch.cat(features), torch.cat(classes)
