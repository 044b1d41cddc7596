"""What a setting may hold: the values that TOML and JSON both have, none of them without bounds."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from numbers import Integral
from typing import Any

from attention_cem.training.config_checks import ConfigError

MAX_DEPTH = 32


def plain_value(value: Any, name: str, depth: int = 0) -> Any:
    """A copy of ``value`` made of booleans, numbers, text, lists and tables; tuples become lists.

    What a table holds as None is not in the copy: TOML has no such value.

    Args:
        value: as somebody wrote it.
        name: dotted, for error messages; empty for a whole file.
        depth: lists and tables around it.

    Raises:
        ConfigError: anything else in it, a whole number beyond 64 bits, or lists and tables nested too deep.

    >>> plain_value({"sizes": (1, 2.5)}, "data.options")
    {'sizes': [1, 2.5]}
    """
    if isinstance(value, bool | str):
        return value
    if isinstance(value, float):  # of numpy too
        return float(value)
    if isinstance(value, Integral):
        return whole_number(int(value), name)
    if not isinstance(value, list | tuple | Mapping):
        raise ConfigError(f"{name} must be true or false, a number, text, a list or a table, got {_in_words(value)}")
    if depth == MAX_DEPTH:
        raise too_deep(name if len(name) <= 80 else f"{name[:80]}…")
    if isinstance(value, Mapping):
        inside = {str(key): each for key, each in value.items() if each is not None}
        return {key: plain_value(each, f"{name}.{key}" if name else key, depth + 1) for key, each in inside.items()}
    return [plain_value(each, name, depth + 1) for each in value]


def whole_number(value: int, name: str) -> int:
    """The number itself, if it has at most the 64 bits that TOML grants it."""
    if not -(2**63) <= value < 2**63:
        # Its digits could be too many to print.
        raise ConfigError(f"{name}: a whole number lies from -2^63 to 2^63 - 1, got one of {value.bit_length()} bits")
    return value


def too_deep(name: str) -> ConfigError:
    """The error for lists and tables inside each other without end."""
    return ConfigError(f"{name} is nested deeper than {MAX_DEPTH} levels")


def _in_words(value: Any) -> str:
    if isinstance(value, datetime.date | datetime.time):
        kind = "time" if isinstance(value, datetime.time) else "date"
        return f"the {kind} {value}; write it in quotes"
    return repr(value)
