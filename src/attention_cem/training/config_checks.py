"""Settings that are each of the right type but impossible, alone or together."""

from __future__ import annotations

import math

from attention_cem.training.config import Config

# Far beyond what anybody uses, and within what single precision, and a machine's memory, can hold.
_LARGEST, _SMALLEST_SIGMA = 10**9, 1e-9
_LARGE_AT_WILL = ("train.clip_norm", "run.checkpoint_seconds")  # a large one means: never
_MAX_CROP_PADDING = 1024
_MAX_CHANNELS = 16_384
_MAX_SIZE = 65_536
_SIZES = (
    "num_slots",
    "num_clusters",
    "num_heads",
    "bank_size",
    "slot_dim",
    "key_dim",
    "hidden",
    "gate_hidden",
    "rank",
)


class ConfigError(ValueError):
    """A configuration that cannot be run; the message is one line for the person who wrote it."""


def check_config(config: Config) -> None:
    """Raise `ConfigError` for the first impossible setting or combination.

    >>> from attention_cem.training.config import Config, TrainConfig
    >>> check_config(Config(train=TrainConfig(epochs=0)))
    Traceback (most recent call last):
    ...
    attention_cem.training.config_checks.ConfigError: train.epochs must be at least 1, got 0
    """
    data, surrogate, train, run = config.data, config.surrogate, config.train, config.run
    _at_least("train.epochs", train.epochs, 1)
    _at_least("train.batch_size", train.batch_size, 1)
    _at_least("train.nonfinite_limit", train.nonfinite_limit, 1)
    _at_least("train.check_steps", train.check_steps, 1)
    _at_least("run.checkpoint_epochs", run.checkpoint_epochs, 1)
    _at_least("model.bottleneck_channels", config.model.bottleneck_channels, 0)
    _at_least("model.blind_frequencies", config.model.blind_frequencies, 0)
    _at_least("data.crop_padding", data.crop_padding, 0)
    _at_least("surrogate.ramp_epochs", surrogate.ramp_epochs, 1)
    _at_least("surrogate.attention_warmup_epochs", surrogate.attention_warmup_epochs, 0)
    for name, limit in (("data.limit", data.limit), ("data.test_limit", data.test_limit)):
        if limit is not None:
            _at_least(name, limit, 1)
    for name, value in (
        ("train.lr", train.lr),
        ("surrogate.lr", surrogate.lr),
        ("surrogate.attention_loss_scale", surrogate.attention_loss_scale),
        ("train.milestone_factor", train.milestone_factor),
        ("run.checkpoint_seconds", run.checkpoint_seconds),
    ):
        _finite(name, value, above=0.0)
    for name, optional in (("train.clip_norm", train.clip_norm), ("surrogate.reg_strength", surrogate.reg_strength)):
        if optional is not None:
            _finite(name, optional, above=0.0)
    for name, value in (
        ("surrogate.lambd", surrogate.lambd),
        ("train.weight_decay", train.weight_decay),
        ("surrogate.weight_decay", surrogate.weight_decay),
        ("train.lr_warmup_epochs", train.lr_warmup_epochs),
    ):
        _finite(name, value)
    for name, value in (("train.momentum", train.momentum), ("train.label_smoothing", train.label_smoothing)):
        if not 0 <= value < 1:
            raise ConfigError(f"{name} must lie in [0, 1), got {value}")
    if not 0 < data.validation_fraction < 1:
        raise ConfigError(f"data.validation_fraction must lie strictly between 0 and 1, got {data.validation_fraction}")
    _at_most("model.bottleneck_channels", config.model.bottleneck_channels, _MAX_CHANNELS)
    _at_most("data.crop_padding", data.crop_padding, _MAX_CROP_PADDING)
    if surrogate.reg_strength is not None:
        _at_least("surrogate.reg_strength", surrogate.reg_strength, _SMALLEST_SIGMA)
    for name in _SIZES:
        size = surrogate.arguments.get(name)
        if isinstance(size, int):
            _at_most(f"surrogate.arguments.{name}", size, _MAX_SIZE)
    _check_together(config)


def _check_together(config: Config) -> None:
    data, surrogate, train = config.data, config.surrogate, config.train
    if surrogate.name == "none" and surrogate.lambd > 0:
        raise ConfigError(
            f"surrogate.lambd is {surrogate.lambd}, but surrogate.name is 'none'; name a surrogate or set lambd to 0"
        )
    if config.model.blind_contrast and not config.model.blind_frequencies:
        raise ConfigError("model.blind_contrast needs model.blind_frequencies of at least 1")
    classes = data.classes_per_batch
    if classes is not None and classes < 1:
        raise ConfigError(f"data.classes_per_batch must be 1 or more, or null for any classes, got {classes}")
    if classes is not None and train.batch_size % classes:
        raise ConfigError(f"train.batch_size {train.batch_size} must be a multiple of data.classes_per_batch {classes}")
    if sorted(set(train.milestones)) != train.milestones or any(m < 1 for m in train.milestones):
        raise ConfigError(f"train.milestones must be rising whole numbers from 1 on, got {train.milestones}")
    if train.nesterov and (train.optimiser != "sgd" or train.momentum == 0):
        raise ConfigError("train.nesterov needs train.optimiser 'sgd' with a train.momentum above 0")
    if train.lr_warmup_epochs and train.schedule == "one_cycle":
        raise ConfigError("train.schedule 'one_cycle' has its own rise; set train.lr_warmup_epochs to 0")
    if config.run.device == "cpu":
        if train.precision == "bf16":
            raise ConfigError("train.precision 'bf16' needs a CUDA device, but run.device is 'cpu'")
        if train.cuda_graph == "on":
            raise ConfigError("train.cuda_graph 'on' needs a CUDA device, but run.device is 'cpu'")
    for name, defence in config.defence.items():
        if "name" in defence:
            raise ConfigError(f"defence.{name}.name is not a parameter: the table's name is the defence's name")


def _at_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")


def _at_most(name: str, value: float, most: float) -> None:
    if value > most:
        raise ConfigError(f"{name} must be at most {most}, got {value}")


def _finite(name: str, value: float, above: float | None = None) -> None:
    if not math.isfinite(value) or (value <= above if above is not None else value < 0):
        raise ConfigError(
            f"{name} must be a finite number {'above 0' if above is not None else 'from 0 on'}, got {value}"
        )
    if name not in _LARGE_AT_WILL:
        _at_most(name, value, _LARGEST)
