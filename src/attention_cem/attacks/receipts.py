"""Proof that an attack was given a fair chance: its curve, and whether more training would have helped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

CONVERGENCE_TOLERANCE = 0.02
"""More effort that lowers the MSE by no more than this share is no longer worth it: the attack has converged."""


SHORT_OF_IMAGES = 0.15
"""A network whose MSE is lower by more than this share on the images it was trained on learned them by heart."""


@dataclass(frozen=True)
class CurvePoint:
    """The attack's error on its own validation images after some effort.

    Args:
        effort: image visits × parameters of the attacking network so far (steps × images for optimisation).
        epoch: epochs (or optimisation steps) so far.
        mse: validation MSE of the network as it is at this point.
    """

    effort: float
    epoch: int
    mse: float


@dataclass(frozen=True)
class Receipt:
    """What an attack did and how far it got, on the attacker's own data.

    Args:
        curve: validation MSE over effort.
        converged: whether more effort would change the MSE by no more than 2 %; ``reason`` says how this was found.
        reason: one sentence.
        train_mse: MSE on images the attack was fitted to.
        validation_mse: MSE on the attack's own validation images, at the epoch it chose.
        epochs: epochs or steps run in all.
        parameters: trainable numbers of the attacking network; 0 if it has none.
        seconds: wall-clock time.
        train_test_gap: test MSE − train MSE; known once the answers were scored.
        calibrated: whether the same attack passed on the calibration clients; None if not tried.
        calibration: the figures behind ``calibrated``.
        kept_start: the earlier attack whose result it hands back unchanged; empty if it found something of its own.
    """

    curve: tuple[CurvePoint, ...]
    converged: bool
    reason: str
    train_mse: float
    validation_mse: float
    epochs: int = 0
    parameters: int = 0
    seconds: float = 0.0
    train_test_gap: float | None = None
    calibrated: bool | None = None
    calibration: dict[str, Any] = field(default_factory=dict)
    kept_start: str = ""

    @property
    def passes(self) -> bool:
        """Converged, calibrated, with a result of its own: its figure may stand for what an attacker can do."""
        return self.converged and self.calibrated is True and not self.kept_start

    @property
    def by_heart(self) -> float:
        """By what share the MSE of a trained network is lower on the images it was trained on than on others.

        >>> round(Receipt((), True, "", train_mse=0.02, validation_mse=0.025, parameters=10).by_heart, 3)
        0.2
        """
        return (
            max(0.0, 1 - self.train_mse / self.validation_mse) if self.parameters and self.validation_mse > 0 else 0.0
        )

    def with_scores(self, test_mse: float) -> Receipt:
        """The receipt with the train–test gap filled in."""
        return replace(self, train_test_gap=test_mse - self.train_mse)

    def to_plain(self) -> dict[str, Any]:
        """Plain data for JSON; the curve as lists of effort, epoch and MSE."""
        plain = asdict(self)
        plain["curve"] = {
            "effort": [point.effort for point in self.curve],
            "epoch": [point.epoch for point in self.curve],
            "mse": [point.mse for point in self.curve],
        }
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Receipt:
        """The inverse of :meth:`to_plain`."""
        curve = plain["curve"]
        points = zip(curve["effort"], curve["epoch"], curve["mse"], strict=True)
        return cls(**{**plain, "curve": tuple(CurvePoint(*point) for point in points)})


def kept_start_reason(start: str) -> str:
    """What a receipt says of an attack that refined the result of ``start`` and ended where it began.

    >>> kept_start_reason("inverter")
    'kept its start: refining lowered no validation MSE; no evidence beyond inverter'
    """
    return f"kept its start: refining lowered no validation MSE; no evidence beyond {start}"


def probe_verdict(before: float, after: float, probe_epochs: int) -> tuple[bool, str]:
    """Judge convergence by what extra training with a fresh learning rate brought.

    A schedule that ends at learning rate zero flattens every curve, converged or not; so the tail of the curve is
    no evidence, and the network is trained on with the rate turned up again.

    >>> probe_verdict(0.0200, 0.0199, 10)
    (True, '10 more epochs from a restarted learning rate changed the validation MSE by -0.5 % (limit 2 %)')
    >>> probe_verdict(0.0200, 0.0150, 10)[0]
    False
    """
    change = (min(after, before) - before) / before if before > 0 else 0.0
    reason = (
        f"{probe_epochs} more epochs from a restarted learning rate changed the validation MSE by "
        f"{100 * change:.1f} % (limit {100 * CONVERGENCE_TOLERANCE:.0f} %)"
    )
    return change >= -CONVERGENCE_TOLERANCE, reason


def tail_verdict(errors: Sequence[float]) -> tuple[bool, str]:
    """Judge an optimisation with a constant step size by its tail: what did the last quarter of the steps bring?

    >>> tail_verdict([0.08, 0.02, 0.0101, 0.0100])
    (True, 'the last quarter of the steps changed the best validation MSE by -1.0 % (limit 2 %)')
    >>> tail_verdict([0.08, 0.06, 0.04, 0.02])[0]
    False
    """
    if not errors:
        raise ValueError("a verdict needs at least one point of the curve")
    start = max(1, len(errors) - max(1, len(errors) // 4))
    before, after = min(errors[:start]), min(errors)
    change = (after - before) / before if before > 0 else 0.0
    reason = (
        f"the last quarter of the steps changed the best validation MSE by {100 * change:.1f} % "
        f"(limit {100 * CONVERGENCE_TOLERANCE:.0f} %)"
    )
    return change >= -CONVERGENCE_TOLERANCE, reason
