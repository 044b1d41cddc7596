"""Slots tried anew: k-means++ seeds in every remembered class, kept where they explain its memory better."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention_cem.surrogates.folds import within_slot_covariance
from attention_cem.surrogates.mixture import expected_log_density, within_component_scatter
from attention_cem.surrogates.seeding import greedy_plus_plus
from attention_cem.surrogates.slot_lookup import SlotState

if TYPE_CHECKING:
    from attention_cem.surrogates.slot_mixture import SlotMixtureCEM

_TRIES = 4  # a single try ends in a poor optimum now and then
RENEWED_ROWS = 128  # at a time: a thousand classes must not cost more than ten
_CHUNK = 256


@torch.no_grad()
def renew_slots(surrogate: SlotMixtureCEM, begin: int) -> int:
    """Try other slots in up to 128 rows from ``begin`` on, of a surrogate in evaluation mode; then renew its axes.

    A row is a class, or a fold of a class; folds of a class stay together.

    Returns:
        Where to begin next.
    """
    rows = surrogate.memory.max_classes * surrogate.memory.folds
    count = min(RENEWED_ROWS, rows)
    index = (begin + torch.arange(count, device=surrogate.seed.device)) % rows
    bank, valid = surrogate.memory.read(index, surrogate.calls)
    surrogate.slot_mean[index], surrogate.slot_share[index] = _best_slots(surrogate, bank, valid, index)
    if surrogate.rotated:
        _renew_axes(surrogate, rows)
    return (begin + count) % rows


def _renew_axes(surrogate: SlotMixtureCEM, rows: int) -> None:
    """Principal axes of the covariance within slots, pooled over all rows.

    In the axes of the samples themselves the smallest variances come out far too small: they are drawn towards the mean
    of all as if as many samples as there are axes had that one.
    """
    scatter, samples = torch.zeros_like(surrogate.basis), surrogate.pooled_variance.new_zeros(())
    for index in torch.arange(rows, device=surrogate.seed.device).split(_CHUNK):
        bank, valid = surrogate.memory.read(index, surrogate.calls)
        slots = SlotState(surrogate.slot_mean[index], surrogate.slot_share[index])
        assigned = surrogate.attend(bank, valid, slots)
        if surrogate.cross_fit:
            products, known = within_slot_covariance(bank, assigned)
        else:
            products, known = within_component_scatter(bank, assigned), valid.sum()
        scatter, samples = scatter + products, samples + known
    scale, axes = torch.linalg.eigh(scatter / samples.clamp_min(1))
    dims, count = scale.shape[-1], samples.reshape(*scale.shape[:-1], 1)
    scale = (count * scale + dims * scale.mean(-1, keepdim=True)) / (count + dims)
    surrogate.basis.copy_(axes.flip(-1))
    surrogate.pooled_variance.copy_(scale.flip(-1).clamp_min(0))


def _best_slots(surrogate: SlotMixtureCEM, bank: Tensor, valid: Tensor, index: Tensor) -> SlotState:
    slots = SlotState(surrogate.slot_mean[index], surrogate.slot_share[index])
    keys, equal = bank @ surrogate.key.T, torch.full_like(slots.share, 1 / surrogate.num_slots)
    (mean, share), kept = _settled(surrogate, bank, valid, slots)
    for attempt in range(_TRIES):
        seed, step = surrogate.seed + 1 + attempt, surrogate.calls + index[0]
        picked = greedy_plus_plus(keys, valid, surrogate.num_slots, seed, step)
        means = bank.gather(1, picked.unsqueeze(-1).expand(-1, -1, surrogate.feature_dim))
        other, tried = _settled(surrogate, bank, valid, SlotState(means, equal))
        better = tried > kept
        mean = torch.where(better[:, None, None], other.mean, mean)
        share, kept = torch.where(better[:, None], other.share, share), torch.maximum(tried, kept)
    return SlotState(mean, share)


def _settled(surrogate: SlotMixtureCEM, bank: Tensor, valid: Tensor, slots: SlotState) -> tuple[SlotState, Tensor]:
    """Slots after several rounds, and the log-likelihood (R,) of the class's memory under them."""
    for _ in range(4):
        slots, mixtures = surrogate.mixtures(bank, surrogate.attend(bank, valid, slots))
    likelihood = expected_log_density(surrogate.rotate(bank), None, mixtures, surrogate.noise_variance)
    return slots, (likelihood * valid).sum(-1)
