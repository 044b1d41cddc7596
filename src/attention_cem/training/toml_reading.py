"""TOML files as plain data, read as something that anybody may have written."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from attention_cem.training.config_checks import ConfigError

_MAX_FILE_BYTES = 1 << 20


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The file's content.

    Args:
        path: the file; more than a megabyte is not read.
        what: it should be, for error messages: ``configuration``, ``study``.

    Raises:
        ConfigError: it is missing, unreadable, too large or not TOML.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{path} is larger than {_MAX_FILE_BYTES} bytes: this is no {what} file")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
