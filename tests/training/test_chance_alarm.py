import json
from pathlib import Path

import pytest

from attention_cem.training import train
from attention_cem.training.chance_alarm import ChanceAlarm
from attention_cem.training.observer import Observer
from tests.training.helpers import tiny_config


class Listener(Observer):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def test_update__a_slow_start_is_not_an_alarm() -> None:
    alarm = ChanceAlarm(num_classes=10)
    assert [alarm.update(share) for share in (0.10, 0.11, 0.13, 0.10, 0.10)] == [None] * 5
    said = alarm.update(0.10)
    assert said is not None and said.startswith("nothing is learned: balanced accuracy 10.0 % after 6 epochs, 10.0 %")


def test_update__a_task_of_one_class_cannot_be_above_chance() -> None:
    alarm = ChanceAlarm(num_classes=1, patience=1)
    assert alarm.update(1.0) is None


def test_train__classes_that_validation_lacks_do_not_lower_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer for all gets a fifth right where five classes are seen, however many there are."""
    monkeypatch.setattr("attention_cem.training.trainer.patience", lambda steps: 2)
    listener = Listener()
    overrides = {
        "data__options__num_classes": 30,
        "data__options__num_train": 60,
        "data__validation_fraction": 0.1,
        "defence__linear_leakage__weight": 1000.0,
        "defence__linear_leakage__ramp_steps": 0,
        "defence__linear_leakage__random_features": 0,
        "data__classes_per_batch": 4,
    }
    train(tiny_config(tmp_path, train__epochs=8, train__lr=0.05, **overrides), observer=listener)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert any(row["balanced_accuracy"] > 1.1 / 30 for row in rows), "else every class count would do"
    assert any("nothing is learned" in text for text in listener.messages)


def collapsing(folder: Path, weight: float) -> tuple[list[str], list[list[str]]]:
    listener = Listener()
    overrides = {
        "defence__linear_leakage__weight": weight,
        "defence__linear_leakage__ramp_steps": 0,
        "defence__linear_leakage__random_features": 0,
        "data__options__num_train": 640,
        "train__epochs": 11,
        "train__lr": 0.05,
    }
    train(tiny_config(folder, **overrides), observer=listener)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [text for text in listener.messages if "nothing is learned" in text], [row["alarms"] for row in rows]


def test_train__a_defence_that_leaves_nothing_is_said_once_and_kept_in_every_row(tmp_path: Path) -> None:
    said, alarms = collapsing(tmp_path / "strong", 1000.0)
    assert len(said) == 1 and said[0].startswith("[CEM-GATE] epoch ")
    assert any("nothing is learned" in text for text in alarms[-1]) and not alarms[0]
    assert collapsing(tmp_path / "mild", 0.01) == ([], [[]] * 11)
