"""``attention-cem explain``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attention_cem.cli.remedies import check_file_place, os_words
from attention_cem.cli.settings import SettingsParser, add_settings, parse_settings
from attention_cem.training.config_checks import ConfigError
from attention_cem.training.config_reading import load_config
from attention_cem.training.files import write_atomically


def main(arguments: Sequence[str]) -> int:
    """Parse, build, draw."""
    try:
        known, settings = parse_settings(_parser(), arguments)
        config = load_config(known.config, settings)
        shape = _shape(known.image_shape)
        check_file_place(known.out, "--out")
    except ConfigError as error:
        return _refuse(error)
    # torch is imported here, after everything that can be refused without it was.
    from attention_cem.data import MissingDataError
    from attention_cem.studies.flow_chart import draw_flow_chart
    from attention_cem.studies.pipeline import describe_pipeline

    try:
        pipeline = describe_pipeline(config, image_shape=shape, num_classes=known.classes)
        out = Path(known.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, draw_flow_chart(pipeline).encode())
    except MissingDataError as error:
        return _refuse(ConfigError(f"{error}. To draw without the data give --image-shape and --classes."))
    except ValueError as error:
        return _refuse(error)
    except OSError as error:
        return _refuse(OSError(os_words(error)))
    print(known.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = SettingsParser(
        prog="attention-cem explain",
        usage="attention-cem explain [--config FILE] [--out FILE.svg] [--section.name VALUE ...]",
        description="Draw the flow chart of the configured pipeline with its real tensor shapes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings, e.g. one of configs/")
    parser.add_argument("--out", metavar="FILE", default="pipeline.svg", help="where to write the SVG [pipeline.svg]")
    parser.add_argument("--image-shape", metavar="C,H,W", help="shape of the images, where the data are not at hand")
    parser.add_argument("--classes", type=int, metavar="N", help="number of classes, likewise")
    add_settings(parser)
    return parser


def _shape(text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(f"--image-shape must be three whole numbers, e.g. 3,32,32, got {text!r}")
    channels, height, width = (int(part) for part in parts)
    return channels, height, width


def _refuse(error: Exception) -> int:
    print(f"attention-cem explain: error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2
