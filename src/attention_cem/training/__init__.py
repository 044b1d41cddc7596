"""Training: the split trainer and its parts.

Names are imported on first use, so that reading a configuration does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attention_cem.training.activation import SurrogateMode, surrogate_mode
    from attention_cem.training.checkpoint import CheckpointError
    from attention_cem.training.config import (
        Config,
        DataConfig,
        ModelConfig,
        RunConfig,
        SurrogateConfig,
        TrainConfig,
    )
    from attention_cem.training.config_checks import ConfigError
    from attention_cem.training.config_reading import load_config
    from attention_cem.training.cut_gradient import backward_at_cut, detach_at_cut
    from attention_cem.training.evaluation import Score, score
    from attention_cem.training.interruption import TrainingInterrupted
    from attention_cem.training.loading import TrainedRun, load_run
    from attention_cem.training.nonfinite import TrainingFailedError
    from attention_cem.training.observer import Observer, RunStart
    from attention_cem.training.run import RunResult, train
    from attention_cem.training.schedules import lambd_weight, lr_factor

_HOME = {
    "CheckpointError": "checkpoint",
    "Config": "config",
    "ConfigError": "config_checks",
    "DataConfig": "config",
    "ModelConfig": "config",
    "Observer": "observer",
    "RunConfig": "config",
    "RunResult": "run",
    "RunStart": "observer",
    "Score": "evaluation",
    "SurrogateConfig": "config",
    "SurrogateMode": "activation",
    "TrainConfig": "config",
    "TrainedRun": "loading",
    "TrainingFailedError": "nonfinite",
    "TrainingInterrupted": "interruption",
    "backward_at_cut": "cut_gradient",
    "detach_at_cut": "cut_gradient",
    "lambd_weight": "schedules",
    "load_config": "config_reading",
    "load_run": "loading",
    "lr_factor": "schedules",
    "score": "evaluation",
    "surrogate_mode": "activation",
    "train": "run",
}

__all__ = [
    "CheckpointError",
    "Config",
    "ConfigError",
    "DataConfig",
    "ModelConfig",
    "Observer",
    "RunConfig",
    "RunResult",
    "RunStart",
    "Score",
    "SurrogateConfig",
    "SurrogateMode",
    "TrainConfig",
    "TrainedRun",
    "TrainingFailedError",
    "TrainingInterrupted",
    "backward_at_cut",
    "detach_at_cut",
    "lambd_weight",
    "load_config",
    "load_run",
    "lr_factor",
    "score",
    "surrogate_mode",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"attention_cem.training.{_HOME[name]}"), name)
    raise AttributeError(f"module 'attention_cem.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
