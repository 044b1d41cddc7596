"""``--a.b value`` options made from the configuration's dataclasses."""

from __future__ import annotations

import argparse
import json
import shlex
import tomllib
from collections.abc import Sequence
from typing import Any, Literal, NoReturn, get_args, get_origin

from attention_cem.nearest_names import nearest_names
from attention_cem.training.config_checks import ConfigError
from attention_cem.training.config_reading import flatten, free_tables, is_free, setting_names, unknown_setting


class SettingsParser(argparse.ArgumentParser):
    """A parser whose complaints are `ConfigError`, so that every refusal is one line of one kind."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise ConfigError(message)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add one option for every setting, grouped by section; values stay text until the configuration reads them."""
    groups: dict[str, Any] = {}
    for name, setting in setting_names().items():
        section = name.split(".")[0]
        if section not in groups:
            groups[section] = parser.add_argument_group(section)
        described, default = setting.metadata["help"].replace("%", "%%"), setting.metadata["default"]
        if setting.metadata["type_is_table"]:
            example = f"--{name}.KEY{'.PARAMETER' if name == 'defence' else ''}"
            shown = f"{described}, e.g. {_example(name)}"
            groups[section].add_argument(example, metavar="VALUE", default=argparse.SUPPRESS, help=shown)
            continue
        shown = "none" if default is None else str(default).lower() if isinstance(default, bool) else default
        groups[section].add_argument(
            f"--{name}",
            dest=name,
            metavar=_metavar(setting.metadata["type"]),
            default=argparse.SUPPRESS,
            help=f"{described} [{shown}]",
        )


def parse_settings(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[argparse.Namespace, dict[str, str]]:
    """Parse a command line into the parser's own options and the settings by dotted name.

    Raises:
        ConfigError: an unknown option, with the nearest match, or a value that is missing.
    """
    free, others = _take_free(arguments)
    known, rest = parser.parse_known_args(others)
    if rest:
        if rest[0].startswith("--"):
            raise _unknown_option(parser, rest[0][2:].partition("=")[0])
        raise ConfigError(f"unexpected argument {rest[0]!r}; settings are written --section.name value")
    names = setting_names()
    return known, {name: str(value) for name, value in vars(known).items() if name in names} | free


def _take_free(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Settings inside free tables, whose names no parser can know, and all other arguments."""
    free: dict[str, str] = {}
    others: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        name, equals, value = argument[2:].partition("=")
        if argument.startswith("--") and name in free_tables():
            raise _whole_table(name, value if equals else "".join(left[:1]))
        if not argument.startswith("--") or not is_free(name):
            others.append(argument)
            continue
        if not equals:
            if not left or left[0].startswith("--"):
                raise ConfigError(f"--{name} needs a value")
            value = left.pop(0)
        free[name] = value
    return free, others


def _whole_table(name: str, text: str) -> ConfigError:
    """The error for a free table written as one value: what to write instead, entry by entry."""
    entries = [
        f"--{name}.{key} {shlex.quote(value if isinstance(value, str) else json.dumps(value, default=str))}"
        for key, value in flatten(_table(text))
    ]
    instead = " ".join(entries) or f"--{name}.KEY VALUE for each entry, e.g. {_example(name)}"
    return ConfigError(f"--{name} is a table and takes no value of its own; write {instead}")


def _table(text: str) -> dict[str, Any]:
    """The table that was meant, in JSON or as TOML writes it in one line; empty where it is neither."""
    for read in (json.loads, lambda line: tomllib.loads(f"value = {line}")["value"]):
        try:
            found = read(text)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else {}
    return {}


def _example(name: str) -> str:
    return f"--{name}.{setting_names()[name].metadata['example']}"


def _unknown_option(parser: argparse.ArgumentParser, name: str) -> ConfigError:
    if "." in name:
        return unknown_setting(name)
    own = [option for option in parser._option_string_actions if "." not in option]
    # People write --epochs for --train.epochs: look for it by its last part first.
    inside = [f"--{setting}" for setting in setting_names() if setting.split(".")[-1] == name]
    guess = inside or nearest_names(f"--{name}", own)
    hint = f"; did you mean {guess[0]}?" if guess else "; see --help"
    return ConfigError(f"unknown option --{name}{hint}")


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    names = {int: "N", float: "X", str: "TEXT", bool: "BOOL"}
    for part in (kind, *get_args(kind)):
        if part in names:
            return names[part] if get_origin(kind) is not list else f"[{names[part]},...]"
    return "VALUE"
