from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

from attention_cem.auditing import DiagonalMixture, fisher_leakage, fit_mixture, information_bounds, theorem2_leakage
from attention_cem.auditing.bounds import bounds_of
from attention_cem.auditing.information import likelihood_bound, relative_mse_floor
from attention_cem.auditing.mixture import best_mixture
from attention_cem.auditing.noise_channel import noisy_release
from attention_cem.defences import (
    DefenceStack,
    FeatureDropout,
    GaussianNoise,
    InformationBottleneck,
    LaplaceNoise,
    LocalDP,
)
from attention_cem.defences.randomness import NoiseSource
from tests.attacks.helpers import CPU, challenge_for, identity_client, noise, small_data


def two_clusters(n: int = 4000, width: int = 6, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    component = torch.rand(n, generator=generator) < 0.3
    centre = torch.where(component, 2.0, -1.0)[:, None]
    spread = torch.where(component, 0.5, 1.0)[:, None] * torch.linspace(0.5, 1.5, width)
    return centre + spread * torch.randn(n, width, generator=generator)


def test_fit_mixture__equals_scikit_learn_on_a_known_mixture() -> None:
    x, held_out = two_clusters(), two_clusters(seed=1)
    own = fit_mixture(x, 2, tolerance=1e-7, iterations=500)
    theirs = GaussianMixture(2, covariance_type="diag", tol=1e-7, max_iter=500, random_state=0).fit(x.numpy())
    order, their_order = own.weights.argsort(), np.argsort(theirs.weights_)
    np.testing.assert_allclose(own.weights[order], theirs.weights_[their_order], atol=1e-3)
    np.testing.assert_allclose(own.means[order], theirs.means_[their_order], atol=1e-2)
    np.testing.assert_allclose(own.variances[order], theirs.covariances_[their_order], atol=1e-2)
    assert float(own.log_prob(held_out.double()).mean()) == pytest.approx(theirs.score(held_out.numpy()), abs=1e-3)


def test_log_prob__equals_scikit_learn_for_the_same_parameters() -> None:
    x = two_clusters().double() + 100  # far from zero: the expanded square must not lose digits
    theirs = GaussianMixture(3, covariance_type="diag", random_state=0).fit(x.numpy())
    same = DiagonalMixture(*(torch.tensor(each) for each in (theirs.weights_, theirs.means_, theirs.covariances_)))
    np.testing.assert_allclose(same.log_prob(x), theirs.score_samples(x.numpy()), atol=1e-6)
    np.testing.assert_allclose(same.responsibilities(x), theirs.predict_proba(x.numpy()), atol=1e-8)


def test_likelihood_bound__equals_the_value_from_scikit_learns_likelihood() -> None:
    stack = DefenceStack([GaussianNoise(0.5)])
    torch.manual_seed(0)
    fit, held_out = noisy_release(stack, two_clusters()), noisy_release(stack, two_clusters(seed=1))
    bound, _ = likelihood_bound(fit_mixture(fit.noisy, 2, tolerance=1e-7, iterations=500), held_out)
    theirs = GaussianMixture(2, covariance_type="diag", tol=1e-7, max_iter=500, random_state=0).fit(fit.noisy.numpy())
    expected = -theirs.score(held_out.noisy.numpy()) - 6 * 0.5 * math.log(2 * math.pi * math.e * 0.25)
    assert bound == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("sigma", [0.1, 1.0])
def test_information_bounds__track_the_analytic_value_of_a_gaussian(sigma: float) -> None:
    scale = torch.linspace(0.5, 2, 16)
    stack = DefenceStack([GaussianNoise(sigma)])
    torch.manual_seed(0)
    fit, held_out = (noisy_release(stack, scale * torch.randn(20_000, 16)) for _ in range(2))
    exact = float(0.5 * torch.log1p(scale.square() / sigma**2).sum())
    found = information_bounds(fit, held_out, pixels=64, components=(1, 2))
    assert found.information_upper_bound == pytest.approx(exact, rel=0.02)
    assert found.theorem2_leakage == pytest.approx(exact, rel=0.02)
    assert found.information_upper_end > found.information_upper_bound
    assert found.relative_mse_floor == pytest.approx(relative_mse_floor(found.information_upper_end, 64))


@pytest.mark.parametrize(
    "stack",
    [
        DefenceStack([LaplaceNoise(0.5)]),
        DefenceStack([GaussianNoise(0.5), FeatureDropout(0.5)]),
        DefenceStack([LocalDP(epsilon=5.0, clip_norm=3.0)]),
    ],
    ids=["laplace", "gaussian then dropout", "local dp"],
)
def test_likelihood_bound__lies_above_the_true_information_whatever_the_noise(stack: DefenceStack) -> None:
    """Ten equally likely points: at most log 10 nats can pass, and nearly all of it does with little noise."""
    torch.manual_seed(0)
    points = 3 * torch.randn(10, 4)
    z = points[torch.randint(10, (4000,))]
    release = noisy_release(stack, z)
    mixture = best_mixture(release.noisy[:2000], release.noisy[2000:3000], (1, 10, 20))
    bound, upper = likelihood_bound(mixture, noisy_release(stack, z))
    poor, _ = likelihood_bound(fit_mixture(release.noisy, 1), noisy_release(stack, z))
    assert poor > bound - 0.1  # a worse density can only loosen it
    if isinstance(next(iter(stack.defences.values())), LocalDP):
        assert bound > 0
    else:
        assert upper > 0.9 * math.log(10)


def test_noisy_release__variational_bottleneck_has_its_own_entropy() -> None:
    stack = DefenceStack([InformationBottleneck(z_shape=(4,), weight=1.0, initial_std=0.5)])
    release = noisy_release(stack, torch.randn(8, 4))
    assert release.gaussian_variance is None
    expected = 4 * 0.5 * math.log(2 * math.pi * math.e * 0.25)
    torch.testing.assert_close(release.conditional_entropy, torch.full((8,), expected, dtype=torch.float64))


@pytest.mark.parametrize("stack", [DefenceStack([]), DefenceStack([FeatureDropout(0.5)])])
def test_noisy_release__without_noise_there_is_no_bound(stack: DefenceStack) -> None:
    with pytest.raises(ValueError, match="no noise of known density"):
        noisy_release(stack, torch.zeros(2, 4))


def test_noisy_release__several_gaussian_releases_are_one_with_less_noise() -> None:
    torch.manual_seed(0)
    z = torch.randn(4000, 6)
    often, quiet = (noisy_release(DefenceStack([GaussianNoise(sigma)]), z, n) for sigma, n in ((0.8, 16), (0.2, 1)))
    assert often.gaussian_variance == pytest.approx(quiet.gaussian_variance)
    torch.testing.assert_close(often.conditional_entropy, quiet.conditional_entropy)
    assert float((often.noisy - z).std()) == pytest.approx(0.2, rel=0.02)


@pytest.mark.parametrize(
    "stack",
    [
        DefenceStack([LaplaceNoise(0.5)]),
        DefenceStack([InformationBottleneck(z_shape=(4,), weight=1.0)]),
        DefenceStack([FeatureDropout(0.5), LocalDP(epsilon=5.0, clip_norm=3.0)]),
        DefenceStack([LocalDP(epsilon=5.0, clip_norm=3.0, mechanism="laplace")]),
    ],
)
def test_noisy_release__several_releases_whose_mean_does_not_tell_all_have_no_bound(stack: DefenceStack) -> None:
    assert noisy_release(stack, torch.zeros(2, 4)).noisy.shape == (2, 4)
    with pytest.raises(ValueError, match="16 releases of each image are seen"):
        noisy_release(stack, torch.zeros(2, 4), 16)


def test_bounds__hold_for_all_releases_together(tmp_path: Path) -> None:
    data = small_data(train=100, test=20)

    def found(name: str, stack: DefenceStack, draws: int = 1) -> dict[str, Any]:
        challenge = challenge_for(tmp_path / name, identity_client(), stack, data, test_draws=draws)
        return bounds_of(challenge, data.test.images, device=CPU, most_images=100, fisher_images=4)

    once, often, quiet = found("once", noise(0.8)), found("often", noise(0.8), 16), found("quiet", noise(0.2))
    for key in ("theorem2_leakage", "information_upper_bound", "dfil", "dfil_mse_floor", "relative_mse_floor"):
        assert often[key] == pytest.approx(quiet[key], rel=0.05) and often[key] != pytest.approx(once[key], rel=0.05)
        assert often["assumptions"][key].endswith("of 16 releases of each image together")
    assert often["releases"] == 16 and "releases" not in once
    assert found("laplace", DefenceStack([LaplaceNoise(0.5)]))["available"]
    refused = found("laplace often", DefenceStack([LaplaceNoise(0.5)]), 2)
    assert not refused["available"] and refused["reason"].startswith("2 releases of each image are seen")


def theorem2_by_hand(mixture: DiagonalMixture, variance: float) -> float:
    total = 0.0
    for weight, spread in zip(mixture.weights.tolist(), mixture.variances.tolist(), strict=True):
        determinant_ratio = math.prod((each + variance) / variance for each in spread)
        total += weight * (-math.log(weight) + 0.5 * math.log(determinant_ratio))
    return total


def test_theorem2__equals_the_formula_written_out() -> None:
    mixture = fit_mixture(two_clusters(), 3)
    assert theorem2_leakage(mixture, 0.04) == pytest.approx(theorem2_by_hand(mixture, 0.04))
    with pytest.raises(ValueError, match="unbounded"):
        theorem2_leakage(mixture, 0.0)


def test_relative_floor__falls_with_information_and_is_one_without() -> None:
    assert relative_mse_floor(0.0, 10) == relative_mse_floor(-1.0, 10) == 1
    assert relative_mse_floor(5.0, 10) == pytest.approx(math.exp(-1))


def test_fisher_leakage__closed_form_of_a_linear_client_within_one_percent() -> None:
    torch.manual_seed(0)
    client = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 32))
    weight = client[1].weight.detach()
    exact = float(weight.square().sum() / (192 * 0.25))
    generator = torch.Generator().manual_seed(0)
    found = fisher_leakage(client, torch.rand(4, 3, 8, 8), 0.25, probes=4000, generator=generator)
    torch.testing.assert_close(found, torch.full((4,), exact), rtol=0.01, atol=0)


def test_fisher_leakage__equals_the_full_jacobian_of_a_nonlinear_client() -> None:
    torch.manual_seed(0)
    client = nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Sigmoid()).eval()
    x = torch.rand(2, 1, 8, 8)
    found = fisher_leakage(client, x, 0.01, probes=4000, generator=torch.Generator().manual_seed(1))
    for image, value in zip(x, found, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda v: client(v[None]).flatten(), image)
        assert float(value) == pytest.approx(float(jacobian.square().sum()) / (64 * 0.01), rel=0.03)
    with pytest.raises(ValueError, match="infinite"):
        fisher_leakage(client, x, 0.0)


def test_noisy_release__a_subclass_that_spares_a_channel_has_no_known_density() -> None:
    class Sparing(GaussianNoise):
        def forward(self, z: Tensor, source: NoiseSource = None) -> Tensor:
            return torch.cat([z[:, :1], super().forward(z[:, 1:], source)], 1)

    with pytest.raises(ValueError, match="no noise of known density"):
        noisy_release(DefenceStack([Sparing(0.5)]), torch.rand(4, 3, 2, 2))


def test_information_bounds__of_images_listed_class_by_class_are_those_of_shuffled_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) // 100
    z = 3 * torch.randn(4, 8, generator=generator)[labels] + 0.1 * torch.randn(400, 8, generator=generator)

    def bounds(order: Tensor) -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            fit, held_out = (noisy_release(DefenceStack([GaussianNoise(0.1)]), each) for each in (z[order], z))
        return information_bounds(fit, held_out, 100, (1, 4))

    listed, shuffled = bounds(torch.arange(400)), bounds(torch.randperm(400, generator=generator))
    assert listed.components == shuffled.components == 4
    assert listed.information_upper_bound == pytest.approx(shuffled.information_upper_bound, rel=0.05)
    assert listed.theorem2_leakage == pytest.approx(shuffled.theorem2_leakage, rel=0.05)
