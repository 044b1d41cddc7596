"""The seconds of an epoch are what a method costs: waits for the device and the surrogate's own work belong to them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attention_cem.surrogates import KMeansCEM
from attention_cem.training import train, trainer
from attention_cem.training.nonfinite import NonFiniteMonitor

from .helpers import tiny_config, with_surrogate

PAUSE = 0.3


def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any, **named: Any) -> Any:
        time.sleep(PAUSE)
        return function(*arguments, **named)

    return slow


def seconds(folder: Path, **overrides: Any) -> float:
    config = tiny_config(folder, train__epochs=2, train__check_steps=1, **overrides)  # 4 steps an epoch
    took: float = train(config).metrics[-1]["seconds"]
    return took


def test_clock__waiting_for_the_device_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NonFiniteMonitor, "check", slowed(NonFiniteMonitor.check))
    assert seconds(tmp_path / "run") >= 4 * PAUSE


def test_clock__fitting_an_estimator_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KMeansCEM, "fit", slowed(KMeansCEM.fit))
    assert seconds(tmp_path / "run", **with_surrogate("kmeans"), surrogate__attention_warmup_epochs=0) >= PAUSE


def test_clock__writing_a_checkpoint_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "write_checkpoint", slowed(trainer.write_checkpoint))
    began = time.monotonic()
    took = seconds(tmp_path / "run", run__checkpoint_seconds=1e-9)
    assert time.monotonic() - began >= 8 * PAUSE and took < 4 * PAUSE
