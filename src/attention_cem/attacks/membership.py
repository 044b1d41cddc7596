"""Membership inference: was this record in the victim's training set? From z, and from the server's outputs.

The attacker knows the answer for half of the candidates, fits on them, and is scored on the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention_cem.attacks.base import seeded
from attention_cem.attacks.challenge import Challenge, MembershipCandidates


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """Scores of the candidates whose membership was not known: higher means more likely a member.

    Args:
        scores: by attack, ``(U,)``.
        positions: ``(U,)`` which candidates they are.
        details: by attack, how it went, plain data.
    """

    scores: dict[str, Tensor]
    positions: Tensor
    details: dict[str, Any]


def membership_attack(
    challenge: Challenge, *, device: torch.device, seed: int = 0, epochs: int = 200
) -> MembershipResult | None:
    """Run every membership attack the challenge allows; None if it has no candidates.

    ``loss``: the negative cross-entropy of the server's output at the true label (Yeom et al., arXiv 1709.01604);
    ``outputs`` and ``z``: a small network on the sorted outputs and loss, or on z and the label, trained on the
    candidates whose membership is known.
    """
    candidates = challenge.membership()
    if candidates is None:
        return None
    unknown = (candidates.known < 0).nonzero().flatten()
    known = (candidates.known >= 0).nonzero().flatten()
    truth = candidates.known[known].float()
    scores: dict[str, Tensor] = {}
    details: dict[str, Any] = {}
    views = {"z": _z_view(candidates, len(challenge.class_names))}
    if candidates.logits is not None:
        loss = F.cross_entropy(candidates.logits, candidates.labels, reduction="none")
        scores["loss"] = -loss[unknown]
        views["outputs"] = _output_view(candidates.logits, loss)
    for name, view in views.items():
        with seeded(device, f"membership/{name}", seed):
            scores[name], best_loss = _learned_scores(view[known].to(device), truth.to(device), view.to(device), epochs)
        scores[name] = scores[name][unknown]
        details[name] = {"validation_loss": best_loss, "chance_loss": math.log(2)}
    return MembershipResult(scores, unknown, details)


def roc_auc(scores: Tensor, is_member: Tensor) -> float:
    """Area under the ROC curve: the chance that a member scores above a non-member, ties counted half.

    >>> roc_auc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([False, False, True, True]))
    0.75
    """
    order = scores.double().unique(return_inverse=True)[1]
    counts = torch.bincount(order).double()
    rank = (counts.cumsum(0) - (counts - 1) / 2)[order]  # mean rank of ties
    members = is_member.double().sum()
    others = len(is_member) - members
    if members == 0 or others == 0:
        raise ValueError("the ROC curve needs members and non-members")
    return float((rank[is_member].sum() - members * (members + 1) / 2) / (members * others))


def tpr_at_fpr(scores: Tensor, is_member: Tensor, fpr: float = 0.01) -> float:
    """Share of members found when at most ``fpr`` of the non-members are wrongly accused.

    >>> tpr_at_fpr(torch.tensor([0.9, 0.8, 0.2, 0.1]), torch.tensor([True, True, False, False]))
    1.0
    """
    others = scores[~is_member].sort(descending=True).values
    if not len(others) or not bool(is_member.any()):
        raise ValueError("the true-positive rate needs members and non-members")
    allowed = int(fpr * len(others))
    threshold = others[allowed] if allowed < len(others) else torch.tensor(-torch.inf)
    return float((scores[is_member] > threshold).double().mean())


def _z_view(candidates: MembershipCandidates, num_classes: int) -> Tensor:
    return torch.cat([candidates.features.flatten(1), F.one_hot(candidates.labels, num_classes).float()], dim=1)


def _output_view(logits: Tensor, loss: Tensor) -> Tensor:
    ordered = logits.log_softmax(1).sort(dim=1, descending=True).values.clamp_min(-30)
    return torch.cat([ordered[:, : min(10, ordered.shape[1])], loss[:, None].clamp_max(30)], dim=1)


def _learned_scores(known: Tensor, truth: Tensor, everything: Tensor, epochs: int) -> tuple[Tensor, float]:
    """Scores by a network of one hidden layer; a quarter of the known records choose the epoch."""
    mean, spread = known.mean(0), known.std(0).clamp_min(1e-6)
    known, everything = (known - mean) / spread, (everything - mean) / spread
    held_out = torch.arange(len(known), device=known.device) % 4 == 0
    network = nn.Sequential(nn.Linear(known.shape[1], 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1)).to(
        known.device
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-2)
    best_loss, best_scores = torch.inf, torch.zeros(len(everything))
    for _ in range(epochs):
        network.train()
        order = (~held_out).nonzero().flatten()[torch.randperm(int((~held_out).sum()), device=known.device)]
        for batch in order.split(256):
            optimizer.zero_grad(set_to_none=True)
            F.binary_cross_entropy_with_logits(network(known[batch])[:, 0], truth[batch]).backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            loss = float(F.binary_cross_entropy_with_logits(network(known[held_out])[:, 0], truth[held_out]))
            if loss < best_loss:
                best_loss, best_scores = loss, network(everything)[:, 0].cpu()
    return best_scores, best_loss
