"""What commands on folders share: options read strictly, refusals in one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from attention_cem.cli.settings import SettingsParser
from attention_cem.nearest_names import nearest_names
from attention_cem.training.config_checks import ConfigError


def command_parser(name: str, usage: str, description: str, examples: str) -> SettingsParser:
    """A parser whose complaints are `ConfigError`, and whose help ends with examples."""
    return SettingsParser(
        prog=f"attention-cem {name}",
        usage=f"attention-cem {name} {usage}",
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def parse_strictly(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse all arguments; an unknown option is refused with the nearest known one.

    >>> parser = command_parser("x", "", "", "")
    >>> _ = parser.add_argument("--budget")
    >>> parse_strictly(parser, ["--bugdet", "quick"])
    Traceback (most recent call last):
    ...
    attention_cem.training.config_checks.ConfigError: unknown option --bugdet; did you mean --budget?
    """
    known, rest = parser.parse_known_args(list(arguments))
    if not rest:
        return known
    if not rest[0].startswith("-"):
        raise ConfigError(f"unexpected argument {rest[0]!r}; one folder is expected")
    name = rest[0].partition("=")[0]
    near = nearest_names(name, parser._option_string_actions)
    raise ConfigError(f"unknown option {name}{f'; did you mean {near[0]}?' if near else '; see --help'}")


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return number


def refuse(command: str, error: Exception) -> int:
    """Say in one line what is wrong with the request; the exit code is 2."""
    print(f"attention-cem {command}: error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def fail(command: str, text: str) -> int:
    """Say in one line why it failed; the exit code is 1."""
    print(f"attention-cem {command}: {' '.join(text.split())}", file=sys.stderr)
    return 1
