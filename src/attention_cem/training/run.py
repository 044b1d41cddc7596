"""`train(config)`: a whole run, from an empty folder or from where it was left."""

from __future__ import annotations

import os
import platform
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from attention_cem.data import ImageData
from attention_cem.splitting import SplitModel
from attention_cem.training.building import fast_arithmetic, resolve_device
from attention_cem.training.config import Config
from attention_cem.training.config_checks import ConfigError, check_config
from attention_cem.training.config_reading import config_from_dict, config_hash, config_to_dict
from attention_cem.training.curves import draw_curves
from attention_cem.training.distributed import World, joined_world
from attention_cem.training.evaluation import Score
from attention_cem.training.folder_lock import alone_in
from attention_cem.training.interruption import TrainingInterrupted, stop_requests
from attention_cem.training.observer import Observer
from attention_cem.training.run_folder import RunFolder, folder_for
from attention_cem.training.trainer import Trainer
from attention_cem.versions import program_versions


@dataclass(frozen=True)
class RunResult:
    """What a finished run leaves.

    Args:
        folder: the run folder.
        best_epoch: epoch (from 1) of the best validation accuracy, whose weights ``best.safetensors`` holds.
        best_accuracy: that accuracy.
        test_accuracy: accuracy of those weights on the test images, scored once.
        metrics: one object per epoch.
        facts: the content of ``run.json``.
    """

    folder: Path
    best_epoch: int
    best_accuracy: float
    test_accuracy: float
    metrics: list[dict[str, Any]]
    facts: dict[str, Any]


def train(
    config: Config,
    *,
    data: ImageData | None = None,
    model: SplitModel | None = None,
    observer: Observer | None = None,
) -> RunResult:
    """Train the run that ``config`` describes, in its folder.

    With ``run.resume`` a run that was stopped or killed continues from its newest checkpoint, and a finished one
    returns its result. Under torchrun every process calls this and they train together.

    Args:
        config: from `load_config`, or built in Python.
        data: your own images instead of ``config.data``.
        model: your own halves (see `attention_cem.splitting.split`) instead of ``config.model``.
        observer: who watches.

    Raises:
        ConfigError: impossible settings, an occupied folder, a changed configuration.
        TrainingInterrupted: asked to stop (Ctrl-C, SIGTERM); the run can be continued. One that was asked after its
            last step is finished, and returns its result when it is called again.
        TrainingFailedError: losses were not finite for too long.
        CheckpointError: a checkpoint could not be written or read; those before it are intact.

    >>> import tempfile
    >>> from attention_cem.training import load_config, train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     config = load_config(overrides={
    ...         "model.name": "tiny_cnn", "data.limit": 40, "train.epochs": 1, "train.batch_size": 16,
    ...         "run.folder": folder + "/run", "run.device": "cpu", "run.tensorboard": False, "run.figures": False,
    ...     })
    ...     len(train(config).metrics)
    1
    """
    config = config_from_dict(config_to_dict(config))  # one built in Python as its file will be read: 1 for 1.0, say
    check_config(config)
    kind = resolve_device(config.run.device).type
    cuda = list(range(torch.cuda.device_count())) if kind == "cuda" else []
    with joined_world(kind) as world, torch.random.fork_rng(devices=cuda):
        device = resolve_device(config.run.device, world.local_rank)
        folder = folder_for(config)
        if world.is_main:
            folder.prepare(config)
        with alone_in(folder.path) if world.is_main else nullcontext():
            if world.is_main:
                folder.tidy()
            return _trained(config, folder, device, world, data=data, model=model, observer=observer)


def _trained(
    config: Config,
    folder: RunFolder,
    device: torch.device,
    world: World,
    *,
    data: ImageData | None,
    model: SplitModel | None,
    observer: Observer | None,
) -> RunResult:
    world.wait()
    finished = folder.result()
    if finished is not None:
        return _result(config, folder, finished)
    try:
        trainer = Trainer(config, folder, device, world, data=data, model=model, observer=observer)
    except BaseException as error:
        folder.withdraw()  # nothing was trained: the next call finds the folder as this one did
        if isinstance(error, ValueError):
            raise ConfigError(str(error)) from error
        raise
    with fast_arithmetic(device), stop_requests() as stop:
        trainer.resume()
        trainer.run(stop)
        test = trainer.test()
    facts = _facts(trainer, test, world)
    if world.is_main:
        if config.run.figures:
            draw_curves(folder.metrics(), folder.curves_file, config.surrogate.name)
        folder.write_result(facts)
        trainer.best_weights.finish()
    world.wait()
    if stop.asked:  # after the last step: the run is whole, but whoever asked wants nothing after it
        raise TrainingInterrupted(str(folder.path))
    return _result(config, folder, facts)


def _result(config: Config, folder: RunFolder, facts: dict[str, Any]) -> RunResult:
    return RunResult(
        folder=folder.path,
        best_epoch=facts["best_epoch"],
        best_accuracy=facts["best_accuracy"],
        test_accuracy=facts["test"]["accuracy"],
        metrics=folder.metrics(config.train.epochs),
        facts=facts,
    )


def _facts(trainer: Trainer, test: Score, world: World) -> dict[str, Any]:
    rows = trainer.folder.metrics()
    active = [row["shutoff_share"] for row in rows if row["lambd"] and row["shutoff_share"] is not None]
    device = trainer.device
    return {
        "best_epoch": trainer.best.epoch,
        "best_accuracy": trainer.best.accuracy,
        "test": asdict(test),
        "last_epoch": rows[-1] if rows else None,
        "epochs": trainer.config.train.epochs,
        "seconds": trainer.seconds,
        "nonfinite_steps": trainer.monitor.check("end"),
        "shutoff_share_when_active": sum(active) / len(active) if active else None,
        "config_hash": config_hash(trainer.config),
        "cross_fit": trainer.cross_fit is not None,
        "data_source": trainer.images.source,
        "train_images": len(trainer.images.train.image_set),
        "validation_images": len(trainer.images.validation.image_set),
        "test_images": len(trainer.images.test),
        "image_shape": list(trainer.images.image_shape),
        "class_names": list(trainer.images.class_names),
        "z_shape": list(trainer.networks.z_shape),
        "client_parameters": sum(p.numel() for p in trainer.model.client.parameters()),
        "server_parameters": sum(p.numel() for p in trainer.model.server.parameters()),
        "defences": trainer.stack.describe(),
        "versions": program_versions(),
        "hardware": {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
            "processes": world.size,
            "cpu_threads": torch.get_num_threads(),
            "cpus": os.cpu_count(),
        },
    }
