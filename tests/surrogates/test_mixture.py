import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture
from torch import Tensor

from attention_cem.surrogates.mixture import (
    ClassMixtures,
    expected_log_density,
    mixture_statistics,
    noise_entropy,
    shrink_variance,
    within_component_scatter,
)

DOUBLE = torch.float64


def random_mixtures(rows: int, slots: int, width: int, seed: int) -> ClassMixtures:
    generator = torch.Generator().manual_seed(seed)
    share = torch.randn(rows, slots, dtype=DOUBLE, generator=generator).softmax(-1)
    mean = torch.randn(rows, slots, width, dtype=DOUBLE, generator=generator)
    variance = 0.2 + torch.rand(rows, slots, width, dtype=DOUBLE, generator=generator)
    return ClassMixtures(share, mean, variance)


def log_density_loop(z: Tensor, mixtures: ClassMixtures, row: int) -> float:
    """log b(z) of one sample, one component at a time."""
    density = 0.0
    for share, mean, variance in zip(*(t[row] for t in mixtures), strict=True):
        exponent = 0.0
        for d in range(len(z)):
            exponent -= 0.5 * ((z[d] - mean[d]) ** 2 / variance[d] + math.log(2 * math.pi * variance[d])).item()
        density += share.item() * math.exp(exponent)
    return math.log(density)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 3), st.integers(0, 9), st.sampled_from([0.0, 1e4]))
def test_mixture_statistics__equal_the_loop(rows: int, size: int, slots: int, seed: int, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, size, 3, dtype=DOUBLE, generator=generator) + shift
    assigned = 0.15 + torch.rand(rows, size, slots, dtype=DOUBLE, generator=generator)
    assigned[:, 0] = 0  # a sample that does not count
    mass, mean, variance = mixture_statistics(x, assigned)
    for r in range(rows):
        for s in range(slots):
            weight = assigned[r, :, s]
            torch.testing.assert_close(mass[r, s], weight.sum())
            if weight.sum() == 0:
                assert variance[r, s].eq(0).all()
                continue
            expected = sum(w * v for w, v in zip(weight, x[r], strict=True)) / weight.sum()
            spread = sum(w * (v - expected) ** 2 for w, v in zip(weight, x[r], strict=True)) / weight.sum()
            torch.testing.assert_close(mean[r, s], expected)
            torch.testing.assert_close(variance[r, s], spread, rtol=1e-7, atol=1e-9)


def test_mixture_statistics__of_no_samples_are_finite_and_so_is_their_gradient() -> None:
    x = torch.randn(2, 4, 3, dtype=DOUBLE)
    assigned = torch.zeros(2, 4, 2, dtype=DOUBLE, requires_grad=True)
    mass, mean, variance = mixture_statistics(x, assigned)
    (mass.sum() + mean.sum() + variance.sum()).backward()
    assert mass.eq(0).all() and mean.isfinite().all() and variance.eq(0).all()
    assert assigned.grad is not None and assigned.grad.isfinite().all()


@pytest.mark.parametrize("mass", [1e-3, 1e-20, 1e-42])
def test_mixture_statistics__of_almost_nothing_lie_at_the_centre_with_a_gradient_that_is_bounded(mass: float) -> None:
    x = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
    assigned = torch.tensor([[1.0, 0.0]]).repeat(4, 1)[None]
    assigned[0, 2, 1] = mass
    assigned.requires_grad_()
    _, mean, variance = mixture_statistics(x, assigned)
    (mean[0, 1].square().sum() + variance[0, 1].sum()).backward()
    torch.testing.assert_close(mean[0, 1], x.mean(1)[0], rtol=0, atol=20 * mass)
    assert assigned.grad is not None and assigned.grad.abs().max() < 1e3


def test_mixture_statistics__gradient_in_the_assignments_is_that_of_the_plain_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 3, dtype=DOUBLE, generator=generator)
    assigned = torch.rand(2, 5, 2, dtype=DOUBLE, generator=generator).requires_grad_()

    def plain(r: Tensor) -> Tensor:
        share = (r / r.sum(1, keepdim=True)).mT
        mean = share @ x
        return share @ x.square() - mean.square()

    (ours,) = torch.autograd.grad(mixture_statistics(x, assigned)[2].square().sum(), assigned)
    (expected,) = torch.autograd.grad(plain(assigned).square().sum(), assigned)
    torch.testing.assert_close(ours, expected)


def test_within_component_scatter__equals_the_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 3, dtype=DOUBLE, generator=generator) + 7
    assigned = torch.rand(2, 5, 2, dtype=DOUBLE, generator=generator)
    assigned[1] = 0  # a class without samples
    _, mean, _ = mixture_statistics(x, assigned)
    expected = torch.zeros(3, 3, dtype=DOUBLE)
    for r, k, s in np.ndindex(2, 5, 2):
        deviation = x[r, k] - mean[r, s]
        expected += assigned[r, k, s] * torch.outer(deviation, deviation)
    torch.testing.assert_close(within_component_scatter(x, assigned), expected)


def test_shrink_variance__goes_from_the_pooled_variance_to_the_slot_own() -> None:
    own, pooled = torch.full((1, 3, 1), 2.0), torch.tensor([1.0])
    shrunk = shrink_variance(own, torch.tensor([[0.0, 4.0, 1e9]]), pooled, 4.0).flatten()
    torch.testing.assert_close(shrunk, torch.tensor([1 * (1 + 1 / 4), 1.5 * (1 + 1 / 8), 2.0]))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(0, 9))
def test_expected_log_density__without_noise_equals_the_loop(rows: int, slots: int, width: int, seed: int) -> None:
    mixtures = random_mixtures(rows, slots, width, seed)
    row = torch.arange(5) % rows
    z = torch.randn(5, width, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))
    expected = torch.tensor([log_density_loop(z[n], mixtures, int(row[n])) for n in range(5)], dtype=DOUBLE)
    torch.testing.assert_close(expected_log_density(z, row, mixtures, 0.0), expected)
    banked = z.expand(rows, 5, width)
    expected = torch.tensor([[log_density_loop(v, mixtures, r) for v in z] for r in range(rows)], dtype=DOUBLE)
    torch.testing.assert_close(expected_log_density(banked, None, mixtures, 0.0), expected)


def test_expected_log_density__stays_accurate_far_from_the_origin_in_single_precision() -> None:
    mixtures = random_mixtures(2, 3, 16, 1)
    z = mixtures.mean[0] + 0.3
    row = torch.zeros(3, dtype=torch.int64)
    expected = expected_log_density(z, row, mixtures, 0.01)
    far = ClassMixtures(mixtures.share.float(), (mixtures.mean + 100).float(), mixtures.variance.float())
    found = expected_log_density((z + 100).float(), row, far, 0.01)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("noise_variance", [0.01, 0.1, 0.2])
@pytest.mark.parametrize("slots", [1, 2, 5])
def test_expected_log_density__is_a_lower_bound_of_the_monte_carlo_mean(slots: int, noise_variance: float) -> None:
    mixtures = random_mixtures(1, slots, 3, seed=slots)
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, 3, dtype=DOUBLE, generator=generator)
    row = torch.zeros(40, dtype=torch.int64)
    draws = 20_000
    noise = noise_variance**0.5 * torch.randn(draws, 1, 3, dtype=DOUBLE, generator=generator)
    sampled = expected_log_density((z + noise).view(1, -1, 3), None, mixtures, 0.0).view(draws, 40)
    error = sampled.std(0) / draws**0.5
    gap = (sampled.mean(0) - expected_log_density(z, row, mixtures, noise_variance)) / error  # standard errors
    if slots == 1:
        assert gap.abs().max() < 4.5
    else:
        assert gap.min() > -4.5 and gap.max() > 4.5  # a bound everywhere, and not an equality


def test_expected_log_density__equals_scikit_learn_without_noise() -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(m, 0.5, (200, 4)) for m in (-2, 0, 3)])
    model = GaussianMixture(3, covariance_type="diag", random_state=0).fit(x)
    mixtures = ClassMixtures(*(torch.from_numpy(t)[None] for t in (model.weights_, model.means_, model.covariances_)))
    z = torch.from_numpy(x)
    row = torch.zeros(len(x), dtype=torch.int64)
    expected = torch.from_numpy(model.score_samples(x))
    torch.testing.assert_close(expected_log_density(z, row, mixtures, 0.0), expected)
    errors = [
        (expected_log_density(z, row, mixtures, noise) - expected).abs().max().item() for noise in (1e-2, 1e-4, 1e-6)
    ]
    assert errors[0] > errors[1] > errors[2] and errors[2] < 1e-4


def test_expected_log_density__gradcheck() -> None:
    mixtures = random_mixtures(2, 3, 4, 0)
    row = torch.tensor([0, 1, 1])
    z = torch.randn(3, 4, dtype=DOUBLE).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: expected_log_density(z, row, mixtures, 0.05), z)


def test_noise_entropy__is_the_entropy_of_a_normal_distribution() -> None:
    expected = torch.distributions.Normal(0.0, 0.3).entropy().item()
    assert noise_entropy(0.09) == pytest.approx(expected, rel=1e-6)
