"""What an attacker makes of several releases of one image: one reading of them, the same in training and in use.

Gaussian noise: the mean tells all that the releases tell. Dropout shows a value as it is or not at all, so zeros are
left out of the mean. Laplace noise has heavy tails, so the median is nearer to the truth. Of anything else (pruning,
noise that depends on its input, a defence of one's own) the mean is taken: right on average, perhaps not the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from attention_cem.attacks.scale import Scale

Reading = Callable[[Tensor], Tensor]
"""Releases ``(draws, N, *z)`` → one reading ``(N, *z)``."""


def mean_of(releases: Tensor) -> Tensor:
    """The mean of the releases; of one release, bit by bit that release."""
    return releases.mean(0)


def on_scale(reading: Reading, scale: Scale, device: torch.device) -> Reading:
    """The same reading of releases on ``device``, on that scale."""
    there = scale.to(device)  # once: readings are made at every step
    return lambda releases: there.counted(reading(releases))


def mean_of_shown(releases: Tensor) -> Tensor:
    """The mean of the values that were shown; 0 where none was.

    >>> import torch
    >>> mean_of_shown(torch.tensor([[[2.0, 0.0]], [[0.0, 0.0]], [[4.0, 0.0]]]))
    tensor([[3., 0.]])
    """
    return releases.sum(0) / (releases != 0).sum(0).clamp_min(1)


def median_of(releases: Tensor) -> Tensor:
    """The median of the releases; of an even number, the mean of the middle two."""
    ordered = releases.sort(0).values
    draws = len(ordered)
    return (ordered[(draws - 1) // 2] + ordered[draws // 2]) / 2


def reading_against(defences: Iterable[Mapping[str, Any]]) -> Reading:
    """The reading that fits a defence, described as in the manifest of a challenge.

    >>> reading_against([{"name": "gaussian_noise", "sigma": 0.1}]).__name__
    'mean_of'
    >>> reading_against([{"name": "gaussian_noise", "sigma": 0.1}, {"name": "dropout", "p": 0.5}]).__name__
    'mean_of_shown'
    """
    acting = {str(each.get("name")): each for each in defences}
    if "local_dp" in acting:  # the last stage: its noise hides what was dropped
        return median_of if acting["local_dp"].get("mechanism") == "laplace" else mean_of
    if "top_k_pruning" in acting:
        return mean_of
    if "dropout" in acting:
        return mean_of_shown
    return median_of if "laplace_noise" in acting else mean_of
