"""The folder a run lives in: configuration, metrics, checkpoints, final figures."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from attention_cem.training.activation import SurrogateMode
from attention_cem.training.config import Config
from attention_cem.training.config_checks import ConfigError
from attention_cem.training.config_reading import config_hash, config_to_dict, differences, load_config
from attention_cem.training.files import remove_leftovers, write_atomically
from attention_cem.training.toml_writing import to_toml

_MAX_METRICS_BYTES = 1 << 30
_METRICS_REMEDY = "bring back a copy of it, or train the run again in another run.folder"
_NUMBERS = ("balanced_accuracy", "nonfinite_steps", "lambd", "seconds", "images_per_s")
_NUMBERS_OR_NULL = ("rob_loss", "shutoff_share")


class RunFolder:
    """Paths and small files of one run; large tensors are the business of `checkpoint`.

    ::

        config.toml  metrics.jsonl  run.json  curves.png  checkpoints/  tensorboard/
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.metrics_file = path / "metrics.jsonl"
        self.result_file = path / "run.json"
        self.curves_file = path / "curves.png"
        self.checkpoints = path / "checkpoints"
        self.best = self.checkpoints / "best.safetensors"
        self.tensorboard = path / "tensorboard"
        self.lock = path / "run.lock"
        self._made: list[Path] = []

    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.config_file.is_file()

    def prepare(self, config: Config) -> None:
        """Start a run here, or check that the one that is here has the same configuration.

        Raises:
            ConfigError: a run is here and ``run.resume`` is false, its configuration differs, or nothing can be written
                here.
        """
        try:
            if self.exists():
                self._continue(config)
            else:
                self._start(config)
        except OSError as error:
            self.withdraw()
            raise ConfigError(
                f"the folder {self.path} cannot be made or written ({error.strerror or error}); "
                "choose a run.folder inside a folder you can write to"
            ) from None

    def withdraw(self) -> None:
        """Undo `prepare` where nothing was trained: what it made goes, what was here before stays."""
        for path in self._made:
            with suppress(OSError):  # never made, or a folder with something in it
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink()
        self._made = []

    def _start(self, config: Config) -> None:
        if self.path.is_dir() and any(self.path.iterdir()) and not self.checkpoints.is_dir():
            raise ConfigError(f"the folder {self.path} holds other files; choose an empty or new run.folder")
        made = (self.config_file, self.lock, self.checkpoints, self.path, *self.path.parents)
        self._made = [path for path in made if not os.path.lexists(path)]
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_atomically(self.config_file, (to_toml(config_to_dict(config)) + "\n").encode())

    def _continue(self, config: Config) -> None:
        if not config.run.resume:
            raise ConfigError(
                f"the folder {self.path} already holds a run; continue it with --run.resume true "
                "or choose another run.folder"
            )
        changed = differences(self.config(), config)
        if changed:
            raise ConfigError(
                f"the configuration differs from the one in {self.config_file}: {'; '.join(changed)}. "
                "Resume with the same settings, or start a new run in another run.folder"
            )
        self.checkpoints.mkdir(exist_ok=True)

    def tidy(self) -> None:
        """Delete what a killed process left half-written; only for whoever is `alone_in` the folder."""
        remove_leftovers(self.checkpoints)
        remove_leftovers(self.path)

    def config(self) -> Config:
        """The configuration the run was started with."""
        return load_config(self.config_file)

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add one epoch's object to ``metrics.jsonl``."""
        with self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self, epochs: int = 0) -> list[dict[str, Any]]:
        """All epochs' objects; a last line that a killed process left unfinished is not counted.

        Args:
            epochs: so many were trained, and must be there.

        Raises:
            ConfigError: a line is damaged, or an epoch is missing.
        """
        rows = []
        if self.metrics_file.is_file():
            if self.metrics_file.stat().st_size > _MAX_METRICS_BYTES:
                raise ConfigError(f"{self.metrics_file} is larger than {_MAX_METRICS_BYTES} bytes; {_METRICS_REMEDY}")
            whole = self.metrics_file.read_bytes().split(b"\n")[:-1]  # what follows the last line break is unfinished
            for number, line in enumerate(whole, start=1):
                try:
                    rows += [_checked_row(line)] if line else []
                except (ValueError, RecursionError) as error:
                    raise ConfigError(
                        f"{self.metrics_file}: line {number} is damaged ({error}); {_METRICS_REMEDY}"
                    ) from None
        there = [row["epoch"] for row in rows]
        if there != list(range(1, len(there) + 1)) or len(there) < epochs:
            raise ConfigError(
                f"{self.metrics_file} must hold the epochs from 1 on,{f' {epochs} at least,' * (epochs > 0)} each "
                f"once, got {len(there)} of them; {_METRICS_REMEDY}"
            )
        return rows

    def keep_metrics(self, epochs: int) -> list[dict[str, Any]]:
        """Drop the objects of epochs after ``epochs``: they will be trained again."""
        rows = self.metrics(epochs)[:epochs]
        write_atomically(self.metrics_file, "".join(json.dumps(row) + "\n" for row in rows).encode())
        return rows

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write ``run.json``."""
        write_atomically(self.result_file, (json.dumps(result, indent=2) + "\n").encode())

    def result(self) -> dict[str, Any] | None:
        """What ``run.json`` holds; None while the run is not finished.

        Raises:
            ConfigError: it is not what `write_result` wrote.
        """
        if not self.result_file.is_file():
            return None
        try:
            loaded: dict[str, Any] = json.loads(self.result_file.read_text(encoding="utf-8"))
            for figure in (loaded["best_epoch"], loaded["best_accuracy"], loaded["test"]["accuracy"]):
                float(figure)
        except KeyError as missing:
            reason = f"it has no {missing}"
        except (ValueError, RecursionError) as error:
            reason = str(error)
        except TypeError:
            reason = "it does not hold the figures of a run"
        else:
            return loaded
        raise ConfigError(f"{self.result_file} is damaged ({reason}): delete it and resume")


def _checked_row(line: bytes) -> dict[str, Any]:
    """One line of ``metrics.jsonl``; ValueError where it lacks what continuing or summing up the run needs."""
    row = json.loads(line.decode())
    if not isinstance(row, dict) or type(row.get("epoch")) is not int:
        raise ValueError("it is no object with an epoch")
    SurrogateMode(row.get("surrogate_mode"))
    for name in (*_NUMBERS, *_NUMBERS_OR_NULL):
        value = row.get(name)
        if type(value) not in (int, float) and not (value is None and name in _NUMBERS_OR_NULL):
            raise ValueError(f"{name} must be a number, got {value!r:.100}")
    return row


def folder_for(config: Config) -> RunFolder:
    """The folder the configuration names, or one named after what is trained.

    >>> folder_for(Config()).path.as_posix().startswith("runs/synthetic-vgg11_bn-none-")
    True
    """
    if config.run.folder is not None:
        return RunFolder(Path(config.run.folder).expanduser())
    name = f"{config.data.name}-{config.model.name}-{config.surrogate.name}-{config_hash(config)[:8]}"
    return RunFolder(Path("runs") / name)
