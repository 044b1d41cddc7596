from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attention_cem.cli.train import main
from attention_cem.training import ConfigError, load_config
from attention_cem.training.config_reading import config_from_dict, config_hash

HUGE = "1" + "0" * 400
SLOTS = {"surrogate.name": "slot_mixture", "surrogate.lambd": 0.1}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"train.lr": HUGE}, "train.lr: a whole number lies from -2\\^63 to 2\\^63 - 1, got one of 1329 bits"),
        ({"train.lr": 10**400}, "train.lr: a whole number lies from -2\\^63 to 2\\^63 - 1"),
        ({"train.lr": "1" * 5000}, "'11111111111111111111…' is too large for a number"),
        ({"train.lr": "1e400"}, "'1e400' is too large for a number"),
        ({"train.seed": HUGE}, "train.seed: a whole number lies from -2\\^63 to 2\\^63 - 1"),
        ({"data.options.size": HUGE}, "data.options.size: a whole number lies from -2\\^63 to 2\\^63 - 1"),
        ({"data.options.size": "1" * 5000}, "is too large for a number"),
        ({"data.options.size": "[" * 5000}, "is nested deeper than 32 levels"),
        ({"data.options.size": "[" + "1" * 5000 + "]"}, "a whole number of more than 4300 digits"),
        ({"data.options." + "a." * 3000 + "a": 1}, "is nested deeper than 32 levels"),
        ({"data.options.size": "[2024-01-31]"}, "data.options.size must be .*, got the date 2024-01-31"),
        ({"data.options.size": datetime.date(2024, 1, 31)}, "data.options.size must be .*, got the date 2024-01-31"),
        ({"surrogate.arguments.a": {"b": [None]}}, "surrogate.arguments.a.b must be .*, got None"),
        ({"defence.gaussian_noise.sigma": object}, "defence.gaussian_noise.sigma must be .*, got <class 'object'>"),
        ({"train.lr": 1e300}, r"train.lr must be at most 1000000000, got 1e\+300"),
        ({"train.weight_decay": 1e300}, "train.weight_decay must be at most"),
        ({**SLOTS, "surrogate.reg_strength": 1e200}, "surrogate.reg_strength must be at most"),
        ({**SLOTS, "surrogate.reg_strength": 1e-300}, "surrogate.reg_strength must be at least 1e-09, got 1e-300"),
        ({"data.crop_padding": 1000000000}, "data.crop_padding must be at most 1024, got 1000000000"),
        ({"model.bottleneck_channels": 100000000000}, "model.bottleneck_channels must be at most 16384"),
        ({**SLOTS, "surrogate.arguments.num_slots": 99999999999999}, "surrogate.arguments.num_slots must be at most"),
        ({**SLOTS, "surrogate.arguments.bank_size": 99999999999999}, "surrogate.arguments.bank_size must be at most"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_load_config__what_no_machine_can_hold_is_refused_in_one_line(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(overrides=overrides)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_load_config__what_means_never_may_be_large() -> None:
    config = load_config(overrides={"train.clip_norm": 1e12, "run.checkpoint_seconds": 1e10})
    assert (config.train.clip_norm, config.run.checkpoint_seconds) == (1e12, 1e10)


def test_load_config__free_tables_keep_plain_values() -> None:
    options = {"a": True, "b": 2, "c": 0.5, "d": "text", "e": [1, [2.0, "x"]], "f": {"g": {"h": []}}}
    config = load_config(overrides={f"data.options.{key}": value for key, value in options.items()})
    assert config.data.options == options
    numbers = {"h": np.float64(0.5), "i": np.int64(3), "j": None}
    assert load_config(overrides={"data.options": numbers}).data.options == {"h": 0.5, "i": 3}
    pair = config_from_dict({"data": {"options": {"pair": (1, 2)}}})
    assert pair.data.options == {"pair": [1, 2]} and config_hash(pair)


@pytest.mark.parametrize(
    "content",
    [
        "a = " + "[" * 5000,
        "[data.options" + ".a" * 3000 + "]\nb = 1",
        "[train]\nseed = " + "1" * 5000,
        f"[train]\nlr = {HUGE}",
        "[data.options]\nwhen = 2024-01-31",
    ],
    ids=lambda content: content[:30],
)
def test_train_command__hostile_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(content)
    assert main(["--config", str(path), "--print-config"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and str(path) in printed.err and len(printed.err.splitlines()) == 1
