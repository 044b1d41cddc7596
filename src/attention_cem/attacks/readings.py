"""What an attacker makes of several releases of one image: one reading of them, the same in training and in use.

Gaussian noise: the mean tells all that the releases tell. Dropout shows a value as it is or not at all, so zeros are
left out of the mean. Laplace noise has heavy tails, so the median is nearer to the truth. Of anything else (pruning,
noise that depends on its input, a defence of one's own) the mean is taken: right on average, perhaps not the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

Reading = Callable[[Tensor], Tensor]
"""Releases ``(draws, N, *z)`` → one reading ``(N, *z)``."""
_USUAL_SPREAD = (0.01, 100.0)
_USUAL_OFFSET = 100.0  # units from zero


def mean_of(releases: Tensor) -> Tensor:
    """The mean of the releases; of one release, bit by bit that release."""
    return releases.mean(0)


@dataclass(frozen=True, eq=False)
class Scale:
    """Where released values lie: what readings are counted from and in.

    Args:
        origin: ``(*z)`` float64, the mean of each coordinate.
        unit: how far a coordinate strays from its mean.
    """

    origin: Tensor
    unit: float

    def counted(self, reading: Tensor) -> Tensor:
        """A reading ``(N, *z)`` from the origin, in the unit."""
        return ((reading.double() - self.origin.to(reading.device)) / self.unit).to(reading.dtype)

    def restored(self, counted: Tensor) -> Tensor:
        """The inverse of `counted`."""
        return (counted.double() * self.unit + self.origin.to(counted.device)).to(counted.dtype)


def scale_of(released: Tensor) -> Scale | None:
    """The scale of released features ``(draws, N, *z)``; None where they lie as networks and distances like it.

    >>> import torch
    >>> scale_of(torch.tensor([[[0.2], [0.8]]])) is None
    True
    >>> scale = scale_of(torch.tensor([[[1000.0], [1002.0]]]))
    >>> scale.counted(torch.tensor([[1003.0]])), scale.restored(torch.tensor([[2.0]]))
    (tensor([[2.]]), tensor([[1003.]]))
    """
    chunks = released.flatten(0, 1).split(1024)  # features may fill the memory: no second copy of them all
    origin = torch.stack([chunk.double().sum(0) for chunk in chunks]).sum(0) / sum(map(len, chunks))
    squared = torch.stack([(chunk.double() - origin).square().sum() for chunk in chunks]).sum()
    unit = math.sqrt(float(squared) / released.numel())
    if unit == 0 or not math.isfinite(unit):
        return None
    usual = _USUAL_SPREAD[0] <= unit <= _USUAL_SPREAD[1] and float(origin.abs().max()) <= _USUAL_OFFSET * unit
    return None if usual else Scale(origin, unit)


def on_scale(reading: Reading, scale: Scale, device: torch.device) -> Reading:
    """The same reading of releases on ``device``, from the scale's origin and in its unit."""
    there = replace(scale, origin=scale.origin.to(device))  # once: readings are made at every step
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
