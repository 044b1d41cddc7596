"""Step sizes and the weight of the surrogate, as pure functions of how far training has come."""

from __future__ import annotations

import math
from collections.abc import Sequence

REFERENCE_LR = 1e-3
REFERENCE_SMALL_LR = 4.1e-4
_ONE_CYCLE_RISE = 0.25
_ONE_CYCLE_START = 0.04


def lr_factor(
    schedule: str,
    progress: float,
    epochs: int,
    *,
    milestones: Sequence[int] = (),
    milestone_factor: float = 0.2,
    warmup_epochs: float = 0.0,
) -> float:
    """Factor on the base step size.

    - ``constant``: 1;
    - ``cosine``: ½(1 + cos(π·t/T));
    - ``multistep``: milestone_factor to the power of the milestones passed, whole epochs counted;
    - ``one_cycle``: linear from 0.04 to 1 over the first quarter, then a cosine to 0.

    A warm-up multiplies any of them by t/warmup_epochs until it is over, starting from a small positive value.

    Args:
        schedule: one of the names above.
        progress: t, epochs done so far, with fractions: 0 at the first step.
        epochs: T.
        milestones: epochs after which ``multistep`` drops.
        milestone_factor: see above.
        warmup_epochs: length of the linear rise.

    >>> [round(lr_factor("multistep", t, 240, milestones=(60, 120)), 3) for t in (59.9, 60, 130)]
    [1.0, 0.2, 0.04]
    >>> round(lr_factor("cosine", 120, 240), 3)
    0.5
    """
    if schedule == "constant":
        factor = 1.0
    elif schedule == "cosine":
        factor = 0.5 * (1 + math.cos(math.pi * min(progress / epochs, 1.0)))
    elif schedule == "multistep":
        factor = milestone_factor ** sum(progress >= milestone for milestone in milestones)
    elif schedule == "one_cycle":
        factor = _one_cycle(min(progress / epochs, 1.0))
    else:
        raise ValueError(f"schedule must be constant, cosine, multistep or one_cycle, got {schedule!r}")
    if progress < warmup_epochs:
        # The first step must move, or it would be lost: rise from one hundredth.
        factor *= 0.01 + 0.99 * progress / warmup_epochs
    return factor


def lambd_weight(schedule: str, *, lr: float, active_epochs: int, ramp_epochs: int = 1) -> float:
    """w_lr, the factor on λ.

    - ``reference``: 1 if lr < 4.1e-4 else 1e-3/lr, as in the reference training;
    - ``constant``: 1;
    - ``ramp``: 1/ramp_epochs in the first active epoch, 2/ramp_epochs in the second, … then 1, whatever the lr.

    Args:
        schedule: one of the names above.
        lr: current step size of the client.
        active_epochs: how many epochs the surrogate has been active, the current one included (≥ 1).
        ramp_epochs: length of the ramp.

    >>> lambd_weight("reference", lr=0.05, active_epochs=1), lambd_weight("reference", lr=4e-4, active_epochs=1)
    (0.02, 1.0)
    >>> [lambd_weight("ramp", lr=0.05, active_epochs=n, ramp_epochs=4) for n in (1, 2, 4, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    if schedule == "reference":
        return 1.0 if lr < REFERENCE_SMALL_LR else REFERENCE_LR / lr
    if schedule == "constant":
        return 1.0
    if schedule == "ramp":
        return min(1.0, active_epochs / ramp_epochs)
    raise ValueError(f"lambd_schedule must be reference, constant or ramp, got {schedule!r}")


def _one_cycle(share: float) -> float:
    if share < _ONE_CYCLE_RISE:
        return _ONE_CYCLE_START + (1 - _ONE_CYCLE_START) * share / _ONE_CYCLE_RISE
    return 0.5 * (1 + math.cos(math.pi * (share - _ONE_CYCLE_RISE) / (1 - _ONE_CYCLE_RISE)))
