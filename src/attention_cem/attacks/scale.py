"""Where released features lie, and how loud they are: a client must not hide by moving, shrinking or drowning z.

Networks, searches and distances have numbers of their own. Features far from zero, of a very small or large spread, or
with values that are very much louder than what tells of the image, are read on a `Scale` that puts them where attacks
like them. It is linear and can be undone: nothing is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attention_cem.data import to_float

_USUAL_SPREAD = (0.01, 100.0)
_USUAL_OFFSET = 100.0  # units from zero
_LOUD = 100.0  # times the spread of the others
_OTHERS = (0.5, 0.1)  # which of the others: the one in the middle, or a quiet one, where most of them shout
_ROUNDING = 1e-7  # of a value in single precision
_HEARD = 1e-6  # of the loudest direction: what is quieter is its rounding
_MOST_CHANNELS = 2048
_MOST_VALUES = 2**25  # of the images that scales are tried on
_MOST_IMAGES, _LEAST_IMAGES = 1000, 20
_STRENGTHS = tuple(10.0**power for power in range(-4, 1))
_BETTER = 0.9


@dataclass(frozen=True, eq=False)
class Scale:
    """What readings are counted from and in.

    Args:
        origin: ``(*z)`` float64: 0, but where values lie far from it the mean of their channel, or, if they lie far
            from that too, of their coordinate. A mean of its own at every place would take from z what tells places
            apart, which a network of convolutions cannot put back.
        unit: ``(*z)`` float64, how far coordinates stray from their mean: the same for all but loud ones.
        mixing: ``(C, C)`` float64, symmetric: makes loud directions among the channels, which may be mixed into all of
            them, as quiet as the others; else None.
        unmixing: its inverse.
    """

    origin: Tensor
    unit: Tensor
    mixing: Tensor | None = None
    unmixing: Tensor | None = None

    def counted(self, reading: Tensor) -> Tensor:
        """A reading ``(N, *z)`` on this scale."""
        there = self.to(reading.device)
        values = (reading.double() - there.origin) / there.unit
        return (values if there.mixing is None else _mixed(values, there.mixing)).to(reading.dtype)

    def restored(self, counted: Tensor) -> Tensor:
        """The inverse of `counted`."""
        there, values = self.to(counted.device), counted.double()
        if there.unmixing is not None:
            values = _mixed(values, there.unmixing)
        return (values * there.unit + there.origin).to(counted.dtype)

    def to(self, device: torch.device) -> Scale:
        """The same on ``device``."""
        mixing, unmixing = (None if each is None else each.to(device) for each in (self.mixing, self.unmixing))
        return Scale(self.origin.to(device), self.unit.to(device), mixing, unmixing)


def scale_of(released: Tensor, images: Callable[[], Tensor]) -> Scale | None:
    """The scale of released features ``(draws, N, *z)``; None where they lie as networks and distances like it.

    What is loud may tell most, as brightness does. It is made quieter only where an attacker in closed form, who knows
    some of the ``images`` ``(N, C, H, W)``, asked for only then, recovers more of others from it so.

    >>> import torch
    >>> scale_of(torch.tensor([[[0.2], [0.8]]]), lambda: torch.zeros(2, 1, 1, 1)) is None
    True
    >>> scale = scale_of(torch.tensor([[[1000.0], [1002.0]]]), lambda: torch.zeros(2, 1, 1, 1))
    >>> scale.counted(torch.tensor([[1003.0]])), scale.restored(torch.tensor([[2.0]]))
    (tensor([[2.]]), tensor([[1003.]]))
    """
    chunks = released.flatten(0, 1).split(1024)  # features may fill the memory: no second copy of them all
    count = sum(map(len, chunks))
    mean = torch.stack([chunk.double().sum(0) for chunk in chunks]).sum(0) / count
    spread = (torch.stack([(chunk.double() - mean).square().sum(0) for chunk in chunks]).sum(0) / count).sqrt()
    alive = spread[spread > _ROUNDING * mean.abs()]
    if not len(alive) or not spread.isfinite().all():
        return None
    middle = _of_others(alive, 0.5)
    scale = _from_origin(mean, middle.expand_as(mean))
    usual = _USUAL_SPREAD[0] <= float(middle) <= _USUAL_SPREAD[1] and not scale.origin.any()
    best, error = scale, math.nan
    most = min(_MOST_IMAGES, _MOST_VALUES // mean.numel(), released.shape[1])
    if most >= _LEAST_IMAGES:
        some = torch.arange(most) * released.shape[1] // most  # of all classes, where images are listed by class
        z = released[0, some].double()
        for quieter in _quieter(mean, spread, alive, z):
            if math.isnan(error):
                x = to_float(images()[some]).flatten(1).double()
                error = _error_in_closed_form(scale.counted(z), x)
            found = _error_in_closed_form(quieter.counted(z), x)
            if found < _BETTER * error:
                best, error = quieter, found
    return None if usual and best is scale else best


def _from_origin(mean: Tensor, unit: Tensor) -> Scale:
    """The scale of coordinates ``(*z)`` with that mean and unit: what lies near zero stays where it is."""
    origin = torch.zeros_like(mean)
    of_channel = mean.flatten(1).mean(1).view(-1, *[1] * (mean.ndim - 1)) if mean.ndim > 1 else mean
    for nearer in (of_channel.expand_as(mean), mean):
        origin = torch.where((mean - origin).abs() > _USUAL_OFFSET * unit, nearer, origin)
    return Scale(origin, unit)


def _quieter(mean: Tensor, spread: Tensor, alive: Tensor, z: Tensor) -> Iterator[Scale]:
    """Scales on which what is loud beside others is as quiet as they are; none where nothing is."""
    for share in _OTHERS:
        usual = _of_others(alive, share)
        loud = spread > _LOUD * usual
        scale = _from_origin(mean, torch.where(loud, spread, usual))
        if loud.any():
            yield scale
        mixing = _mixing_of(scale.counted(z), share)
        if mixing is not None:
            yield replace(scale, mixing=mixing[0], unmixing=mixing[1])


def _mixing_of(values: Tensor, share: float) -> tuple[Tensor, Tensor] | None:
    """What `Scale` mixes channels of values ``(N, *z)`` with, and its inverse; None where no direction is loud."""
    by_channel = _channels_last(values - values.mean(0)).flatten(0, -2)
    if by_channel.shape[1] > _MOST_CHANNELS:
        return None
    variance, directions = torch.linalg.eigh(by_channel.T @ by_channel / len(by_channel))
    spread = variance.clamp_min(0).sqrt()
    heard = spread[spread > _HEARD * spread[-1]]
    if not len(heard):  # these images all have the same features, others have not
        return None
    usual = _of_others(heard, share)
    loud = spread > _LOUD * usual
    if not loud.any():
        return None
    unit = torch.where(loud, spread, usual)
    return (directions / unit) @ directions.T, (directions * unit) @ directions.T


def _error_in_closed_form(values: Tensor, pixels: Tensor) -> float:
    """Mean squared error of the ridge regression of pixels ``(N, P)`` on ``(N, *z)``, for every fifth image."""
    flat = values.flatten(1)
    held = torch.arange(len(flat)) % 5 == 4
    known, target = flat[~held] - flat[~held].mean(0), pixels[~held] - pixels[~held].mean(0)
    asked, wanted = flat[held] - flat[~held].mean(0), pixels[held] - pixels[~held].mean(0)
    alike, to_asked = known @ known.T, asked @ known.T
    size = alike.diagonal().mean().clamp_min(1e-30) * torch.eye(len(alike), dtype=alike.dtype)
    guesses = (to_asked @ torch.linalg.solve(alike + strength * size, target) for strength in _STRENGTHS)
    return min(float((guess - wanted).square().mean()) for guess in guesses)


def _of_others(spread: Tensor, share: float) -> Tensor:
    return spread.kthvalue(1 + int(share * (len(spread) - 1))).values


def _channels_last(values: Tensor) -> Tensor:
    """``(N, C, H, W)`` with its channels last; tokens ``(N, T, E)`` and plain values ``(N, D)`` have them there."""
    return values.movedim(1, -1) if values.ndim == 4 else values


def _mixed(values: Tensor, mixing: Tensor) -> Tensor:
    mixed = _channels_last(values) @ mixing
    return mixed.movedim(-1, 1) if values.ndim == 4 else mixed
