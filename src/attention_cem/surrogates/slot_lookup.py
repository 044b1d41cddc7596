"""Slots of many classes look at their class's samples: one round of attention by distance."""

from typing import NamedTuple

import torch
from torch import Tensor


class SlotState(NamedTuple):
    """Where the slots of R classes stand."""

    mean: Tensor
    """(R, S, D)"""
    share: Tensor
    """(R, S)"""


class BankView(NamedTuple):
    """What the attention sees of a memory: made once, looked at in every round."""

    keys: Tensor
    """(R, K, key_dim)"""
    origin: Tensor
    """(R, 1, D): taken off samples and slots, for the rounding's sake"""
    scale: Tensor
    """() or (R, 1, 1): the squared distance that counts as one, temperature included"""


def bank_view(bank: Tensor, slots: SlotState, key: Tensor, scale: Tensor) -> BankView:
    """The view of remembered samples (R, K, D) through keys of the projection (key_dim, D)."""
    origin = slots.mean.mean(1, keepdim=True)
    return BankView((bank - origin) @ key.T, origin, scale)


def slot_responsibilities(view: BankView, slots: SlotState, key: Tensor) -> Tensor:
    """Softmax over the slots of each sample's log share and squared distance: (R, K, S)."""
    # what is the same for all slots of a sample, as its own length, drops out of the softmax
    queries = (slots.mean - view.origin) @ key.T
    scaled = queries / view.scale
    bias = torch.add(slots.share.log(), (queries * scaled).sum(-1), alpha=-0.5)
    return torch.baddbmm(bias.unsqueeze(1), view.keys, scaled.mT).softmax(-1)
