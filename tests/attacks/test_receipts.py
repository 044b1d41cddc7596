from __future__ import annotations

import json

import pytest

from attention_cem.attacks import CurvePoint, Receipt
from attention_cem.attacks.receipts import probe_verdict, tail_verdict


def receipt(**changes: object) -> Receipt:
    fields = {"curve": (CurvePoint(1.0, 1, 0.5),), "converged": True, "reason": "", "train_mse": 0.1}
    return Receipt(**{**fields, "validation_mse": 0.2, **changes})  # type: ignore[arg-type]


def test_receipt__survives_json() -> None:
    original = receipt(calibrated=True, calibration={"floor_mse": 0.1})
    assert Receipt.from_plain(json.loads(json.dumps(original.to_plain()))) == original


@pytest.mark.parametrize(
    ("converged", "calibrated", "passes"),
    [(True, True, True), (False, True, False), (True, False, False), (True, None, False)],
)
def test_receipt__passes_only_when_converged_and_calibrated(
    converged: bool, calibrated: bool | None, passes: bool
) -> None:
    assert receipt(converged=converged, calibrated=calibrated).passes is passes
    assert not receipt(converged=converged, calibrated=calibrated, kept_start="inverter").passes


def test_receipt__one_stored_before_kept_start_was_told_is_still_read() -> None:
    plain = receipt(calibrated=True).to_plain()
    del plain["kept_start"]
    assert Receipt.from_plain(plain) == receipt(calibrated=True)


def test_receipt__gap_is_test_minus_train() -> None:
    assert receipt().with_scores(0.3).train_test_gap == pytest.approx(0.2)


def test_verdicts__two_percent_is_the_limit() -> None:
    assert probe_verdict(1.0, 0.981, 5)[0] and not probe_verdict(1.0, 0.979, 5)[0]
    assert probe_verdict(1.0, 1.5, 5)[0]  # a probe that only made it worse changes nothing: the best is kept
    assert tail_verdict([1.0, 0.981])[0] and not tail_verdict([1.0, 0.979])[0]
    with pytest.raises(ValueError, match="at least one"):
        tail_verdict([])
