"""Where a run stands, and the schedule values that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from attention_cem.training.activation import SurrogateMode, active_epochs, first_active_epoch, surrogate_mode
from attention_cem.training.config import Config
from attention_cem.training.schedules import lambd_weight, lr_factor


@dataclass(frozen=True)
class Position:
    """The next step: ``epoch`` and ``batch`` counted from 0; ``steps`` optimiser steps were done before it."""

    epoch: int = 0
    batch: int = 0
    steps: int = 0

    def after_step(self) -> Position:
        """One step on, within the epoch."""
        return replace(self, batch=self.batch + 1, steps=self.steps + 1)

    def next_epoch(self) -> Position:
        """The start of the following epoch."""
        return Position(self.epoch + 1, 0, self.steps)


@dataclass(frozen=True)
class Best:
    """The best validation accuracy so far and its epoch, counted from 1."""

    accuracy: float = -1.0
    epoch: int = 0


@dataclass(frozen=True)
class StepValues:
    """What the schedules say for one step."""

    lr: float
    estimator_lr: float
    lambd: float


def step_values(config: Config, position: Position, steps_per_epoch: int, mode: SurrogateMode) -> StepValues:
    """Step sizes and λ·w_lr (0 unless the surrogate is active) for the step at ``position``."""
    train, surrogate = config.train, config.surrogate
    progress = position.epoch + position.batch / steps_per_epoch
    lr = train.lr * lr_factor(
        train.schedule,
        progress,
        train.epochs,
        milestones=train.milestones,
        milestone_factor=train.milestone_factor,
        warmup_epochs=train.lr_warmup_epochs,
    )
    estimator_lr = surrogate.lr * lr_factor(
        surrogate.lr_schedule,
        progress,
        train.epochs,
        milestones=train.milestones,
        milestone_factor=train.milestone_factor,
    )
    if mode is not SurrogateMode.ACTIVE:
        return StepValues(lr, estimator_lr, 0.0)
    weight = lambd_weight(
        surrogate.lambd_schedule,
        lr=lr,
        active_epochs=active_epochs(position.epoch + 1, surrogate.attention_warmup_epochs),
        ramp_epochs=surrogate.ramp_epochs,
    )
    return StepValues(lr, estimator_lr, surrogate.lambd * weight)


def mode_at(config: Config, epoch: int, *, needs_fit: bool) -> SurrogateMode:
    """What the steps of an epoch (counted from 0) do with the surrogate."""
    return surrogate_mode(
        epoch + 1,
        chosen=config.surrogate.name != "none",
        lambd=config.surrogate.lambd,
        warmup_epochs=config.surrogate.attention_warmup_epochs,
        needs_fit=needs_fit,
    )


def first_counted_epoch(config: Config) -> int:
    """The first epoch (from 1) whose weights may be kept as the best: from there on λ·w_lr keeps its full strength.

    Validation accuracy is highest before the surrogate acts: weights of that time would be kept, and would leak as if
    there were no defence. Where λ is tied to the step size that time is long: published, λ is whole after 180 epochs of
    240. Full strength is λ, or what λ·w_lr is at the end where that is less. Where the training ends before the
    surrogate acts, its last epoch counts.
    """
    epochs, surrogate = config.train.epochs, config.surrogate
    if surrogate.lambd == 0:
        return 1
    active = range(first_active_epoch(surrogate.attention_warmup_epochs), epochs + 1)
    strengths = [step_values(config, Position(epoch - 1), 1, SurrogateMode.ACTIVE).lambd for epoch in active]
    if not strengths:
        return epochs
    full = min(surrogate.lambd, strengths[-1])
    weaker = [epoch for epoch, strength in zip(active, strengths, strict=True) if strength < full * (1 - 1e-9)]
    return min(epochs, weaker[-1] + 1) if weaker else active[0]


def position_facts(position: Position, best: Best, seconds: float) -> dict[str, Any]:
    """A position as the plain facts of a checkpoint."""
    return {
        "epoch": position.epoch,
        "batch": position.batch,
        "steps": position.steps,
        "best_accuracy": best.accuracy,
        "best_epoch": best.epoch,
        "seconds": seconds,
    }


def position_from_facts(facts: dict[str, Any]) -> tuple[Position, Best, float]:
    """The inverse of `position_facts`.

    Raises:
        ValueError: facts of another kind.

    >>> position_from_facts(position_facts(Position(1, 2, 3), Best(0.5, 1), 4.0))
    (Position(epoch=1, batch=2, steps=3), Best(accuracy=0.5, epoch=1), 4.0)
    """
    try:
        position = Position(int(facts["epoch"]), int(facts["batch"]), int(facts["steps"]))
        best, seconds = Best(float(facts["best_accuracy"]), int(facts["best_epoch"])), float(facts["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"where the run stood cannot be read: {type(error).__name__} {error}") from None
    if min(position.epoch, position.batch, position.steps, best.epoch) < 0 or not math.isfinite(seconds):
        raise ValueError(f"a run cannot stand at {position} with {best} after {seconds} seconds")
    return position, best, seconds
