"""What is kept of every epoch: its object in metrics.jsonl, its TensorBoard point, warnings about its health."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from attention_cem.surrogates import SelfDeceptionAlarm
from attention_cem.training.activation import SurrogateMode
from attention_cem.training.chance_alarm import ChanceAlarm
from attention_cem.training.config import Config
from attention_cem.training.evaluation import Score
from attention_cem.training.leakage_monitor import Leakage
from attention_cem.training.loggers import TensorBoardLog
from attention_cem.training.observer import Observer
from attention_cem.training.progress import Position, StepValues
from attention_cem.training.run_folder import RunFolder


class EpochTimes:
    """Clock of an epoch's training: its steps, and what the surrogate does between them or before the first.

    Checkpoints in between and validation do not count. What the device still has to do when a pause begins would be
    left out as well: wait for the device first.
    """

    def __init__(self, batch_size: int) -> None:
        self.steps = 0
        self._batch_size = batch_size
        self._start = time.perf_counter()
        self._paused = 0.0
        self.seconds = 0.0

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave out what happens in the block."""
        before = time.perf_counter()
        yield
        self._paused += time.perf_counter() - before

    def stop(self) -> None:
        """The last step is done."""
        self.seconds = time.perf_counter() - self._start - self._paused

    @property
    def images_per_s(self) -> float:
        """Training images per second, over all processes."""
        return self.steps * self._batch_size / max(self.seconds, 1e-9)


def epoch_row(
    epoch: int,
    means: Mapping[str, float],
    validation: Score,
    leakage: Leakage,
    values: StepValues,
    mode: SurrogateMode,
    times: EpochTimes,
    nonfinite_steps: int,
) -> dict[str, Any]:
    """One epoch's object of ``metrics.jsonl``.

    ``loss`` and ``accuracy`` are those of validation; ``train_loss``, ``rob_loss``, ``intra_mse`` and the
    diagnostics are means over the epoch's steps; null stands for what was not measured.

    Two of them bracket what z tells about x, in units of their own: at least the share ``leakage_share`` of the
    within-class variance of x can be recovered (a linear attacker did, on validation images it had not seen, with
    the error ``leakage_mse`` per pixel), and with `SlotMixtureCEM` at most ``rob_loss`` nats per value of z.
    """
    observed = mode is not SurrogateMode.OFF
    return {
        "epoch": epoch,
        "loss": validation.loss,
        "accuracy": validation.accuracy,
        "balanced_accuracy": validation.balanced_accuracy,
        "train_loss": means.get("train_loss"),
        "train_accuracy": means.get("train_accuracy"),
        "rob_loss": means.get("rob_loss"),
        "intra_mse": means.get("intra_mse"),
        "leakage_share": leakage.share,
        "leakage_mse": leakage.mse,
        "lambd": values.lambd,
        "lr": values.lr,
        "estimator_lr": values.estimator_lr,
        "active_classes": means.get("surrogate.active_classes"),
        "shutoff_share": means.get("surrogate.shut_off", 0.0) if observed else None,
        "surrogate_mode": mode.value,
        "nonfinite_steps": nonfinite_steps,
        "images_per_s": times.images_per_s,
        "seconds": times.seconds,
        **{name: value for name, value in means.items() if "." in name and name != "surrogate.active_classes"},
    }


class RunLog:
    """Keeps the epochs of a run; only the main process writes.

    Args:
        config: of the run.
        folder: its folder; metrics of epochs that will be trained again are dropped.
        observer: who watches.
        is_main: whether this process writes.
        position: where the run starts or continues.
        chance: what tells a model that learns nothing.
    """

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        observer: Observer,
        is_main: bool,
        position: Position,
        chance: ChanceAlarm,
    ) -> None:
        self._folder, self._observer, self._is_main = folder, observer, is_main
        self._said: set[str] = set()
        self._alarm = SelfDeceptionAlarm()
        self._chance = chance
        self._nonfinite = 0
        self._tensorboard: TensorBoardLog | None = None
        if is_main:
            rows = folder.keep_metrics(position.epoch)
            self._nonfinite = rows[-1]["nonfinite_steps"] if rows else 0
            for row in rows:
                self._said.update(map(_kind, self._alarms(row, SurrogateMode(row["surrogate_mode"]))))
            if config.run.tensorboard:
                self._tensorboard = TensorBoardLog(folder.tensorboard, position.epoch + 1)

    def epoch(
        self, row: Mapping[str, Any], mode: SurrogateMode, vectors: Mapping[str, Tensor], surrogate: nn.Module | None
    ) -> None:
        """Keep one epoch."""
        if not self._is_main:
            return
        row = {**row, "alarms": self._alarms(row, mode)}
        self._folder.append_metrics(row)
        if self._tensorboard is not None:
            self._tensorboard.scalars(row)
            self._tensorboard.histograms(vectors, row["epoch"])
            if surrogate is not None:
                self._tensorboard.gates(surrogate, row["epoch"])
        self._observer.epoch_done(row)
        self._warn(row)

    def close(self) -> None:
        """Close the event files."""
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _alarms(self, row: Mapping[str, Any], mode: SurrogateMode) -> list[str]:
        learning = self._chance.update(row["balanced_accuracy"])
        said = [] if learning is None else [learning]
        if mode is not SurrogateMode.ACTIVE or row["rob_loss"] is None:
            return said
        figures = {name.removeprefix("surrogate."): value for name, value in row.items()}
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        return [*said, *self._alarm.update(numbers)]

    def _warn(self, row: Mapping[str, Any]) -> None:
        if row["nonfinite_steps"] > self._nonfinite:
            self._observer.message(
                f"epoch {row['epoch']}: the surrogate was not finite on {row['nonfinite_steps'] - self._nonfinite} "
                "step(s); they trained without it"
            )
            self._nonfinite = row["nonfinite_steps"]
        for text in row["alarms"]:
            if _kind(text) not in self._said:
                self._said.add(_kind(text))
                self._observer.message(f"[CEM-GATE] epoch {row['epoch']}: {text}")


def _kind(alarm: str) -> str:
    """The alarm without its figures, which change every epoch: a sentence is said once in a run."""
    return re.sub(r"[\d.,+%-]+", "", alarm)
