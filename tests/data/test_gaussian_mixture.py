from __future__ import annotations

import math

import pytest
import torch

from attention_cem.data import GaussianMixtureFeatures, gaussian_mixture_features


def one_dimensional(means: list[float], stds: list[float], weights: list[float]) -> GaussianMixtureFeatures:
    def row(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)[None]

    nothing = torch.zeros(0, dtype=torch.int64)
    return GaussianMixtureFeatures(
        torch.zeros(0, 1), nothing, nothing, row(weights), row(means)[..., None], row(stds).square()[..., None]
    )


def integrated_entropy(features: GaussianMixtureFeatures, noise_std: float = 0.0) -> float:
    """−∫ p log p of a one-dimensional mixture by the trapezoidal rule."""
    z = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    density = torch.zeros_like(z)
    for weight, mean, variance in zip(
        features.weights[0], features.means[0, :, 0], features.variances[0, :, 0] + noise_std**2, strict=True
    ):
        density += weight * torch.exp(-((z - mean) ** 2) / (2 * variance)) / torch.sqrt(2 * math.pi * variance)
    return torch.trapezoid(torch.special.entr(density), z).item()


@pytest.mark.parametrize("noise_std", [0.0, 0.7])
@pytest.mark.parametrize("means", [[-2.0, 0.5, 4.0], [0.0, 0.1, -0.1]])
def test_conditional_entropy__equals_numerical_integral(means, noise_std):
    features = one_dimensional(means, [0.5, 1.0, 2.0], [0.2, 0.5, 0.3])
    expected = integrated_entropy(features, noise_std)
    estimate = features.conditional_entropy(noise_std)
    assert estimate.standard_error < 0.01
    assert abs(estimate.value - expected) < 4 * estimate.standard_error
    lower, upper = features.conditional_entropy_bounds(noise_std)
    assert lower <= expected <= upper


def test_conditional_entropy__one_mode_is_the_closed_form():
    features = gaussian_mixture_features(10, modes_per_class=1, dim=5)
    expected = (0.5 * (2 * math.pi * math.e * features.variances[:, 0]).log().sum(1)).mean().item()
    assert features.conditional_entropy_bounds()[1] == pytest.approx(expected)
    estimate = features.conditional_entropy()
    assert abs(estimate.value - expected) < 4 * estimate.standard_error


def test_conditional_entropy__modes_far_apart_reach_the_upper_bound():
    features = gaussian_mixture_features(10, mode_distance=200.0)
    estimate = features.conditional_entropy()
    assert abs(estimate.value - features.conditional_entropy_bounds()[1]) < 4 * estimate.standard_error


def test_log_density__equals_torch_distributions():
    features = gaussian_mixture_features(50, num_classes=3, modes_per_class=2, dim=4)
    distributions = torch.distributions
    for i in range(50):
        y = features.labels[i]
        mixture = distributions.MixtureSameFamily(
            distributions.Categorical(features.weights[y]),
            distributions.Independent(distributions.Normal(features.means[y], features.variances[y].sqrt()), 1),
        )
        ours = features.log_density(features.z[i : i + 1], y[None])
        torch.testing.assert_close(ours[0], mixture.log_prob(features.z[i].double()))


def test_features__follow_the_mixture_they_name():
    features = gaussian_mixture_features(40_000, num_classes=2, modes_per_class=3, dim=2, seed=3)
    assert features.labels.bincount().tolist() == [20_000, 20_000]
    for y in range(2):
        share = features.modes[features.labels == y].bincount() / 20_000
        torch.testing.assert_close(share.double(), features.weights[y], atol=0.015, rtol=0)
        for k in range(3):
            members = features.z[(features.labels == y) & (features.modes == k)].double()
            error = (members.mean(0) - features.means[y, k]).abs() / (features.variances[y, k] / len(members)).sqrt()
            assert (error < 4.5).all()
            torch.testing.assert_close(members.var(0), features.variances[y, k], rtol=0.1, atol=0)


def test_features__are_a_pure_function_of_their_arguments():
    first, second, other = (gaussian_mixture_features(20, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.z, second.z)
    assert not torch.equal(first.z, other.z)


@pytest.mark.parametrize(
    "wrong",
    [{"num_classes": 0}, {"dim": 0}, {"std_range": (2.0, 1.0)}, {"mode_distance": -1.0}],
)
def test_features__refuse(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        gaussian_mixture_features(10, **wrong)
