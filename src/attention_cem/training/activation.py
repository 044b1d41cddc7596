"""When the surrogate takes part in training."""

from __future__ import annotations

from enum import Enum


class SurrogateMode(Enum):
    """What a step does with the surrogate."""

    OFF = "off"
    """It is not called: none is chosen, or it has not been fitted yet."""
    OBSERVE = "observe"
    """It is called without a gradient, so that its memory and its monitors follow; its loss is not used."""
    ACTIVE = "active"
    """Its gradient is merged at the cut."""


def first_active_epoch(warmup_epochs: int) -> int:
    """The first epoch (counted from 1) that uses rob_loss: after the warm-up, and never the first of all.

    The first epoch initialises centres: features of an untrained client say nothing about the classes.

    >>> [first_active_epoch(warmup) for warmup in (0, 1, 3)]
    [2, 2, 4]
    """
    return max(warmup_epochs, 1) + 1


def surrogate_mode(
    epoch: int, *, chosen: bool, lambd: float, warmup_epochs: int, needs_fit: bool = False
) -> SurrogateMode:
    """Active when: surrogate chosen ∧ not in the first epoch ∧ λ > 0 ∧ epoch > warm-up.

    Args:
        epoch: counted from 1.
        chosen: whether there is a surrogate.
        lambd: λ.
        warmup_epochs: attention_warmup_epochs.
        needs_fit: whether the surrogate must see the features of an epoch before its first call.

    >>> surrogate_mode(3, chosen=True, lambd=16.0, warmup_epochs=3)
    <SurrogateMode.OBSERVE: 'observe'>
    >>> surrogate_mode(4, chosen=True, lambd=16.0, warmup_epochs=3)
    <SurrogateMode.ACTIVE: 'active'>
    """
    if epoch < 1:
        raise ValueError(f"epochs are counted from 1, got {epoch}")
    if not chosen or (needs_fit and epoch == 1):
        return SurrogateMode.OFF
    if lambd > 0 and epoch >= first_active_epoch(warmup_epochs):
        return SurrogateMode.ACTIVE
    return SurrogateMode.OBSERVE


def active_epochs(epoch: int, warmup_epochs: int) -> int:
    """How many epochs the surrogate has been active in epoch ``epoch``, that one included; 0 before.

    >>> [active_epochs(epoch, warmup_epochs=3) for epoch in (3, 4, 6)]
    [0, 1, 3]
    """
    return max(0, epoch - first_active_epoch(warmup_epochs) + 1)
