from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import nn

from attention_cem.attacks import RidgeAttack
from attention_cem.attacks.attacker_data import load_attacker_data
from attention_cem.data import to_float
from attention_cem.defences import DefenceStack
from tests.attacks.helpers import CPU, challenge_for, floor_mse, noise, small_data, test_mse


def shrinking_client() -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten())  # 48 numbers


def test_ridge__finds_what_a_general_ridge_regression_finds(tmp_path: Path) -> None:
    data = small_data(train=400)
    challenge = challenge_for(tmp_path / "c", shrinking_client(), DefenceStack([]), data)
    ours = RidgeAttack(random_features=0).run(challenge, device=CPU)
    own = load_attacker_data(challenge, CPU)
    z = own.training_features().flatten(1).numpy()
    x = to_float(own.images).flatten(1).numpy()
    released = challenge.test_features()[0].flatten(1).numpy()
    truth = to_float(data.test.images).flatten(1).numpy()
    best = min(
        float(np.mean((Ridge(alpha).fit(z, x).predict(released).clip(0, 1) - truth) ** 2))
        for alpha in (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    )
    mse = test_mse(ours, data)
    print(f"ours {mse:.5f}, scikit-learn at its best on the test images {best:.5f}, floor {floor_mse(data):.5f}")
    assert mse < 1.03 * best and mse < 0.5 * floor_mse(data)


@pytest.mark.parametrize("images", [60, 400])
def test_ridge__with_fewer_and_with_more_images_than_coordinates_is_that_of_scikit_learn(
    tmp_path: Path, images: int
) -> None:
    data = small_data(train=images)
    client = nn.Sequential(nn.AvgPool2d(2), nn.Flatten())  # 192 numbers
    challenge = challenge_for(tmp_path / "c", client, DefenceStack([]), data)
    ours = RidgeAttack(random_features=0).run(challenge, device=CPU)
    own = load_attacker_data(challenge, CPU)
    z, x = own.training_features().double().numpy(), to_float(own.images).flatten(1).double().numpy()
    unseen, truth = own.validation_features.double().numpy(), own.validation_images.flatten(1).double().numpy()
    centre, unit = z.mean(0), z.std(0)
    strengths = [10.0**power for power in range(-10, 2)]
    for strength, point in zip(strengths, ours.receipt.curve, strict=False):
        oracle = Ridge(strength * len(z)).fit((z - centre) / unit, x)  # an input in standard units has variance 1
        expected = np.mean((oracle.predict((unseen - centre) / unit).clip(0, 1) - truth) ** 2)
        assert point.mse == pytest.approx(expected, rel=1e-4)
    assert len(ours.receipt.curve) == len(strengths) + 1  # and the mean image


def test_ridge__no_linear_map_hides_from_it_however_loud_some_of_its_directions(tmp_path: Path) -> None:
    data = small_data(train=400)

    def found(gain: float) -> float:
        layer = nn.Linear(48, 48)
        along = nn.functional.normalize(torch.randn(48, generator=torch.Generator().manual_seed(0)), dim=0)
        with torch.no_grad():
            layer.weight.copy_(torch.eye(48) + (gain - 1) * torch.outer(along, along))
            layer.bias.zero_()
        client = nn.Sequential(shrinking_client(), layer)
        challenge = challenge_for(tmp_path / str(gain), client, DefenceStack([]), data)
        challenge.__dict__["scale"] = None  # which would undo it first
        return test_mse(RidgeAttack(random_features=0).run(challenge, device=CPU), data)

    assert found(1e4) < 1.1 * found(1.0) < 0.5 * floor_mse(data)


def test_ridge__random_features_do_no_harm(tmp_path: Path) -> None:
    data = small_data(train=400)
    challenge = challenge_for(tmp_path / "c", nn.Sequential(nn.AvgPool2d(16), nn.Flatten()), noise(0.01), data)
    linear, beyond = (
        test_mse(RidgeAttack(random_features=count).run(challenge, device=CPU), data) for count in (0, 256)
    )
    print(f"linear {linear:.5f}, with random features {beyond:.5f}")
    assert beyond <= 1.01 * linear


def test_ridge__long_features_are_projected(tmp_path: Path) -> None:
    data = small_data(train=300)
    challenge = challenge_for(tmp_path / "c", nn.Flatten(), DefenceStack([]), data)
    mse = test_mse(RidgeAttack(random_features=8, most_inputs=100).run(challenge, device=CPU), data)
    assert mse < 0.7 * floor_mse(data)
