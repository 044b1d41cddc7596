"""Several releases of one image: every attack reads them together, in training, validation and use alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from attention_cem.attacks import (
    Attack,
    ClassMeanAttack,
    GanInverterAttack,
    InverterAttack,
    NearestNeighbourAttack,
    OptimisationAttack,
    RidgeAttack,
    TrainingPlan,
)
from attention_cem.attacks.attacker_data import load_attacker_data
from attention_cem.attacks.readings import mean_of, mean_of_shown, median_of, reading_against
from attention_cem.data import to_float
from attention_cem.defences import DefenceStack, FeatureDropout, GaussianNoise, LaplaceNoise, LocalDP, TopKPruning
from tests.attacks.helpers import CPU, challenge_for, identity_client, noise, small_data, test_mse

RELEASES = 16
PLAN = TrainingPlan(epochs=3, batch_size=16, lr=3e-3, weight_decay=0.0, probe=False)
ATTACKS: list[Attack] = [
    ClassMeanAttack(),
    NearestNeighbourAttack(),
    RidgeAttack(random_features=32),
    InverterAttack(PLAN, width=16, blocks=0),
    GanInverterAttack(PLAN, epochs=1, width=16, blocks=0),
    OptimisationAttack(steps=40),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.kind)
def test_releases__sixteen_are_worth_a_quarter_of_the_noise(attack: Attack, tmp_path: Path) -> None:
    """The mean of K releases with noise σ is one release with noise σ/√K: an attack must get as much out of it."""
    data = small_data(train=300)
    often = challenge_for(tmp_path / "often", identity_client(), noise(1.2), data, test_draws=RELEASES)
    quiet = challenge_for(tmp_path / "quiet", identity_client(), noise(0.3), data)
    of_often, of_quiet = attack.run(often, device=CPU), attack.run(quiet, device=CPU)
    assert test_mse(of_often, data) == pytest.approx(test_mse(of_quiet, data), rel=0.05)
    assert of_often.receipt.validation_mse == pytest.approx(of_quiet.receipt.validation_mse, rel=0.1)


def test_releases__black_box_reads_as_many_of_its_own(tmp_path: Path) -> None:
    data = small_data(train=300)
    often = challenge_for(tmp_path / "often", identity_client(), noise(0.8), data, test_draws=8, white_box=False)
    assert len(often.attacker_features()) == 8
    quiet = challenge_for(tmp_path / "quiet", identity_client(), noise(0.8 / 8**0.5), data, white_box=False)
    attack = RidgeAttack(random_features=32)
    errors = [test_mse(attack.run(each, device=CPU), data) for each in (often, quiet)]
    assert errors[0] == pytest.approx(errors[1], rel=0.05)


def test_releases__black_box_with_too_few_of_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="attacker_draws=2, test_draws=3"):
        challenge_for(
            tmp_path / "c", identity_client(), noise(0.1), small_data(), test_draws=3, attacker_draws=2, white_box=False
        )


def test_attacker_data__readings_have_the_noise_of_the_mean(tmp_path: Path) -> None:
    data = small_data()
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.8), data, test_draws=RELEASES)
    own = load_attacker_data(challenge, CPU)
    index = torch.arange(len(own))
    clean = identity_client()(to_float(own.images))
    held_out = identity_client()(own.validation_images)
    for found, truth in (
        (own.training_features(), clean),
        (own.batch(index)[0], clean),
        (replace(own, augment=None).read(index), clean),
        (own.validation_features, held_out),
        (challenge.test_reading(), identity_client()(to_float(data.test.images))),
    ):
        assert float((found - truth).std()) == pytest.approx(0.2, rel=0.05)
    again = load_attacker_data(challenge, CPU)
    assert torch.equal(own.validation_features, again.validation_features)
    careless = load_attacker_data(challenge, CPU, aware=False)
    assert torch.equal(careless.training_features(), clean)
    assert torch.equal(careless.validation_features, own.validation_features)


def test_attacker_data__one_release_is_that_release_bit_by_bit(tmp_path: Path) -> None:
    data = small_data()
    challenge = challenge_for(tmp_path / "c", identity_client(), DefenceStack([FeatureDropout(0.5)]), data)
    own = load_attacker_data(challenge, CPU)
    clean = identity_client()(to_float(own.images))
    torch.manual_seed(0)
    expected = challenge.stack()(clean)
    torch.manual_seed(0)
    assert torch.equal(own.training_features(), expected)
    assert torch.equal(challenge.test_reading(), challenge.test_features()[0])


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (DefenceStack([]), mean_of),
        (DefenceStack([GaussianNoise(0.1)]), mean_of),
        (DefenceStack([LaplaceNoise(0.1)]), median_of),
        (DefenceStack([GaussianNoise(0.1), FeatureDropout(0.5)]), mean_of_shown),
        (DefenceStack([FeatureDropout(0.5), TopKPruning(0.5)]), mean_of),
        (DefenceStack([FeatureDropout(0.5), LocalDP(epsilon=5.0, clip_norm=3.0)]), mean_of),
        (DefenceStack([LocalDP(epsilon=5.0, clip_norm=3.0, mechanism="laplace")]), median_of),
    ],
)
def test_reading__fits_the_defence(stack: DefenceStack, expected: object) -> None:
    assert reading_against(stack.describe()["defences"]) is expected


def test_median__of_an_even_number_lies_between_the_middle_two() -> None:
    releases = torch.tensor([4.0, 1.0, 100.0, 2.0])[:, None, None]
    assert float(median_of(releases)) == 3 and float(median_of(releases[:3])) == 4


@pytest.mark.parametrize("stack", [DefenceStack([FeatureDropout(0.5)]), DefenceStack([LaplaceNoise(0.8)])])
def test_reading__is_better_than_the_mean_where_noise_is_not_gaussian(stack: DefenceStack, tmp_path: Path) -> None:
    data = small_data(train=300)
    challenge = challenge_for(tmp_path / "c", nn.PixelUnshuffle(2), stack, data, test_draws=RELEASES)
    attack = RidgeAttack(random_features=32)
    fitting = attack.run(challenge, device=CPU)
    challenge.reading = lambda device=CPU: mean_of  # type: ignore[method-assign]
    assert test_mse(fitting, data) < 0.97 * test_mse(attack.run(challenge, device=CPU), data)


def test_optimisation__reads_its_own_draws_as_it_reads_the_releases(tmp_path: Path) -> None:
    data = small_data(train=100)
    stack = DefenceStack([FeatureDropout(0.5)])
    challenge = challenge_for(tmp_path / "c", identity_client(), stack, data, test_draws=RELEASES)
    result = OptimisationAttack(steps=60, noise_draws=8, tv_weights=(0.0,)).run(challenge, device=CPU)
    assert test_mse(result, data) < 1e-3
