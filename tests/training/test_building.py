from pathlib import Path

import pytest
import torch

from attention_cem.surrogates import LinearLeakagePenalty
from attention_cem.training.building import build_networks

from .helpers import tiny_config


@pytest.mark.parametrize(
    ("noise", "sigma"),
    [
        ({"gaussian_noise": {"sigma": 0.3}}, 0.3),
        ({"laplace_noise": {"scale": 0.3}}, 0.3 * 2**0.5),
        ({"gaussian_noise": {"sigma": 0.3}, "laplace_noise": {"scale": 0.3}}, (0.09 + 0.18) ** 0.5),
        ({}, 0.025),
    ],
)
def test_build_networks__the_closed_form_attacker_lives_with_the_noise_of_the_whole_stack(
    tmp_path: Path, noise: dict[str, dict[str, float]], sigma: float
) -> None:
    config = tiny_config(tmp_path)
    config.defence.clear()
    config.defence.update({**noise, "linear_leakage": {"weight": 0.1, "random_features": 8}})
    stack = build_networks(config, (3, 16, 16), 4, torch.device("cpu")).stack
    penalty = stack.defences["linear_leakage"]
    assert isinstance(penalty, LinearLeakagePenalty) and penalty.config()["noise_sigma"] == pytest.approx(sigma)
