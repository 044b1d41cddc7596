from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from attention_cem.attacks import ClassMeanAttack, CurvePoint, InverterAttack, Receipt
from attention_cem.auditing.audit_files import FinishedAttack
from attention_cem.auditing.calibration import _judged
from attention_cem.auditing.effort import effort_verdict
from attention_cem.auditing.grids import image_grid
from attention_cem.auditing.scores import Scores
from attention_cem.auditing.verdicts import attack_entries, beaten_by_baseline, headline, short_attack, status_of


def entry(name: str, mse: float, status: str = "passed") -> dict:
    return {"name": name, "mse": mse, "ci95": [mse, mse], "psnr": 1.0, "ssim": 0.1, "status": status, "images": 5}


def finished(
    name: str,
    validation_mse: float,
    beats_floor: bool = False,
    errors: Sequence[float] = (1.0, 1.0, 1.0),
    positions: Sequence[int] | None = None,
) -> FinishedAttack:
    receipt = Receipt(
        (CurvePoint(1.0, 1, validation_mse),), True, "", 0.1, validation_mse,
        calibrated=True, calibration={"beats_floor": beats_floor},
    )  # fmt: skip
    scores = Scores(torch.tensor(errors), torch.ones(len(errors)), None)
    rebuilt = None if positions is None else torch.tensor(positions)
    return FinishedAttack(name, scores, receipt, torch.zeros(1, 3, 4, 4, dtype=torch.uint8), None, {}, {}, rebuilt)


def test_headline__is_the_lowest_mse_and_never_above_what_was_measured() -> None:
    found = headline([entry("a", 0.03), entry("b", 0.02)], ["a", "b"])
    assert found is not None and (found["attack"], found["status"]) == ("b", "passed")


def test_headline__an_under_trained_attack_that_does_better_takes_its_place_and_is_marked() -> None:
    found = headline([entry("a", 0.03), entry("b", 0.02, "under-trained")], ["a", "b"])
    assert found is not None and (found["attack"], found["status"]) == ("b", "under-trained")
    weaker = headline([entry("a", 0.03), entry("b", 0.04, "under-trained")], ["a", "b"])
    assert weaker is not None and (weaker["attack"], weaker["status"]) == ("a", "passed")


def test_headline__an_unaware_attack_never_weakens_the_report() -> None:
    aware, unaware = entry("inverter", 0.02), entry("inverter_unaware", 0.05)
    both, alone = headline([unaware, aware], ["inverter"]), headline([aware], ["inverter"])
    assert both is not None and alone is not None and both["mse"] == alone["mse"]


def test_headline__a_miscalibrated_attack_never_counts() -> None:
    found = headline([entry("a", 0.03), entry("cheat", 0.0, "miscalibrated")], ["a", "cheat"])
    assert found is not None and found["attack"] == "a"
    assert headline([entry("cheat", 0.0, "miscalibrated")], ["cheat"]) is None
    assert status_of(finished("cheat", 0.1, beats_floor=True)) == "miscalibrated"


def test_headline__an_attack_that_kept_its_start_never_counts() -> None:
    """Rounding alone must not make it the worst case, nor does it stand in for the receipt of the attack it repeats."""
    start, repeat = entry("inverter", 0.03), entry("gan", 0.0299999, "kept its start")
    found = headline([start, repeat], ["inverter", "gan"])
    assert found is not None and (found["attack"], found["status"]) == ("inverter", "passed")
    unproven = headline([entry("inverter", 0.03, "under-trained"), repeat], ["inverter", "gan"])
    assert unproven is not None and (unproven["attack"], unproven["status"]) == ("inverter", "under-trained")
    refined = finished("gan", 0.1)
    assert status_of(refined) == "passed"
    refined = replace(refined, receipt=replace(refined.receipt, kept_start="inverter"))
    assert status_of(refined) == "kept its start"


def test_headline__baselines_alone_are_no_fair_attacker() -> None:
    found = headline([entry("class_mean", 0.03), entry("inverter", 0.05, "under-trained")], ["inverter"])
    assert found is not None and found["status"] == "under-trained"


def test_headline__attacks_are_compared_on_the_images_all_of_them_rebuilt() -> None:
    """A search that took the easy images only must not stand for the worst case."""
    inverter = finished("inverter", 0.1, errors=(0.01, 0.05, 0.01, 0.05))
    search = finished("search", 0.1, errors=(0.02, 0.02), positions=(0, 2))
    entries = attack_entries([inverter, search])
    assert entries[1]["mse"] < entries[0]["mse"] == pytest.approx(0.03)
    assert [each["compared_mse"] for each in entries] == pytest.approx([0.01, 0.02])
    found = headline(entries, ["inverter", "search"])
    assert found is not None and (found["attack"], found["images"]) == ("inverter", 4)
    assert (found["mse"], found["compared_mse"]) == pytest.approx((0.03, 0.01))


def test_headline__attacks_on_all_images_are_compared_on_all_of_them() -> None:
    """That a search rebuilt fewer must not decide between two inverters."""
    large = finished("large", 0.1, errors=(0.05, 0.01, 0.05, 0.01))
    inverter = finished("inverter", 0.1, errors=(0.01, 0.09, 0.01, 0.09))
    search = finished("search", 0.1, errors=(0.06, 0.06), positions=(0, 2))
    found = headline(attack_entries([inverter, large, search]), ["inverter", "large", "search"])
    assert found is not None and (found["attack"], found["mse"]) == ("large", pytest.approx(0.03))
    strong = finished("search", 0.1, errors=(0.04, 0.04), positions=(0, 2))
    found = headline(attack_entries([inverter, large, strong]), ["inverter", "large", "search"])
    assert found is not None and found["attack"] == "search"


def test_headline__a_miscalibrated_attack_does_not_choose_the_images() -> None:
    cheat = finished("cheat", 0.1, beats_floor=True, errors=(0.0,), positions=(3,))
    entries = attack_entries([finished("a", 0.1, errors=(0.1, 0.3)), cheat])
    assert entries[0]["compared_mse"] == pytest.approx(0.2) and entries[1]["compared_mse"] is None
    assert attack_entries([cheat])[0]["compared_mse"] is None


def test_headline__attacks_without_an_image_in_common_are_compared_by_what_each_has() -> None:
    entries = attack_entries(
        [finished("a", 0.1, errors=(0.3,), positions=(0,)), finished("b", 0.1, errors=(0.2,), positions=(1,))]
    )
    found = headline(entries, ["a", "b"])
    assert found is not None and (found["attack"], found["compared_mse"]) == ("b", pytest.approx(0.2))


def test_short_attack__is_compared_on_the_images_both_rebuilt() -> None:
    short = finished("inverter_short", 0.1, errors=(0.02, 0.06))
    search = finished("search", 0.1, errors=(0.019,), positions=(0,))
    entries = attack_entries([short, search])
    names = ["inverter_short", "search"]
    told = short_attack(entries, names, headline(entries, names))
    assert told is not None and not told["overrates"] and told["mse"] == pytest.approx(0.02)


def test_beaten_by_baseline__a_plateau_above_a_baseline_is_not_convergence() -> None:
    attacks = {"class_mean": ClassMeanAttack(), "stuck": InverterAttack(), "fine": InverterAttack()}
    judged = beaten_by_baseline(
        [finished("class_mean", 0.05), finished("stuck", 0.06), finished("fine", 0.05)], attacks
    )
    assert [each.receipt.converged for each in judged] == [True, False, True]
    assert "class_mean reaches 0.05" in judged[1].receipt.reason


def test_short_attack__speaks_only_when_the_difference_is_large() -> None:
    worst = entry("inverter", 0.02)
    names = ["inverter_short", "inverter"]
    assert short_attack([worst], names, worst) is None
    assert short_attack([entry("inverter_short", 0.03), entry("class_mean", 0.02)], names[:1], worst) is None
    mild = short_attack([entry("inverter_short", 0.021), worst], names, worst)
    strong = short_attack([entry("inverter_short", 0.03), worst], names, worst)
    assert mild is not None and strong is not None
    assert not mild["overrates"] and strong["overrates"] and "50 %" in strong["text"]


def test_effort_verdict__needs_a_thorough_budget_to_call_it_settled() -> None:
    flat = [CurvePoint(float(step), step, 0.02) for step in range(1, 9)]
    falling = [CurvePoint(float(step), step, 0.02 / step) for step in range(1, 9)]
    assert effort_verdict([flat], may_settle=True).verdict == "settled"
    assert effort_verdict([flat], may_settle=False).verdict == "not judged"
    assert effort_verdict([falling], may_settle=True).verdict == "not settled"
    assert effort_verdict([], may_settle=True).verdict == "not judged"
    stuck = effort_verdict([flat], may_settle=True, passing=False)
    assert stuck.verdict == "not judged" and "no inverter has a passing receipt" in stuck.reason
    chained = effort_verdict([flat, falling], may_settle=True)
    assert chained.effort[-1] == 16.0 and chained.best_mse[7] == 0.02


@pytest.mark.parametrize(
    ("psnr", "constant", "passed", "beats"),
    [(35, 0.06, True, False), (25, 0.06, False, False), (35, 0.05, False, True), (35, 0.09, False, False)],
)
def test_calibration__both_clients_must_come_out_right(psnr: float, constant: float, passed: bool, beats: bool) -> None:
    found = _judged(True, psnr, 10 ** (-psnr / 10), constant, 0.06)
    assert (found.passed, found.beats_floor) == (passed, beats)


def test_image_grid__places_pictures_and_leaves_gaps_white() -> None:
    grid = image_grid([torch.zeros(3, 1, 64, 64), torch.ones(2, 3, 64, 64)])
    assert grid.shape == (2 * 64 + 6, 3 * 64 + 8, 3)
    assert bool((grid[0] == 255).all()) and bool((grid[2:66, 2:66] == 0).all())
    with pytest.raises(ValueError, match="rows of images"):
        image_grid([])
