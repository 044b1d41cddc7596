"""Checkpoints with a valid checksum whose facts somebody made up."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attention_cem.training import CheckpointError, ConfigError, load_config, load_run, train
from attention_cem.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint

from .helpers import tiny_config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(tiny_config(folder, train__epochs=1))
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"given_model": None}, "given_model must be true or false, got None"),
        ({"class_names": 5}, "class_names must be 1 to 100000 names, got 5"),
        ({"class_names": []}, "class_names must be 1 to 100000 names"),
        ({"class_names": [1, 2, 3, 4]}, r"class_names must be 1 to 100000 names, got \[1, 2"),
        ({"image_shape": "x"}, "image_shape must be three whole numbers from 1 to 100000, got 'x'"),
        ({"image_shape": [3, 16, 16.0]}, "image_shape must be three whole numbers"),
        ({"image_shape": [3, 10**9, 10**9]}, "image_shape must be three whole numbers"),
        ({"image_shape": [3, 50_000, 50_000]}, "image_shape must have at most 16777216 values"),
        ({"image_shape": [1, 16, 16]}, "does not fit"),
        ({"class_names": ["one"]}, "does not fit"),
    ],
)
def test_load_run__facts_that_cannot_be_are_refused_before_anything_is_built(
    run: Path, change: dict[str, Any], message: str
) -> None:
    best = run / "checkpoints" / "best.safetensors"
    good = best.read_bytes()
    checkpoint = read_checkpoint(best)
    try:
        write_checkpoint(best, Checkpoint(checkpoint.tensors, {**checkpoint.facts, **change}))
        with pytest.raises(CheckpointError, match=message):
            load_run(run)
    finally:
        best.write_bytes(good)


@pytest.mark.parametrize("damage", [lambda text: text.replace("sigma = 0.05", "sigma = 1e-4"), lambda _: ""])
def test_load_run__a_configuration_that_was_altered_is_refused(run: Path, damage: Callable[[str], str]) -> None:
    # broke: an export with less noise than was trained with and audited, without a word
    file = run / "config.toml"
    good = file.read_text()
    try:
        file.write_text(damage(good))
        assert file.read_text() != good
        with pytest.raises(ConfigError, match="config.toml is not what .* was trained with"):
            load_run(run)
    finally:
        file.write_text(good)


@pytest.mark.parametrize("one", [1, np.float64(1), np.int64(1)])
def test_train__a_configuration_built_in_python_is_the_one_its_file_holds(tmp_path: Path, one: Any) -> None:
    # broke: 1 for 1.0 gave a run that could not be continued: "another configuration"
    config = tiny_config(tmp_path / "run", train__epochs=1)
    config = replace(config, train=replace(config.train, lr=one))
    train(config)
    assert load_run(tmp_path / "run").config.train.lr == 1.0
    (tmp_path / "run" / "run.json").unlink()
    train(load_config(tmp_path / "run" / "config.toml", {"run.folder": str(tmp_path / "run"), "run.resume": True}))


@pytest.mark.parametrize("inner", [False, True])
def test_read_checkpoint__a_deeply_nested_header_is_damage(tmp_path: Path, inner: bool) -> None:
    deep = "[" * 100_000
    header = (json.dumps({"__metadata__": {"attention_cem": deep}}) if inner else deep).encode()
    path = tmp_path / "best.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match=r"is damaged or was cut short \(RecursionError\)"):
        read_checkpoint(path)
