"""Cross-fitting through the trainer: who gets numbered images, when it is switched on, and what it changes."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from attention_cem.data import Batches, load_data
from attention_cem.defences import DefenceStack, build_stack
from attention_cem.splitting import SplitModel, build_split_model
from attention_cem.surrogates import HybridCEM, SlotMixtureCEM, build_surrogate
from attention_cem.surrogates.folds import sample_fold
from attention_cem.training import Observer, load_config, load_run, train
from attention_cem.training.activation import SurrogateMode
from attention_cem.training.building import cross_fit_reason
from attention_cem.training.checkpoint import CheckpointError
from attention_cem.training.config import SurrogateConfig, TrainConfig
from attention_cem.training.config_reading import config_hash
from attention_cem.training.graphed_step import GraphedStep
from attention_cem.training.optimisers import build_optimiser
from attention_cem.training.randomness import seed_stream
from attention_cem.training.step import StepSettings, TrainingStep

from .helpers import last_checkpoint, tiny_config, with_surrogate

SMALL = torch.arange(4).repeat(16)
LARGE = torch.arange(4).repeat(2000)


class Messages(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def surrogate_config(name: str, **arguments: Any) -> Any:
    return load_config(
        overrides={"surrogate.name": name, **{f"surrogate.arguments.{k}": v for k, v in arguments.items()}}
    )


@pytest.mark.parametrize(
    ("name", "arguments", "labels", "needed"),
    [
        ("slot_mixture", {}, SMALL, True),
        ("slot_mixture", {}, LARGE, False),
        ("slot_mixture", {"bank_size": 201}, LARGE, True),
        ("slot_mixture", {"bank_size": 200}, LARGE, False),
        ("slot_mixture", {"bank_size": 1}, SMALL, False),
        ("slot_mixture", {"cross_fit": False}, SMALL, False),
        ("slot_mixture", {"cross_fit": True}, SMALL, False),  # said: nothing to switch on
        ("hybrid", {}, SMALL, True),
        ("gated", {}, SMALL, False),
        ("kmeans", {}, SMALL, False),
        ("none", {}, SMALL, False),
    ],
)
def test_cross_fit_reason__is_a_memory_too_large_for_the_smallest_class(
    name: str, arguments: dict[str, Any], labels: Tensor, needed: bool
) -> None:
    assert (cross_fit_reason(surrogate_config(name, **arguments), labels) is not None) == needed


def test_cross_fit_reason__counts_the_smallest_class_that_has_images() -> None:
    labels = torch.cat([LARGE, torch.full((30,), 6)])
    reason = cross_fit_reason(surrogate_config("slot_mixture"), labels)
    assert reason is not None and "128" in reason and "30 training images" in reason


def test_train__cross_fits_small_classes_says_so_and_can_be_loaded(tmp_path: Path) -> None:
    config, watching = tiny_config(tmp_path / "run", **with_surrogate("slot_mixture")), Messages()
    result = train(config, observer=watching)
    assert any("cross_fit is on" in text and "8 features" in text for text in watching.said)
    assert "surrogate.skipped_samples" in result.metrics[-1]
    assert result.facts["config_hash"] == config_hash(config)
    run = load_run(tmp_path / "run", "last")
    assert "cross_fit" not in run.config.surrogate.arguments and run.facts["cross_fit"]
    loaded = run.surrogate
    assert isinstance(loaded, SlotMixtureCEM) and loaded.cross_fit
    assert torch.equal(loaded.memory.sample, last_checkpoint(tmp_path / "run").part("surrogate")["memory.sample"])


@pytest.mark.parametrize(("said", "large"), [(False, False), (True, True)])
def test_train__what_the_configuration_says_goes_first(tmp_path: Path, said: bool, large: bool) -> None:
    overrides = with_surrogate("slot_mixture") | {"surrogate__arguments__cross_fit": said, "train__epochs": 2}
    if large:
        overrides |= {"surrogate__arguments__bank_size": 1}
    watching = Messages()
    result = train(tiny_config(tmp_path / "run", **overrides), observer=watching)
    assert not any("cross_fit" in text for text in watching.said)
    assert ("surrogate.skipped_samples" in result.metrics[-1]) == said
    loaded = load_run(tmp_path / "run").surrogate
    assert isinstance(loaded, SlotMixtureCEM) and loaded.cross_fit == said


@pytest.mark.parametrize("name", ["none", "gated", "slot_mixture"])
def test_train__images_are_numbered_only_where_they_are_asked_for(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = with_surrogate(name) if name != "none" else {}
    if name == "slot_mixture":
        overrides |= {"surrogate__arguments__cross_fit": False}

    def refuse(self: Batches, *_: Any) -> Any:
        raise AssertionError("nobody asked for numbers")

    monkeypatch.setattr(Batches, "numbered", refuse)
    monkeypatch.setattr(Batches, "sample", property(refuse))
    train(tiny_config(tmp_path / "run", train__epochs=2, **overrides))


def test_train__a_run_from_before_cross_fitting_can_be_loaded_but_not_silently_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = with_surrogate("slot_mixture")
    with monkeypatch.context() as earlier:
        earlier.setattr("attention_cem.training.trainer.cross_fit_reason", lambda config, labels: None)
        train(tiny_config(tmp_path / "run", **overrides))
    loaded = load_run(tmp_path / "run").surrogate
    assert isinstance(loaded, SlotMixtureCEM) and not loaded.cross_fit
    (tmp_path / "run" / "run.json").unlink()
    with pytest.raises(CheckpointError, match="does not fit the run"):
        train(tiny_config(tmp_path / "run", run__resume=True, **overrides))


def one_step(surrogate: SlotMixtureCEM | HybridCEM) -> TrainingStep:
    torch.manual_seed(0)
    client = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Sigmoid())
    model = SplitModel(client, nn.Sequential(nn.Flatten(), nn.Linear(64, 4)))
    optimiser = build_optimiser(model.parameters(), surrogate.parameters(), TrainConfig(), SurrogateConfig())
    return TrainingStep(model, DefenceStack(), surrogate, optimiser, StepSettings())


@pytest.mark.parametrize("mode", [SurrogateMode.OBSERVE, SurrogateMode.ACTIVE])
@pytest.mark.parametrize("name", ["slot_mixture", "hybrid"])
def test_training_step__hands_the_numbers_to_the_surrogate(name: str, mode: SurrogateMode) -> None:
    surrogate = build_surrogate(name, feature_dim=64, num_classes=4, reg_strength=0.1, cross_fit=True)
    assert isinstance(surrogate, SlotMixtureCEM | HybridCEM)
    step, sample = one_step(surrogate), torch.arange(16) * 3
    images, labels = torch.rand(16, 3, 8, 8), torch.arange(16) % 4
    step(images, labels, mode, sample)
    memory = surrogate.memory if isinstance(surrogate, SlotMixtureCEM) else surrogate.refine.memory
    held = memory.sample[memory.written >= 0]
    assert sorted(held.tolist()) == sample.tolist()
    with pytest.raises(ValueError, match="sample="):
        step(images, labels, mode)


def test_batches__numbers_follow_the_images_through_epochs_ranks_and_resume() -> None:
    image_set = load_data("synthetic", limit=90, size=16, num_classes=5).train
    known: dict[int, bytes] = {}

    def check(images: Tensor, labels: Tensor, sample: Tensor) -> None:
        for image, label, number in zip(images, labels, sample.tolist(), strict=True):
            name = image.numpy().tobytes() + bytes([int(label)])
            assert known.setdefault(number, name) == name

    for epoch in range(3):
        for batch in Batches(image_set, 8, seed=1).numbered(epoch):
            check(*batch)
    assert len(known) == len(image_set) == len(set(known.values()))
    for batch in Batches(image_set, 8, seed=1).numbered(1, start_batch=4):
        check(*batch)
    for rank in range(2):
        for batch in Batches(image_set, 8, seed=7, rank=rank, world_size=2).numbered(5):
            check(*batch)
    for batch in Batches(image_set, 10, seed=2, classes_per_batch=5).numbered(0):
        check(*batch)


def test_batches__numbered_batches_are_the_batches() -> None:
    batches = Batches(load_data("synthetic", limit=40, size=16).train, 8, seed=1)
    for plain, numbered in zip(batches(3), batches.numbered(3), strict=True):
        assert torch.equal(plain.images, numbered.images) and torch.equal(plain.labels, numbered.labels)
    for wrong in ((-1, 0), (0, 6)):
        with pytest.raises(ValueError, match="start_batch"):
            batches.numbered(*wrong)


def test_batches__numbers_cut_every_class_into_halves() -> None:
    labels = torch.randint(0, 30, (400,), generator=torch.Generator().manual_seed(0))
    batches = Batches(load_data("synthetic", limit=400, size=16, num_classes=30).train, 8)
    batches._labels = labels
    fold = sample_fold(batches.sample)
    for label in labels.unique():
        first, second = ((fold == side) & (labels == label) for side in (0, 1))
        assert abs(int(first.sum()) - int(second.sum())) <= 1


def test_two_processes__remember_the_samples_that_one_process_does(tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("numbered_on_two_ranks.py"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    launch = {"one": [], "two": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]}
    for name, options in launch.items():
        (tmp_path / name).mkdir()
        command = [sys.executable, *options, script, str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
        assert done.returncode == 0, done.stderr[-3000:]
    alone = load_file(tmp_path / "one" / "surrogate-0.safetensors")
    ranks = [load_file(tmp_path / "two" / f"surrogate-{rank}.safetensors") for rank in (0, 1)]
    for key, value in ranks[0].items():
        assert torch.equal(value, ranks[1][key]), key
    # features differ, since batch norm is local to a rank; who is remembered where does not
    for key in ("memory.sample", "memory.written", "memory.cursor", "memory.label"):
        assert torch.equal(alone[key], ranks[0][key]), key
    assert (alone["memory.written"] >= 0).sum() > 20


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 4])
def test_train__reports_of_small_classes_are_not_below_those_of_fresh_images(tmp_path: Path, slots: int) -> None:
    """A client that hardly moves, so that training images differ from fresh ones in nothing but having been seen."""
    options = {"size": 16, "num_classes": 20, "num_train": 300, "num_test": 1000}
    fresh = load_data("synthetic", seed=0, **options).test
    ratio = {}
    for cross_fit in (False, True):
        overrides = with_surrogate("slot_mixture", lambd=1e-6) | {
            **{f"data__options__{key}": value for key, value in options.items()},
            "data__crop_padding": 0,
            "data__flip": False,
            "surrogate__arguments__bank_size": 32,
            "surrogate__arguments__num_slots": slots,
            "surrogate__arguments__reseed_every": 50,
            "train__lr": 1e-6,
            "train__epochs": 8,
            "run__checkpoint_epochs": 8,
        }
        if not cross_fit:  # otherwise the trainer switches it on
            overrides["surrogate__arguments__cross_fit"] = False
        folder = tmp_path / str(cross_fit)
        result = train(tiny_config(folder, **overrides))
        run = load_run(folder, "last")
        assert run.surrogate is not None and run.surrogate.uses_sample == cross_fit
        with torch.no_grad():
            z = run.model.client(fresh.images.float() / 255)
            measured = run.surrogate(z, fresh.labels, sample=torch.arange(len(fresh)))
        ratio[cross_fit] = result.metrics[-1]["rob_loss"] / measured.rob_loss.item()
    print(f"{slots} slots, training images over fresh ones: plain {ratio[False]:.3f}, cross-fitted {ratio[True]:.3f}")
    assert ratio[False] < 0.9 and 0.95 < ratio[True] < 1.1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_graphed_step__trains_as_the_plain_step_does_with_numbered_images(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda")
    torch.manual_seed(0)
    model = build_split_model("tiny_cnn", 4, (3, 16, 16)).to(device).double().train()
    surrogate = SlotMixtureCEM(128, 4, num_slots=2, bank_size=16, reg_strength=0.1, cross_fit=True, label_space=4)
    surrogate = surrogate.to(device).double()
    monkeypatch.setattr(SlotMixtureCEM, "_maintain_if_due", lambda self, z: None)
    results = []
    for recorded in (False, True):
        own_model, own_surrogate = copy.deepcopy((model, surrogate))
        optimiser = build_optimiser(
            own_model.parameters(),
            own_surrogate.parameters(),
            TrainConfig(lr=0.001),
            SurrogateConfig(),
            recorded=recorded,
        )
        step = TrainingStep(own_model, build_stack([]).to(device), own_surrogate, optimiser, StepSettings())
        call = GraphedStep(step) if recorded else step
        step.lambd.fill_(0.1)
        for number in range(20):
            generator = torch.Generator(device).manual_seed(number % 3)
            sample = torch.randperm(40, generator=generator, device=device)[:16]
            images = torch.rand(16, 3, 16, 16, generator=generator, device=device, dtype=torch.float64)
            seed_stream(device, "step", number)
            call(images, sample % 4, SurrogateMode.OBSERVE if number < 8 else SurrogateMode.ACTIVE, sample)
        results.append((own_model.state_dict(), own_surrogate.state_dict()))
    for plain, graphed in zip(*results, strict=True):
        for key, value in plain.items():
            torch.testing.assert_close(graphed[key], value, rtol=1e-6, atol=1e-8, msg=lambda m, k=key: f"{k}: {m}")
