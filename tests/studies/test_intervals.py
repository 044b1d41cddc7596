import pytest

from attention_cem.studies.intervals import difference_interval, mean_interval, t_quantile

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("freedom", [1, 1.7, 2, 3, 4.5, 9, 30, 200])
@pytest.mark.parametrize("probability", [0.5, 0.9, 0.975, 0.995])
def test_t_quantile__equals_scipy(freedom: float, probability: float) -> None:
    expected = float(stats.t.ppf(probability, freedom))
    assert t_quantile(probability, freedom) == pytest.approx(expected, rel=2e-4, abs=1e-9)


def test_t_quantile__refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="ν ≥ 1"):
        t_quantile(0.975, 0.5)


def test_mean_interval__equals_scipy() -> None:
    values = [0.011, 0.013, 0.012, 0.016]
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    estimate = mean_interval(values)
    assert (estimate.low, estimate.high) == pytest.approx((low, high))


def test_mean_interval__one_value_has_no_interval() -> None:
    assert mean_interval([0.5]).low is None


@pytest.mark.parametrize("paired", [True, False])
def test_difference_interval__equals_scipy(paired: bool) -> None:
    first, second = [1.0, 1.4, 1.1, 1.6], [0.8, 1.1, 1.05, 1.2]
    test = stats.ttest_rel(first, second) if paired else stats.ttest_ind(first, second, equal_var=False)
    low, high = test.confidence_interval(0.95)
    estimate = difference_interval(first, second, paired=paired)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), rel=1e-5)


def test_difference_interval__no_spread_and_single_values() -> None:
    assert difference_interval([1.0, 1.0], [0.5, 0.5], paired=False).low == 0.5
    assert difference_interval([1.0], [0.5, 0.6], paired=False).low is None
