import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from attention_cem.cli.main import main
from attention_cem.training.distributed import World

from .one_step import NAMES, one_step


def environment() -> dict[str, str]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}


def torchrun(*arguments: str, timeout: int = 120) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    torchrun(str(Path(__file__).with_name("one_step_on_two_ranks.py")), str(folder))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_two_processes__gradients_equal_those_of_one_on_the_joined_batch(two_ranks: Path, name: str) -> None:
    alone = one_step(name, World())
    ranks = [load_file(two_ranks / f"{name}-{rank}.safetensors") for rank in (0, 1)]
    worst = 0.0
    for key, value in alone.items():
        for rank in ranks:
            difference = (rank[key].double() - value.double()).abs().max() if value.numel() else torch.zeros(())
            worst = max(worst, float(difference))
            assert difference <= 1e-6, f"{key}: {float(difference)}"
    print(f"{name}: {len(alone)} tensors, largest difference {worst:.1e}")
    assert any(key.startswith("client.") and bool(alone[key].any()) for key in alone)


@pytest.mark.parametrize("name", NAMES)
def test_two_processes__hold_the_same_states(two_ranks: Path, name: str) -> None:
    first, second = (load_file(two_ranks / f"{name}-{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def test_two_processes__a_flag_counts_if_it_is_set_on_both(two_ranks: Path) -> None:
    for rank in (0, 1):
        flags = load_file(two_ranks / f"flags-{rank}.safetensors")
        assert not bool(flags["one"]) and bool(flags["both"])


def test_gradients__surrogate_and_penalty_take_part_in_them() -> None:
    """Guards the comparison above: it would also hold if they were ignored."""
    for name in NAMES:
        gradients = one_step(name, World())
        assert bool(gradients["client.0.weight"].any()), name
        other = one_step("gated" if name != "gated" else "slot_cross", World())
        assert not torch.allclose(gradients["client.0.weight"], other["client.0.weight"], rtol=1e-3), name


@pytest.mark.slow
def test_two_processes__a_short_run_learns_as_one_process_does(tmp_path: Path) -> None:
    settings = {
        "data.options.size": 16,
        "data.options.num_classes": 4,
        "data.options.num_train": 480,
        "data.options.num_test": 400,
        "data.validation_fraction": 0.25,
        "model.name": "tiny_cnn",
        "surrogate.name": "slot_mixture",
        "surrogate.lambd": 0.01,
        "train.epochs": 6,
        "train.batch_size": 32,
        "train.optimiser": "adamw",
        "train.lr": 0.003,
        "data.flip": "false",
        "data.crop_padding": 0,
        "run.device": "cpu",
        "run.tensorboard": "false",
        "run.figures": "false",
    }
    options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    torchrun("-m", "attention_cem.cli.main", "train", *options, "--run.folder", str(tmp_path / "two"))
    assert main(["train", *options, "--run.folder", str(tmp_path / "one")]) == 0
    results = {name: json.loads((tmp_path / name / "run.json").read_text()) for name in ("one", "two")}
    accuracy = {name: result["test"]["accuracy"] for name, result in results.items()}
    print(accuracy)
    chance, noise = 0.25, 3 * (2 * 0.25 / 400) ** 0.5  # three standard deviations of a difference of two shares
    assert min(accuracy.values()) > chance + noise
    assert abs(accuracy["one"] - accuracy["two"]) < noise
