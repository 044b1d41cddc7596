"""What a training logs of the leakage monitor."""

import json
from pathlib import Path

import torch

from attention_cem.data import split_validation, synthetic_images
from attention_cem.training import Observer, load_run, train
from attention_cem.training.building import scoring_batches
from attention_cem.training.distributed import World
from attention_cem.training.evaluation import score
from attention_cem.training.leakage_monitor import LeakageMonitor

from .helpers import tiny_config, with_surrogate

CPU = torch.device("cpu")


def test_train__every_epoch_carries_the_leakage_and_it_is_that_of_its_weights(tmp_path: Path) -> None:
    overrides = {"data__options__num_train": 200, **with_surrogate("slot_mixture")}
    train(tiny_config(tmp_path / "run", **overrides))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= row["leakage_share"] < 1 and 0 < row["leakage_mse"] < 0.2 for row in rows)
    run = load_run(tmp_path / "run", "last")
    data = synthetic_images(num_train=200, num_test=40, num_classes=4, size=16)
    batches = scoring_batches(split_validation(data.train, 0.2, 0)[1], CPU, World())
    watching = LeakageMonitor(run.stack, batches, run.z_shape, run.image_shape, World()).begin()
    assert watching is not None
    score(run.model, run.stack, batches, num_classes=4, watch=watching.add)
    assert watching.finish() == (rows[-1]["leakage_share"], rows[-1]["leakage_mse"])


def test_train__images_off_the_device_give_the_same_leakage(tmp_path: Path) -> None:
    rows = [
        train(tiny_config(tmp_path / name, train__epochs=1, data__on_device=on)).metrics[0]
        for name, on in (("on", True), ("off", False))
    ]
    assert rows[0]["leakage_share"] == rows[1]["leakage_share"] is not None


class Messages(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


def test_train__too_few_validation_images_are_said_once_and_logged_as_null(tmp_path: Path) -> None:
    watched = Messages()
    result = train(tiny_config(tmp_path / "run", data__validation_fraction=0.1), observer=watched)
    assert [(row["leakage_share"], row["leakage_mse"]) for row in result.metrics] == [(None, None)] * 3
    assert len([text for text in watched.said if "leakage_share" in text]) == 1


def test_train__noise_that_depends_on_the_input_is_measured_on_what_is_released(tmp_path: Path) -> None:
    overrides = {"defence__gaussian_noise": None, "defence__information_bottleneck__weight": 0.001}
    result = train(tiny_config(tmp_path / "run", data__options__num_train=200, **overrides))
    assert all(row["leakage_share"] is not None for row in result.metrics)
