"""TOML files as plain data, read as something that anybody may have written."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

from attention_cem.training.config_checks import ConfigError
from attention_cem.training.config_values import plain_value, too_deep

_MAX_FILE_BYTES = 1 << 20


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The file's content.

    Args:
        path: the file; more than a megabyte is not read.
        what: it should be, for error messages: ``configuration``, ``study``.

    Raises:
        ConfigError: it is missing, unreadable, too large, not TOML, or holds what `plain_value` refuses.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{path} is larger than {_MAX_FILE_BYTES} bytes: this is no {what} file")
        tree = parse_toml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    try:
        return plain_value(tree, "")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Parse ``text``, called ``name`` in errors; a `tomllib.TOMLDecodeError` is left to the caller."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise too_deep(name) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python converts no more digits than that
        raise ConfigError(f"{name} holds a whole number of more than {sys.get_int_max_str_digits()} digits") from None
