from pathlib import Path

import pytest
import torch
from torch import nn

from attention_cem.splitting import SplitModel
from attention_cem.surrogates import LinearLeakagePenalty
from attention_cem.training.building import build_networks
from attention_cem.training.config_checks import ConfigError

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


@pytest.mark.parametrize(("answer", "shape"), [(nn.Linear(2, 3), "N, 3"), (nn.Unflatten(1, (2, 1)), "N, 2, 1")])
def test_build_networks__a_server_without_an_output_for_every_class_is_refused(
    tmp_path: Path, answer: nn.Module, shape: str
) -> None:
    # broke: "Target 3 is out of bounds" in the first step, on a GPU a failed assertion in a kernel
    server = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), answer)
    model = SplitModel(nn.Conv2d(3, 2, 4, stride=4), server)
    with pytest.raises(ConfigError, match=rf"each of the 4 classes.*\(N, 4\); it gives \({shape}\)"):
        build_networks(tiny_config(tmp_path), (3, 16, 16), 4, torch.device("cpu"), model)
    server[2] = nn.Linear(2, 1000)  # more than there are is how pretrained heads come
    build_networks(tiny_config(tmp_path), (3, 16, 16), 4, torch.device("cpu"), model)
