from pathlib import Path

import pytest
import torch

from attention_cem.attacks.client_recipe import build_client, client_recipe
from attention_cem.splitting import BlindInput
from attention_cem.training import load_run, train
from attention_cem.training.config import Config, ModelConfig
from attention_cem.training.config_checks import ConfigError, check_config
from attention_cem.training.config_reading import config_hash

from .helpers import tiny_config


def test_blind_client__is_trained_saved_and_handed_to_attackers_blind(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "run", model__blind_frequencies=2, model__blind_contrast=True)
    train(config)
    client = load_run(tmp_path / "run").model.client.eval()
    assert isinstance(client[0], BlindInput)
    images = torch.rand(3, 3, 16, 16)
    darker = 0.5 * images + 0.1
    rebuilt = build_client(*client_recipe(client))
    with torch.no_grad():
        torch.testing.assert_close(client(images), client(darker), atol=2e-2, rtol=0)
        torch.testing.assert_close(rebuilt(images), client(images))


def test_blind_client__old_hashes_stay() -> None:
    assert config_hash(Config()) == config_hash(Config(model=ModelConfig(blind_frequencies=0)))
    assert config_hash(Config()) != config_hash(Config(model=ModelConfig(blind_frequencies=1)))


def test_blind_client__contrast_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="blind_contrast needs"):
        check_config(Config(model=ModelConfig(blind_contrast=True)))


def test_linear_leakage__stacks_with_a_surrogate_in_the_trainer(tmp_path: Path) -> None:
    penalty = {"weight": 0.5, "random_features": 8, "target_size": 4}
    config = tiny_config(tmp_path / "run", defence__linear_leakage=penalty)
    result = train(config)
    assert 0 < result.metrics[-1]["penalty.linear_leakage"] <= 0.5
