"""Is the figure settled? The attack's error over effort, across all trained attacks of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attention_cem.attacks import CurvePoint
from attention_cem.attacks.receipts import CONVERGENCE_TOLERANCE

OVERRATED = 0.10
"""A short attack whose MSE lies this share above the worst case overrates the client's privacy."""


@dataclass(frozen=True)
class EffortVerdict:
    """Whether more effort still pays.

    Args:
        verdict: ``settled``, ``not settled``, or ``not judged`` when the budget is too small, or no attack fit, to call
            it settled.
        reason: one sentence.
        effort: cumulative effort (image visits × parameters) of the trained attacks, weakest first.
        best_mse: lowest validation MSE reached up to there.
    """

    verdict: str
    reason: str
    effort: tuple[float, ...]
    best_mse: tuple[float, ...]


def effort_verdict(curves: Sequence[Sequence[CurvePoint]], *, may_settle: bool, passing: bool = True) -> EffortVerdict:
    """Chain the curves of trained attacks, weakest first, and ask what the second half of the effort brought.

    Args:
        curves: validation MSE over effort of each attack; all on the same validation images.
        may_settle: whether the budget is thorough enough for the verdict "settled".
        passing: whether one of them has a passing receipt: where all are stuck, the curve is flat as well.

    >>> flat = [CurvePoint(1.0, 1, 0.020), CurvePoint(2.0, 2, 0.0199)]
    >>> effort_verdict([flat], may_settle=True).verdict
    'settled'
    >>> effort_verdict([flat, [CurvePoint(2.0, 1, 0.010)]], may_settle=True).verdict
    'not settled'
    """
    efforts: list[float] = []
    best: list[float] = []
    spent = 0.0
    for curve in curves:
        for point in curve:
            efforts.append(spent + point.effort)
            best.append(min(point.mse, best[-1]) if best else point.mse)
        spent = efforts[-1] if efforts else 0.0
    if not efforts:
        return EffortVerdict("not judged", "no trained attack was run", (), ())
    half = [mse for effort, mse in zip(efforts, best, strict=True) if effort <= efforts[-1] / 2]
    before = half[-1] if half else best[0]
    change = (best[-1] - before) / before if before > 0 else 0.0
    told = f"the second half of the attack effort changed the best validation MSE by {100 * change:.1f} %"
    if change < -CONVERGENCE_TOLERANCE:
        verdict = "not settled"
        told += f", more than {100 * CONVERGENCE_TOLERANCE:.0f} %: more effort will find more"
    elif may_settle and passing:
        verdict = "settled"
    elif may_settle:
        verdict = "not judged"
        told += "; no inverter has a passing receipt, so that this settles nothing"
    else:
        verdict = "not judged"
        told += "; only a thorough budget (wide inverters, long training, restarts) can call it settled"
    return EffortVerdict(verdict, told, tuple(efforts), tuple(best))
