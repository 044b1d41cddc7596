import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from attention_cem.defences import LocalDP, gaussian_delta, gaussian_sigma
from attention_cem.defences.local_dp import clip_per_sample
from attention_cem.defences.testing import DefenceContract


class TestLocalDPGaussian(DefenceContract):
    stochastic = True

    def make(self):
        return LocalDP(epsilon=4.0, delta=1e-5, clip_norm=2.0)


class TestLocalDPLaplace(DefenceContract):
    stochastic = True

    def make(self):
        return LocalDP(epsilon=4.0, clip_norm=2.0, mechanism="laplace")


def hockey_stick(sigma: float, epsilon: float, sensitivity: float) -> float:
    """δ by its definition: the integral of max(0, p − e^ε q) for the two worst-case outputs, on a grid."""
    grid = np.linspace(-15 * sigma, 15 * sigma + sensitivity, 200_001)
    p, q = stats.norm.pdf(grid, sensitivity, sigma), stats.norm.pdf(grid, 0, sigma)
    return float(np.trapezoid(np.maximum(0, p - math.exp(epsilon) * q), grid))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_gaussian_sigma__meets_the_definition_and_no_less_noise_does(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta, sensitivity=2.0)
    assert hockey_stick(sigma, epsilon, 2.0) == pytest.approx(delta, rel=1e-4)
    assert hockey_stick(0.99 * sigma, epsilon, 2.0) > delta


def test_gaussian_sigma__beats_the_classical_calibration_where_that_is_valid():
    for epsilon in (0.2, 0.5, 1.0):
        classical = math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
        assert 0.5 * classical < gaussian_sigma(epsilon, 1e-5, 1.0) < classical


@settings(max_examples=50, deadline=None)
@given(epsilon=st.floats(1e-3, 1e3), delta=st.floats(1e-9, 0.5), sensitivity=st.floats(1e-3, 1e3))
def test_gaussian_sigma__satisfies_the_condition_for_any_budget(epsilon, delta, sensitivity):
    sigma = gaussian_sigma(epsilon, delta, sensitivity)
    assert gaussian_delta(sigma, epsilon, sensitivity) <= delta * (1 + 1e-6)
    assert gaussian_delta(sigma * 0.999, epsilon, sensitivity) > delta


@settings(max_examples=50, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    size=st.floats(1e-3, 1e4),
    clip=st.floats(1e-2, 1e2),
    order=st.sampled_from([1, 2]),
)
def test_clip_per_sample__never_leaves_the_ball_and_spares_what_is_inside(shape, size, clip, order):
    z = size * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    clipped = clip_per_sample(z, clip, order)
    before = torch.linalg.vector_norm(z.double().flatten(1), ord=order, dim=1)
    after = torch.linalg.vector_norm(clipped.double().flatten(1), ord=order, dim=1)
    assert (after <= clip).all()
    inside = before < clip * (1 - 1e-4)
    assert torch.equal(clipped[inside], z[inside])


def test_clip_per_sample__zero_has_a_finite_gradient():
    z = torch.zeros(3, 4, requires_grad=True)
    clip_per_sample(z, 1.0, 2).sum().backward()
    assert torch.isfinite(z.grad).all()


def test_local_dp__laplace_likelihood_ratio_stays_below_e_to_epsilon():
    defence = LocalDP(epsilon=1.5, clip_norm=3.0, mechanism="laplace")
    # Worst pair of clipped features: the two ends of the L1 ball. log p/q = Σ|o−b| − |o−a| over the scale.
    a, b = torch.tensor([[3.0, 0.0]]), torch.tensor([[-3.0, 0.0]])
    outputs = 10 * torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    ratio = ((outputs - b).abs().sum(1) - (outputs - a).abs().sum(1)) / defence.noise_scale
    assert float(ratio.max()) == pytest.approx(1.5, rel=1e-5)


def test_local_dp__sensitivity_is_twice_the_clipping_norm():
    defence = LocalDP(epsilon=1.0, delta=1e-5, clip_norm=2.0)
    assert defence.noise_scale == pytest.approx(gaussian_sigma(1.0, 1e-5, sensitivity=4.0))
    assert hockey_stick(defence.noise_scale, 1.0, 4.0) == pytest.approx(1e-5, rel=1e-4)


def test_local_dp__a_huge_feature_is_drowned():
    torch.manual_seed(0)
    defence = LocalDP(epsilon=1.0, delta=1e-5, clip_norm=1.0)
    released = defence(1e6 * torch.ones(500, 100))
    assert float(released.std()) == pytest.approx(defence.noise_scale, rel=0.02)


def test_local_dp__guarantee_states_budget_and_limits():
    text = LocalDP(epsilon=2.0, delta=1e-6, clip_norm=1.0).guarantee()
    assert "(2, 1e-06)-local differential privacy of one release" in text
    assert "further release" in text
    assert "(2" not in LocalDP(epsilon=2.0, clip_norm=1.0, mechanism="laplace").guarantee()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0.0, "clip_norm": 1.0}, "epsilon"),
        ({"epsilon": 1.0, "clip_norm": -1.0}, "clip_norm"),
        ({"epsilon": 1.0, "clip_norm": 1.0, "delta": 0.0}, "delta must lie between 0 and 1"),
        ({"epsilon": 1.0, "clip_norm": 1.0, "delta": 1.5}, "delta must lie between 0 and 1"),
        ({"epsilon": 1.0, "clip_norm": 1.0, "delta": 1e-5, "mechanism": "laplace"}, "leave delta out"),
        ({"epsilon": 1.0, "clip_norm": 1.0, "mechanism": "cauchy"}, "one of gaussian, laplace"),
    ],
)
def test_local_dp__refuses_impossible_budgets(arguments, message):
    with pytest.raises(ValueError, match=message):
        LocalDP(**arguments)
