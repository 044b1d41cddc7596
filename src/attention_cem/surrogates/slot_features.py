"""SlotFeatures: how much each place of z attends to each of its slots."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from attention_cem.surrogates.base import require_momentum, require_positive_int

HEADS_A_SIDE = 4
TEMPERATURE = 0.3  # h² as a share of a head's variance: from .3 to 1 an attacker recovers much the same
_DEAD = 0.1  # a slot with less than this share of an even part of the samples starts anew


class SlotFeatures(nn.Module):
    r"""Attention of z over a few slots, head by head; a head is a region of z.

    .. math:: a_{hk}(z) = \mathrm{softmax}_k\left(-\frac{\lVert z_h-s_{hk}\rVert^2}{2\tau\,\mathrm{Var}(z_h)}\right)

    With values that are solved in closed form (`LinearLeakage`) this is cross-attention from z to slots, an attacker
    beyond linear: of as many numbers it makes more than of random Fourier features, because slots lie where z is and
    heads look at one region each.

    Slots follow the client: each is the mean of the samples nearest to it, over about as many batches as the
    attacker's covariances remember. One that is left behind starts anew at a sample. There is nothing to train.

    Args:
        z_shape: (C, H, W), cut into up to 4×4 regions of equal size, or (D,), a single head.
        slots: K, slots a head.
        momentum: share of the old samples in a slot.

    >>> features = SlotFeatures((8, 8, 8), slots=32)
    >>> features.heads, features.width
    (16, 512)
    >>> weights = features(torch.rand(64, 512), torch.tensor(0))
    >>> weights.shape, torch.allclose(weights.view(64, 16, 32).sum(-1), torch.ones(()))
    (torch.Size([64, 512]), True)
    """

    slot: Tensor
    weight: Tensor

    def __init__(self, z_shape: Sequence[int], slots: int, *, momentum: float = 0.98) -> None:
        super().__init__()
        self.slots, self.momentum = require_positive_int("slots", slots), require_momentum(momentum)
        self.z_shape = tuple(require_positive_int("a side of z_shape", side) for side in z_shape)
        places = self.z_shape[1:]
        if len(places) == 2:
            self.cuts = tuple(max(part for part in range(1, HEADS_A_SIDE + 1) if side % part == 0) for side in places)
        else:
            self.cuts = (1, 1)
        self.heads = prod(self.cuts)
        self.width = self.heads * slots
        self.register_buffer("slot", torch.zeros(self.heads, slots, prod(self.z_shape) // self.heads))
        self.register_buffer("weight", torch.zeros(self.heads, slots))

    def forward(self, z: Tensor, step: Tensor) -> Tensor:
        """Attention (N, heads·K) of features (N, D); ``step`` () counts the batches before this one."""
        query = self._heads(z)
        fixed = query.detach()
        if self.training and len(z) > 0:
            usable = torch.isfinite(fixed.square().sum())  # by its squares, as the covariances judge a batch
            self._start(fixed, step, usable)
            self._follow(fixed, step, usable)  # before attending: evaluation sees the slots of the last step
        scale = 2 * TEMPERATURE * _variance(fixed).unsqueeze(-1)
        return torch.softmax(-self._distance(query) / scale, -1).flatten(1)

    def _heads(self, z: Tensor) -> Tensor:
        """Features (N, D) as (N, heads, D / heads), one region each."""
        if self.heads == 1:
            return z.unsqueeze(1)
        channels, height, width = self.z_shape
        down, across = self.cuts
        regions = z.view(-1, channels, down, height // down, across, width // across)
        return regions.permute(0, 2, 4, 1, 3, 5).reshape(len(z), self.heads, self.slot.shape[-1])

    def _distance(self, query: Tensor) -> Tensor:
        """Squared distances (N, heads, K) of queries to slots."""
        slot = self.slot.clone()  # it moves on before the gradient is taken
        across = torch.einsum("nhd,hkd->nhk", query, slot)
        return query.square().sum(-1, keepdim=True) - 2 * across + slot.square().sum(-1)

    @torch.no_grad()
    def _start(self, query: Tensor, step: Tensor, usable: Tensor) -> None:
        """At the first batch the slots are its samples."""
        first = (step == 0) & usable
        self.slot.copy_(torch.where(first, self._samples(query, step), self.slot))
        self.weight.copy_(torch.where(first, len(query) / self.slots, self.weight))

    @torch.no_grad()
    def _follow(self, query: Tensor, step: Tensor, usable: Tensor) -> None:
        """Slots move to the mean of what is nearest to them; a left one to a sample."""
        choice = self._distance(query).argmin(-1, keepdim=True)
        nearest = (choice == torch.arange(self.slots, device=query.device)).to(query.dtype)
        count = nearest.sum(0)
        total = torch.einsum("nhk,nhd->hkd", nearest, query)
        kept = self.momentum * self.weight
        weight = kept + count
        slot = (kept.unsqueeze(-1) * self.slot + total) / weight.clamp_min(torch.finfo(weight.dtype).tiny).unsqueeze(-1)
        even = weight.mean(-1, keepdim=True)
        dead = weight < _DEAD * even
        slot = torch.where(dead.unsqueeze(-1), self._samples(query, step), slot)
        self.slot.copy_(torch.where(usable, slot, self.slot))
        self.weight.copy_(torch.where(usable, torch.where(dead, even, weight), self.weight))

    def _samples(self, query: Tensor, step: Tensor) -> Tensor:
        """Samples (heads, K, D / heads) of the batch, others at every step and head."""
        head, slot = (torch.arange(count, device=query.device) for count in self.slot.shape[:2])
        place = (step + head[:, None] * self.slots + slot) % len(query)
        return query[place, head[:, None]]


def _variance(query: Tensor) -> Tensor:
    """(heads,): variance of queries (N, heads, d), summed over d; never so small that rounding is all there is."""
    least = torch.finfo(query.dtype).eps * query.square().sum(-1).mean(0) + torch.finfo(query.dtype).tiny
    return (query - query.mean(0)).square().sum(-1).mean(0).maximum(8 * least)
