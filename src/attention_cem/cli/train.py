"""``attention-cem train``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attention_cem.cli.remedies import os_words
from attention_cem.cli.settings import SettingsParser, add_settings, parse_settings
from attention_cem.training.config_checks import ConfigError
from attention_cem.training.config_reading import config_to_dict, load_config
from attention_cem.training.run_folder import RunFolder
from attention_cem.training.toml_writing import to_toml

if TYPE_CHECKING:
    from attention_cem.training.config import Config
    from attention_cem.training.run import RunResult

_EXAMPLES = """examples:
  attention-cem train --config configs/synthetic-sound.toml
  attention-cem train --config configs/cifar10-sound.toml --data.root DATA --train.epochs 20
  attention-cem train --config configs/cifar10-paper.toml --defence.gaussian_noise.sigma 0.05
  attention-cem train --resume runs/my-run
  torchrun --nproc-per-node 2 -m attention_cem.cli.main train --config configs/cifar10-sound.toml
"""


def main(arguments: Sequence[str]) -> int:
    """Parse, train, print."""
    parser = _parser()
    try:
        known, settings = parse_settings(parser, arguments)
        _check_something_to_train(known, settings)
        config = _config(known, settings)
    except ConfigError as error:
        return _refuse(error)
    except OSError as error:
        return _refuse(OSError(os_words(error)))
    if known.print_config:
        print(to_toml(config_to_dict(config)))
        return 0
    return _train(config, quiet=known.quiet)


def _parser() -> argparse.ArgumentParser:
    parser = SettingsParser(
        prog="attention-cem train",
        usage="attention-cem train [--config FILE | --resume FOLDER] [--section.name VALUE ...]",
        description="Train a split model. Settings come from the file; options override them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings, e.g. one of configs/")
    parser.add_argument("--resume", metavar="FOLDER", help="continue the run in this folder, with its own settings")
    parser.add_argument("--print-config", action="store_true", help="print the resulting settings and stop")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_settings(parser)
    return parser


def _check_something_to_train(known: argparse.Namespace, settings: dict[str, str]) -> None:
    """The defaults alone are a day's work that nobody asked for; where and how to run says nothing of what."""
    chosen = [name for name in settings if not name.startswith("run.")]
    if not (known.config or known.resume or known.print_config or chosen):
        raise ConfigError("say what to train, e.g. --config configs/synthetic-sound.toml, or --resume FOLDER")


def _config(known: argparse.Namespace, settings: dict[str, str]) -> Config:
    if known.resume is None:
        return load_config(known.config, settings)
    if known.config is not None:
        raise ConfigError("--resume takes the settings from the run folder; leave --config out")
    own = Path(known.resume) / "config.toml"
    if not own.is_file():
        raise ConfigError(f"{known.resume} is no run folder: it has no config.toml")
    return load_config(own, {**settings, "run.folder": known.resume, "run.resume": True})


def _train(config: Config, *, quiet: bool) -> int:
    # torch is imported here, after everything that can be refused without it was.
    from attention_cem.cli.progress import watch
    from attention_cem.data import MissingDataError
    from attention_cem.training.checkpoint import CheckpointError
    from attention_cem.training.interruption import TrainingInterrupted
    from attention_cem.training.nonfinite import TrainingFailedError
    from attention_cem.training.run import train

    try:
        with watch(quiet=quiet) as observer:
            result = train(config, observer=observer)
    except TrainingInterrupted as stopped:
        command = f"attention-cem train --resume {shlex.quote(stopped.folder)}"
        print(f"\nStopped. Continue with:\n  {command}", file=sys.stderr)
        return 130
    except (MissingDataError, ConfigError) as error:
        return _refuse(error)
    except (CheckpointError, TrainingFailedError) as error:
        print(f"attention-cem train: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"attention-cem train: {os_words(error)}", file=sys.stderr)
        return 1
    if int(os.environ.get("RANK", "0")) == 0:  # under torchrun one process speaks for all
        _report(result)
    return 0


def _report(result: RunResult) -> None:
    print(f"run folder           {result.folder}")
    print(f"best epoch           {result.best_epoch}")
    print(f"validation accuracy  {result.best_accuracy:.2%}")
    print(f"test accuracy        {result.test_accuracy:.2%}")
    folder = RunFolder(result.folder)
    if not folder.best.is_file():
        print(
            f"attention-cem train: the weights are gone, {folder.best} is missing; "
            f"delete {folder.result_file} and resume to train them again",
            file=sys.stderr,
        )


def _refuse(error: Exception) -> int:
    print(f"attention-cem train: error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2
