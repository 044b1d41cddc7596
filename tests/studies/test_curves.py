import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_cem.studies.curves import (
    Point,
    accuracy_range,
    common_range,
    hypervolume,
    mixed_front,
    mse_at_accuracy,
    pareto_front,
)

# By hand: λ rises from left to right. The fourth setting lost accuracy and privacy, the fifth is best on MSE.
NON_MONOTONE = [(0.90, 0.010), (0.88, 0.020), (0.86, 0.024), (0.84, 0.015), (0.80, 0.030)]
points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=12)


def slow_front(curve: list[Point]) -> set[Point]:
    def beaten(p: Point) -> bool:
        return any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in curve)

    return {p for p in curve if not beaten(p)}


def test_pareto_front__non_monotone_curve_keeps_only_what_somebody_would_deploy() -> None:
    assert pareto_front(NON_MONOTONE) == [(0.80, 0.030), (0.86, 0.024), (0.88, 0.020), (0.90, 0.010)]


@given(points)
def test_pareto_front__equals_the_definition(curve: list[tuple[int, int]]) -> None:
    plain = [(float(a), float(m)) for a, m in curve]
    front = pareto_front(plain)
    assert set(front) == slow_front(plain) and front == sorted(front)


def test_pareto_front__equal_accuracy_keeps_the_more_private() -> None:
    assert pareto_front([(0.9, 1.0), (0.9, 2.0), (0.9, 2.0)]) == [(0.9, 2.0)]
    assert pareto_front([]) == []


def test_mixed_front__drops_what_a_mixture_of_two_clients_beats() -> None:
    # Half of each of the ends has accuracy 0.85 and MSE 0.020: the efficient run between them need not be deployed.
    assert mixed_front([(0.80, 0.030), (0.85, 0.016), (0.90, 0.010)]) == [(0.80, 0.030), (0.90, 0.010)]
    assert mixed_front([(0.80, 0.030), (0.85, 0.024), (0.90, 0.010)])[1] == (0.85, 0.024)


@given(points, st.integers(0, 16))
def test_mse_at_accuracy__is_the_best_of_all_mixtures_of_two(curve: list[tuple[int, int]], twice: int) -> None:
    at = twice / 2
    plain = pareto_front([(float(a), float(m)) for a, m in curve])
    mixtures = [m for a, m in plain if a == at] + [
        (m * (b - at) + n * (at - a)) / (b - a) for (a, m), (b, n) in itertools.combinations(plain, 2) if a <= at <= b
    ]
    found = mse_at_accuracy(curve, at)
    assert found == (pytest.approx(max(mixtures)) if mixtures else None)


@given(points, st.tuples(st.integers(0, 8), st.integers(0, 8)), st.floats(0, 8))
def test_mse_at_accuracy__a_further_run_never_lowers_it(curve: list[Point], run: Point, at: float) -> None:
    before, after = mse_at_accuracy(curve, at), mse_at_accuracy([*curve, run], at)
    if before is not None and after is not None:
        assert after >= before - 1e-9


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_curves__a_figure_that_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        pareto_front([(0.9, bad)])


@given(points)
def test_hypervolume__equals_counting_unit_squares(curve: list[tuple[int, int]]) -> None:
    squares = sum(
        any(a > x and m > y for a, m in curve) for x, y in itertools.product(range(1, 9), range(2, 9))
    )  # the square [x, x+1] × [y, y+1] above the reference (1, 2)
    assert hypervolume(curve, (1, 2)) == pytest.approx(squares)


def test_hypervolume__by_hand_and_against_optuna() -> None:
    front = [(0.80, 0.030), (0.86, 0.024), (0.88, 0.020), (0.90, 0.010)]
    by_hand = 0.10 * 0.030 + 0.06 * 0.024 + 0.02 * 0.020 + 0.02 * 0.010
    assert hypervolume(NON_MONOTONE, (0.70, 0.0)) == pytest.approx(by_hand) == pytest.approx(0.00504)
    numpy = pytest.importorskip("numpy")
    compute = pytest.importorskip("optuna._hypervolume").compute_hypervolume
    assert compute(-numpy.array(front), numpy.array([-0.70, 0.0])) == pytest.approx(by_hand)


def test_hypervolume__points_below_the_reference_add_nothing() -> None:
    assert hypervolume([(0.5, 1.0), (1.0, 0.5)], (0.6, 0.6)) == 0.0


def test_mse_at_accuracy__by_hand_on_a_non_monotone_curve() -> None:
    # Between (0.80, 0.030) and (0.86, 0.024), past the point at 0.84 that is beaten: 0.030 - 0.006·(0.04/0.06).
    assert mse_at_accuracy(NON_MONOTONE, 0.84) == pytest.approx(0.026)
    assert mse_at_accuracy(NON_MONOTONE, 0.89) == pytest.approx(0.015)
    assert mse_at_accuracy(NON_MONOTONE, 0.88) == pytest.approx(0.020)


def test_mse_at_accuracy__is_not_extrapolated() -> None:
    assert accuracy_range(NON_MONOTONE) == (0.80, 0.90)
    assert mse_at_accuracy(NON_MONOTONE, 0.79) is None and mse_at_accuracy(NON_MONOTONE, 0.91) is None
    assert mse_at_accuracy([(0.9, 0.01)], 0.9) == 0.01 and mse_at_accuracy([(0.9, 0.01)], 0.89) is None
    assert mse_at_accuracy([], 0.9) is None


def test_mse_at_accuracy__not_across_a_gap_that_is_too_wide() -> None:
    curve = [(0.86, 0.01), (0.84, 0.04), (0.70, 0.05)]
    assert mse_at_accuracy(curve, 0.85, widest_gap=0.03) == pytest.approx(0.025)
    assert (
        mse_at_accuracy(curve, 0.80, widest_gap=0.03) is None and mse_at_accuracy(curve, 0.70, widest_gap=0.03) == 0.05
    )
    assert mse_at_accuracy(curve, 0.80) == pytest.approx(0.05 - 0.01 * 10 / 14)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(1e-6, 1.0)), min_size=1, max_size=8),
    st.floats(0, 1),
)
def test_mse_at_accuracy__never_leaves_the_curve(curve: list[Point], at: float) -> None:
    found = mse_at_accuracy(curve, at)
    if found is not None:
        lowest, highest = min(m for _, m in curve), max(m for _, m in curve)
        assert lowest * (1 - 1e-9) <= found <= highest * (1 + 1e-9)
        assert min(a for a, _ in curve) <= at <= max(a for a, _ in curve)


@given(points, st.floats(0, 8))
def test_mse_at_accuracy__falls_with_accuracy_and_ignores_the_order(curve: list[tuple[int, int]], at: float) -> None:
    plain = [(float(a), float(m)) for a, m in curve]
    shuffled = random.Random(0).sample(plain, len(plain))
    found = mse_at_accuracy(plain, at)
    assert found == mse_at_accuracy(shuffled, at)
    higher = mse_at_accuracy(plain, at + 0.5)
    if found is not None and higher is not None:
        assert higher <= found + 1e-9


def test_common_range__touching_curves_share_one_accuracy() -> None:
    assert common_range([[(0.8, 2.0), (0.85, 1.0)], [(0.85, 2.0), (0.9, 1.0)]]) == (0.85, 0.85)
    with pytest.raises(ValueError, match="at least one point"):
        common_range([[]])
