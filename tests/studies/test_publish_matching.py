import math

import numpy as np
import pytest
import scipy.stats
from studies.publish_matching import (
    FROM_OVERLAP,
    FROM_STUDY,
    NotComparableError,
    Side,
    match,
)

SOUND: Side = {s: [(0.80, 0.04 + s / 1000), (0.90, 0.02 + s / 1000)] for s in (0, 1, 2)}
NOISE: Side = {s: [(0.82, 0.02), (0.92, 0.01 + s / 1000)] for s in (0, 1, 2)}


def oracle(side: Side, seed: int, accuracy: float) -> float:
    points = sorted(side[seed])
    return float(np.interp(accuracy, [a for a, _ in points], [m for _, m in points]))


def test_match__equals_interpolation_and_t_interval_of_other_libraries() -> None:
    found = match(SOUND, NOISE, accuracies=[0.85])
    logs = [math.log(oracle(SOUND, s, 0.85) / oracle(NOISE, s, 0.85)) for s in (0, 1, 2)]
    low, high = scipy.stats.t.interval(0.95, 2, loc=np.mean(logs), scale=scipy.stats.sem(logs))
    assert found.decisive.gain == pytest.approx(math.exp(np.mean(logs)), rel=1e-9)
    assert found.decisive.ci95 == pytest.approx((math.exp(low), math.exp(high)), rel=1e-6)
    assert (found.chosen, found.seeds, found.left_out) == (FROM_STUDY, (0, 1, 2), {})
    assert found.overlap == (0.82, 0.90)


def test_match__by_hand() -> None:
    """At 85 % seed 0 of the one is halfway from .04 to .02, of the other three tenths of the way from .02 to .01."""
    one = match({0: SOUND[0]}, {0: NOISE[0]}, accuracies=[0.85]).decisive
    assert one.matched.mse_first == pytest.approx((0.030,)) and one.matched.mse_second == pytest.approx((0.017,))
    assert one.gain == pytest.approx(0.030 / 0.017)


def test_match__an_accuracy_that_is_not_covered_gives_the_lowest_that_is() -> None:
    found = match(SOUND, NOISE, accuracies=[0.95, 0.75])
    assert found.chosen == FROM_OVERLAP and found.decisive.matched.accuracy == 0.82
    assert [each.matched.accuracy for each in found.across] == pytest.approx([0.82, 0.84, 0.86, 0.88, 0.90])


def test_match__the_first_covered_accuracy_of_the_study_counts() -> None:
    assert match(SOUND, NOISE, accuracies=[0.95, 0.89, 0.85]).decisive.matched.accuracy == 0.89


def test_match__one_seed_has_a_gain_and_no_interval() -> None:
    found = match({0: SOUND[0]}, {0: NOISE[0]}, accuracies=[0.85])
    assert found.decisive.gain > 1 and found.decisive.ci95 is None and found.decisive.matched.outcome == "undecided"


def test_match__seeds_without_a_partner_or_a_shared_stretch_are_left_out_named_and_leave_it_undecided() -> None:
    """Seed 2 is left out because of its own figures: the others must not decide without it."""
    noise = {**NOISE, 2: [(0.95, 0.2), (0.96, 0.1)], 7: NOISE[0]}
    found = match(SOUND, noise)
    assert found.seeds == (0, 1) and found.decisive.ci95 is not None and found.decisive.ci95[0] > 1
    assert {each.matched.outcome for each in (found.decisive, *found.across)} == {"undecided"}
    assert found.left_out == {7: "only one side has it", 2: "its two curves share no stretch of accuracy"}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({5: NOISE[0]}, "no seed in common"),
        ({0: [(0.92, 0.02), (0.95, 0.01)]}, r"0 80.0–90.0 %, .* against seed 0 92.0–95.0 %\)"),
        ({0: [(0.80, 0.2), (0.82, 0.1)], 1: [(0.85, 0.2), (0.9, 0.1)]}, "all of the seeds 0, 1"),
    ],
)
def test_match__nothing_shared_is_said_and_nothing_is_extrapolated(other: Side, message: str) -> None:
    with pytest.raises(NotComparableError, match=message):
        match(SOUND, other)


def test_match__a_side_more_accurate_than_the_other_ever_is_counts_with_its_least_accurate_run() -> None:
    weak = {s: [(0.5, 0.02), (0.6 + s / 100, 0.01)] for s in (0, 1, 2)}
    found = match(SOUND, weak)
    assert (found.at_least, found.chosen, found.seeds) == (True, FROM_OVERLAP, (0, 1, 2))
    assert found.overlap == (0.5, 0.6) and found.decisive.matched.outcome == "better"
    assert found.decisive.matched.mse_first == pytest.approx((0.040, 0.041, 0.042))
    assert found.decisive.matched.mse_second == pytest.approx((0.02, 0.02, 0.02))


@pytest.mark.parametrize("mse", [0.04, 0.2])
def test_match__a_lower_bound_never_says_worse_nor_equal(mse: float) -> None:
    """And it is not replaced by the seeds that happen to overlap."""
    strong: Side = {s: [(0.5, mse), (0.6, mse / 2)] for s in (0, 1, 2)}
    found = match(SOUND, strong)
    assert found.at_least and found.decisive.matched.outcome == "undecided"
    assert match(SOUND, {**strong, 0: [(0.5, mse), (0.92, 0.001)]}).seeds == (0, 1, 2)


def test_match__the_second_side_is_never_read_at_accuracies_above() -> None:
    with pytest.raises(NotComparableError, match="no stretch"):
        match({0: [(0.5, 0.02), (0.6, 0.01)]}, {0: SOUND[0]})


def test_match__one_dominating_seed_joins_the_others_as_a_lower_bound() -> None:
    sound = {**SOUND, 1: [(0.95, 0.05), (0.96, 0.03)]}
    found = match(sound, NOISE, accuracies=[0.85])
    assert found.seeds == (0, 1, 2) and found.at_least and found.decisive.matched.accuracy == 0.85
    assert found.decisive.matched.mse_first == pytest.approx((0.030, 0.05, 0.032))


def test_match__curves_that_overlap_are_no_lower_bound() -> None:
    assert not match(SOUND, NOISE).at_least
