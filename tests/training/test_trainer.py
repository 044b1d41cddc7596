import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from attention_cem.data import ImageData, ImageSet, synthetic_images
from attention_cem.splitting import split
from attention_cem.training import ConfigError, Observer, RunStart, load_run, score, train
from attention_cem.training.building import scoring_batches
from attention_cem.training.checkpoint import read_checkpoint
from attention_cem.training.distributed import World
from attention_cem.training.run_folder import RunFolder
from attention_cem.training.trainer import Trainer

from .helpers import SURROGATES, tiny_config, with_surrogate

REQUIRED = {
    "epoch",
    "loss",
    "accuracy",
    "rob_loss",
    "intra_mse",
    "leakage_share",
    "leakage_mse",
    "lambd",
    "lr",
    "active_classes",
    "shutoff_share",
    "images_per_s",
}


@pytest.mark.parametrize("name", sorted(SURROGATES))
def test_train__every_surrogate_leaves_a_complete_folder(tmp_path: Path, name: str) -> None:
    overrides = with_surrogate(name) | {"surrogate__attention_warmup_epochs": 2, "train__epochs": 4}
    result = train(tiny_config(tmp_path / "run", **overrides))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4] and all(row.keys() >= REQUIRED for row in rows)
    assert [row["lambd"] for row in rows] == [0, 0, 1.0, 1.0]
    fitted_later = "off" if name == "kmeans" else "observe"
    assert [row["surrogate_mode"] for row in rows] == [fitted_later, "observe", "active", "active"]
    assert all(row["rob_loss"] is not None and 2 < row["active_classes"] <= 4 for row in rows[1:])
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["test"]["accuracy"] == result.test_accuracy and facts["versions"]["torch"] == str(torch.__version__)
    assert facts["config_hash"] and facts["seconds"] > 0 and facts["z_shape"] == [2, 4, 4]
    # only epochs in which the surrogate acts count
    best = max(rows[2:], key=lambda row: (row["accuracy"], -row["epoch"]))
    assert (facts["best_epoch"], facts["best_accuracy"]) == (best["epoch"], best["accuracy"])


def test_train__same_seed_same_run_other_seed_other_run(tmp_path: Path) -> None:
    results = [
        train(tiny_config(tmp_path / name, train__seed=seed, train__epochs=1)).metrics[0]["train_loss"]
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert results[0] == results[1] != results[2]


def test_train__leaves_the_callers_random_state_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    train(tiny_config(tmp_path / "run", train__epochs=1))
    assert torch.equal(torch.rand(1), expected)


def test_train__checkpoint_is_chosen_on_validation_not_on_test(tmp_path: Path) -> None:
    """Test labels are all wrong for whatever validation prefers: the choice must not notice."""
    data = synthetic_images(num_train=80, num_test=40, num_classes=4, size=16)
    wrong = ImageSet(data.test.images, (data.test.labels + 1) % 4, data.class_names)
    other = ImageData("synthetic", data.train, wrong)
    first = train(tiny_config(tmp_path / "a"), data=data)
    second = train(tiny_config(tmp_path / "b"), data=other)
    assert first.best_epoch == second.best_epoch and first.best_accuracy == second.best_accuracy
    for ours, theirs in (
        (read_checkpoint(r.folder / "checkpoints" / "best.safetensors").part("model") for r in (first, second)),
    ):
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_load_run__gives_the_networks_whose_score_the_run_reports(tmp_path: Path) -> None:
    overrides = {"defence__gaussian_noise": None, "train__epochs": 2}
    result = train(tiny_config(tmp_path / "run", **overrides))
    run = load_run(result.folder)
    data = synthetic_images(num_train=80, num_test=40, num_classes=4, size=16)
    batches = scoring_batches(data.test, torch.device("cpu"), World())
    assert score(run.model, run.stack, batches, num_classes=4).accuracy == result.test_accuracy
    assert run.z_shape == (2, 4, 4) and run.class_names == data.class_names and not run.model.training
    assert load_run(result.folder, "last").facts["epoch"] == 2
    with pytest.raises(FileNotFoundError, match="no run folder"):
        load_run(tmp_path)


def test_train__takes_a_users_model_and_data(tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 4, 4))
    halves = split(whole, at="1")
    data = synthetic_images(num_train=80, num_test=40, num_classes=4, size=16)
    before = whole[0].weight.clone()
    result = train(tiny_config(tmp_path / "run", **with_surrogate("gated")), data=data, model=halves)
    assert result.facts["z_shape"] == [4, 4, 4] and not torch.equal(before, whole[0].weight)
    with pytest.raises(ValueError, match="pass the same halves as model=.* from Python: audit_run, load_run"):
        load_run(result.folder)
    assert load_run(result.folder, model=halves).z_shape == (4, 4, 4)


def test_train__class_balanced_batches(tmp_path: Path) -> None:
    overrides = with_surrogate("gated") | {"data__classes_per_batch": 2, "train__epochs": 2}
    result = train(tiny_config(tmp_path / "run", **overrides))
    assert result.metrics[-1]["active_classes"] == 2


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"data__name": "cifar11"}, "unknown data set 'cifar11'"),
        ({"model__name": "vgg12"}, "unknown backbone 'vgg12'"),
        ({"surrogate__name": "slot_corss"}, "did you mean 'slot_cross'"),
        ({"surrogate__name": "gated", "surrogate__arguments__hiden": 3}, "did you mean 'hidden'"),
        ({"defence__gausian_noise__sigma": 0.1}, "did you mean 'gaussian_noise'"),
        ({"train__batch_size": 4096}, "give no batch of 4096"),
        ({"run__device": "cdua"}, "run.device must be"),
    ],
)
def test_train__what_cannot_be_built_is_a_config_error(
    tmp_path: Path, overrides: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(tiny_config(tmp_path / "run", **overrides))


class Recorder(Observer):
    def __init__(self) -> None:
        self.starts: list[RunStart] = []
        self.steps: list[tuple[int, int]] = []
        self.messages: list[str] = []

    def started(self, start: RunStart) -> None:
        self.starts.append(start)

    def step(self, epoch: int, batch: int) -> None:
        self.steps.append((epoch, batch))

    def message(self, text: str) -> None:
        self.messages.append(text)


def test_train__the_observer_sees_every_step_and_a_surrogate_that_shut_itself_off(tmp_path: Path) -> None:
    watched = Recorder()
    overrides = {"surrogate__name": "slot_cross", "surrogate__lambd": 1.0, "surrogate__arguments__slot_dim": 16}
    train(tiny_config(tmp_path / "run", **overrides), observer=watched)
    assert watched.steps == [(epoch, step) for epoch in (1, 2, 3) for step in (1, 2, 3, 4)]
    assert watched.starts[0].steps_per_epoch == 4 and watched.starts[0].train_images == 64
    shut = [text for text in watched.messages if "shut off on 100%" in text]
    assert len(shut) == 1 and shut[0].startswith("[CEM-GATE] epoch 2: "), "said once, not every epoch"


def test_train__a_warm_up_that_outlasts_the_run_is_said(tmp_path: Path) -> None:
    watched = Recorder()
    overrides = with_surrogate("gated") | {"surrogate__attention_warmup_epochs": 3}
    train(tiny_config(tmp_path / "run", **overrides), observer=watched)
    assert watched.messages[0].startswith("the surrogate is never used: it becomes active in epoch 4")


@pytest.mark.parametrize(
    ("ramp_steps", "said"), [(8, ""), (9, "only after epoch 3 of 4"), (500, "in none of the 4 epochs")]
)
def test_train__a_defence_that_acts_in_full_late_or_never_is_said(tmp_path: Path, ramp_steps: int, said: str) -> None:
    watched = Recorder()
    penalty = {"weight": 0.1, "random_features": 0, "ramp_steps": ramp_steps}
    overrides = {f"defence__linear_leakage__{name}": value for name, value in penalty.items()}
    train(tiny_config(tmp_path / "run", train__epochs=4, **overrides), observer=watched)
    told = [text for text in watched.messages if text.startswith("the defences act in full")]
    assert len(told) == bool(said) and all(said in text for text in told)


def test_train__tensorboard_and_curves(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    pytest.importorskip("matplotlib")
    overrides = with_surrogate("gated") | {"run__tensorboard": True, "run__figures": True, "train__epochs": 2}
    train(tiny_config(tmp_path / "run", **overrides))
    log = events.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    log.Reload()
    assert {"accuracy", "rob_loss", "lambd", "leakage_share", "leakage_mse"} <= set(log.Tags()["scalars"])
    assert "surrogate/attention" in log.Tags()["histograms"]
    assert (tmp_path / "run" / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_score__equals_a_plain_loop_and_sees_the_defences(tmp_path: Path) -> None:
    result = train(tiny_config(tmp_path / "run", train__epochs=1))
    run = load_run(result.folder)
    data = synthetic_images(num_train=80, num_test=37, num_classes=4, size=16)
    batches = scoring_batches(data.test, torch.device("cpu"), World())
    torch.manual_seed(3)
    ours = score(run.model, run.stack, batches, num_classes=4)
    torch.manual_seed(3)
    with torch.no_grad():
        logits = run.model.server(run.stack(run.model.client(data.test.images.float() / 255)))
    right = (logits.argmax(1) == data.test.labels).double()
    assert ours.accuracy == pytest.approx(float(right.mean()))
    assert ours.loss == pytest.approx(float(nn.functional.cross_entropy(logits, data.test.labels)), rel=1e-6)
    per_class = [float(right[data.test.labels == label].mean()) for label in range(4)]
    assert ours.balanced_accuracy == pytest.approx(sum(per_class) / 4)
    torch.manual_seed(4)
    assert score(run.model, run.stack, batches, num_classes=4).loss != ours.loss, "noise acts in validation too"


def test_train__weights_from_before_the_surrogate_acts_in_full_are_not_kept(tmp_path: Path) -> None:
    # λ so large that accuracy falls as soon as the surrogate acts: the best epochs are those before
    overrides = with_surrogate("slot_mixture", lambd=300.0)
    schedule = {"surrogate__attention_warmup_epochs": 3, "train__epochs": 7, "data__options__num_train": 160}
    result = train(tiny_config(tmp_path / "run", **overrides | schedule))
    accuracies = [row["accuracy"] for row in result.metrics]
    assert result.facts["best_epoch"] >= 4
    assert result.facts["best_accuracy"] == max(accuracies[3:])


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"channel_pruning__share": 0.5, "channel_pruning__end_epoch": 4}, 5),
        ({"linear_leakage__weight": 0.3, "linear_leakage__ramp_steps": 20}, 6),  # 4 steps an epoch
        ({"linear_leakage__weight": 0.3, "linear_leakage__ramp_steps": 0}, 1),
        ({"linear_leakage__weight": 0.3, "linear_leakage__ramp_steps": 500}, 7),  # not over when the training ends
    ],
)
def test_train__weights_from_before_a_defence_acts_in_full_are_not_kept(
    tmp_path: Path, settings: dict[str, Any], first: int
) -> None:
    named = {f"defence__{key}": value for key, value in settings.items()}
    config = tiny_config(tmp_path / "run", train__epochs=7, **named)
    trainer = Trainer(config, RunFolder(tmp_path / "run"), torch.device("cpu"), World())
    assert trainer.first_counted == first
