"""Checkpoints with a valid checksum whose facts somebody made up."""

import json
from pathlib import Path
from typing import Any

import pytest

from attention_cem.training import CheckpointError, load_run, train
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


@pytest.mark.parametrize("inner", [False, True])
def test_read_checkpoint__a_deeply_nested_header_is_damage(tmp_path: Path, inner: bool) -> None:
    deep = "[" * 100_000
    header = (json.dumps({"__metadata__": {"attention_cem": deep}}) if inner else deep).encode()
    path = tmp_path / "best.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match=r"is damaged or was cut short \(RecursionError\)"):
        read_checkpoint(path)
