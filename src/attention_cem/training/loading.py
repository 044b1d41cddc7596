"""A trained run as objects again: for attacks, audits, export."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch

from attention_cem.defences import DefenceStack
from attention_cem.splitting import SplitModel
from attention_cem.surrogates.base import ConditionalEntropySurrogate
from attention_cem.training.building import build_networks
from attention_cem.training.checkpoint import CheckpointError, read_checkpoint, step_checkpoints
from attention_cem.training.config import Config
from attention_cem.training.config_checks import ConfigError
from attention_cem.training.config_reading import config_hash
from attention_cem.training.run_folder import RunFolder
from attention_cem.training.run_state import restore_state

_MOST = 100_000
_MOST_VALUES = 1 << 24
"""Of one image."""


@dataclass(frozen=True)
class TrainedRun:
    """A run's networks with their trained weights, in evaluation mode, and the facts that belong to them."""

    folder: Path
    config: Config
    model: SplitModel
    stack: DefenceStack
    surrogate: ConditionalEntropySurrogate | None
    image_shape: tuple[int, int, int]
    z_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    facts: dict[str, Any]


def load_run(
    folder: str | os.PathLike[str],
    which: Literal["best", "last"] = "best",
    *,
    device: torch.device | str = "cpu",
    model: SplitModel | None = None,
) -> TrainedRun:
    """Load the networks of a run folder.

    Args:
        folder: the run folder.
        which: the weights that were best on validation, or those of the newest checkpoint.
        device: where to put them.
        model: the halves, for a run that was given its own model.
    """
    run = RunFolder(Path(folder))
    if not run.exists():
        raise FileNotFoundError(f"{run.path} is no run folder: it has no config.toml")
    paths = [run.best] if which == "best" else step_checkpoints(run.checkpoints)
    if not paths or not paths[-1].is_file():
        raise CheckpointError(f"{run.path} has no {which} checkpoint yet")
    checkpoint = read_checkpoint(paths[-1])
    facts, config = checkpoint.facts, run.config()
    _check_facts(paths[-1], facts)
    if facts.get("config_hash") != config_hash(config):
        raise ConfigError(
            f"{run.config_file} is not what {paths[-1]} was trained with: it was altered or damaged since, and what "
            "it says of the defences cannot be relied on; bring back the original"
        )
    if facts["given_model"] and model is None:
        raise ValueError(
            f"the run in {run.path} trained a model of your own; pass the same halves as model=, which is done from "
            "Python: audit_run, load_run"
        )
    channels, height, width = facts["image_shape"]
    shape = (channels, height, width)
    with torch.random.fork_rng(devices=[]):
        networks = build_networks(
            config,
            shape,
            len(facts["class_names"]),
            torch.device(device),
            model,
            cross_fit=bool(facts.get("cross_fit", False)),  # runs from before it do not say
        )
    modules: dict[str, Any] = {"model": networks.model, "defences": networks.stack}
    if networks.surrogate is not None:
        modules["surrogate"] = networks.surrogate
    restore_state(checkpoint, modules, None, None)
    for module in modules.values():
        module.eval()
    return TrainedRun(
        folder=run.path,
        config=config,
        model=networks.model,
        stack=networks.stack,
        surrogate=networks.surrogate,
        image_shape=shape,
        z_shape=networks.z_shape,
        class_names=tuple(facts["class_names"]),
        facts=facts,
    )


def _check_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Refuse facts from which no network can be built, or one that no machine could hold."""
    given, shape, names = (facts.get(name) for name in ("given_model", "image_shape", "class_names"))
    if not isinstance(given, bool):
        wrong = f"given_model must be true or false, got {given!r:.100}"
    elif not isinstance(shape, list) or len(shape) != 3 or not all(type(n) is int and 1 <= n <= _MOST for n in shape):
        wrong = f"image_shape must be three whole numbers from 1 to {_MOST}, got {shape!r:.100}"
    elif prod(shape) > _MOST_VALUES:
        wrong = f"image_shape must have at most {_MOST_VALUES} values, got {shape!r:.100}"
    elif not isinstance(names, list) or not 1 <= len(names) <= _MOST or not all(isinstance(n, str) for n in names):
        wrong = f"class_names must be 1 to {_MOST} names, got {names!r:.100}"
    else:
        return
    raise CheckpointError(f"{path} is damaged: {wrong}")
