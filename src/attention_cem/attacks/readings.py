"""What an attacker makes of several releases of one image: one reading of them, the same in training and in use.

Gaussian noise: the mean tells all that the releases tell. Dropout shows a value as it is or not at all, so zeros are
left out of the mean. Laplace noise has heavy tails, so the median is nearer to the truth. Of anything else (pruning,
noise that depends on its input, a defence of one's own) the mean is taken: right on average, perhaps not the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Reading = Callable[[Tensor], Tensor]
"""Releases ``(draws, N, *z)`` → one reading ``(N, *z)``."""
_USUAL_SPREAD = (0.01, 100.0)
_USUAL_OFFSET = 100.0  # units from zero
_UNEVEN = 100.0  # times as loud or as quiet as the coordinate in the middle
_ROUNDING = 1e-7  # of a value in single precision
_PEAK = 10.0  # units that a coordinate which is seldom other than its mean may stray


def mean_of(releases: Tensor) -> Tensor:
    """The mean of the releases; of one release, bit by bit that release."""
    return releases.mean(0)


@dataclass(frozen=True, eq=False)
class Scale:
    """Where released values lie: what readings are counted from and in.

    Args:
        origin: ``(*z)`` float64: 0, but where values lie far from it the mean of their channel, or, if they lie far
            from that too, of their coordinate. A mean of its own at every place would take from z what tells places
            apart, which a network of convolutions cannot put back.
        unit: ``(*z)`` float64, how far coordinates stray from their mean: the same for all but those that are very loud
            or very quiet beside the others.
    """

    origin: Tensor
    unit: Tensor

    def counted(self, reading: Tensor) -> Tensor:
        """A reading ``(N, *z)`` from the origin, in the unit."""
        there = self.to(reading.device)
        return ((reading.double() - there.origin) / there.unit).to(reading.dtype)

    def restored(self, counted: Tensor) -> Tensor:
        """The inverse of `counted`."""
        there = self.to(counted.device)
        return (counted.double() * there.unit + there.origin).to(counted.dtype)

    def to(self, device: torch.device) -> Scale:
        """The same on ``device``."""
        return Scale(self.origin.to(device), self.unit.to(device))


def scale_of(released: Tensor) -> Scale | None:
    """The scale of released features ``(draws, N, *z)``; None where they lie as networks and distances like it.

    >>> import torch
    >>> scale_of(torch.tensor([[[0.2], [0.8]]])) is None
    True
    >>> scale = scale_of(torch.tensor([[[1000.0, 0.0, 3.0], [1002.0, 1e6, 5.0]]]))
    >>> scale.counted(torch.tensor([[1003.0, 1e6, 3.0]])), scale.restored(torch.tensor([[2.0, 0.0, 0.0]]))
    (tensor([[2., 2., 3.]]), tensor([[1003.,    0.,    0.]]))
    """
    chunks = released.flatten(0, 1).split(1024)  # features may fill the memory: no second copy of them all
    count = sum(map(len, chunks))
    mean = torch.stack([chunk.double().sum(0) for chunk in chunks]).sum(0) / count
    spread = (torch.stack([(chunk.double() - mean).square().sum(0) for chunk in chunks]).sum(0) / count).sqrt()
    alive = spread > _ROUNDING * mean.abs()
    if not alive.any() or not spread.isfinite().all():
        return None
    middle = spread[alive].median()
    uneven = alive & ((spread > _UNEVEN * middle) | (spread < middle / _UNEVEN))
    peak = torch.stack([(chunk.double() - mean).abs().amax(0) for chunk in chunks]).amax(0)
    unit = torch.where(uneven, spread.maximum(peak / _PEAK), middle)
    origin = _origin_of(mean, _USUAL_OFFSET * unit)
    usual = _USUAL_SPREAD[0] <= float(middle) <= _USUAL_SPREAD[1] and not uneven.any() and not origin.any()
    return None if usual else Scale(origin, unit)


def _origin_of(mean: Tensor, far: Tensor) -> Tensor:
    """Of coordinates ``(*z)`` with that mean, see `Scale`: what lies nearer than ``far`` stays where it is."""
    origin = torch.zeros_like(mean)
    of_channel = mean.flatten(1).mean(1).view(-1, *[1] * (mean.ndim - 1)) if mean.ndim > 1 else mean
    for nearer in (of_channel.expand_as(mean), mean):
        origin = torch.where((mean - origin).abs() > far, nearer, origin)
    return origin


def on_scale(reading: Reading, scale: Scale, device: torch.device) -> Reading:
    """The same reading of releases on ``device``, from the scale's origin and in its unit."""
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
