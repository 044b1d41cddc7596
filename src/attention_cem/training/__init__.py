"""Training: the split trainer and its parts.

Names are imported on first use, so that reading a configuration does not import torch.
"""

from typing import TYPE_CHECKING

from attention_cem.lazy_names import lazy_names

if TYPE_CHECKING:
    from attention_cem.training.activation import SurrogateMode as SurrogateMode
    from attention_cem.training.activation import surrogate_mode as surrogate_mode
    from attention_cem.training.checkpoint import CheckpointError as CheckpointError
    from attention_cem.training.config import Config as Config
    from attention_cem.training.config import DataConfig as DataConfig
    from attention_cem.training.config import ModelConfig as ModelConfig
    from attention_cem.training.config import RunConfig as RunConfig
    from attention_cem.training.config import SurrogateConfig as SurrogateConfig
    from attention_cem.training.config import TrainConfig as TrainConfig
    from attention_cem.training.config_checks import ConfigError as ConfigError
    from attention_cem.training.config_reading import load_config as load_config
    from attention_cem.training.cut_gradient import backward_at_cut as backward_at_cut
    from attention_cem.training.cut_gradient import detach_at_cut as detach_at_cut
    from attention_cem.training.evaluation import Score as Score
    from attention_cem.training.evaluation import score as score
    from attention_cem.training.interruption import TrainingInterrupted as TrainingInterrupted
    from attention_cem.training.loading import TrainedRun as TrainedRun
    from attention_cem.training.loading import load_run as load_run
    from attention_cem.training.nonfinite import TrainingFailedError as TrainingFailedError
    from attention_cem.training.observer import Observer as Observer
    from attention_cem.training.observer import RunStart as RunStart
    from attention_cem.training.run import RunResult as RunResult
    from attention_cem.training.run import train as train
    from attention_cem.training.schedules import lambd_weight as lambd_weight
    from attention_cem.training.schedules import lr_factor as lr_factor
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "activation": ["SurrogateMode", "surrogate_mode"],
            "checkpoint": ["CheckpointError"],
            "config": ["Config", "DataConfig", "ModelConfig", "RunConfig", "SurrogateConfig", "TrainConfig"],
            "config_checks": ["ConfigError"],
            "config_reading": ["load_config"],
            "cut_gradient": ["backward_at_cut", "detach_at_cut"],
            "evaluation": ["Score", "score"],
            "interruption": ["TrainingInterrupted"],
            "loading": ["TrainedRun", "load_run"],
            "nonfinite": ["TrainingFailedError"],
            "observer": ["Observer", "RunStart"],
            "run": ["RunResult", "train"],
            "schedules": ["lambd_weight", "lr_factor"],
        },
    )
