"""Configuration files and overrides, read strictly: what is unknown or of the wrong type is refused in one line."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import tomllib
import types
from collections.abc import Iterator, Mapping
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from attention_cem.nearest_names import did_you_mean, nearest_names
from attention_cem.training.config import Config
from attention_cem.training.config_checks import ConfigError, check_config
from attention_cem.training.config_values import plain_value
from attention_cem.training.toml_reading import parse_toml, read_toml

# Settings that came after results had been published, with the value that means "as before": it leaves hashes alone.
_ADDED_LATER = {"model.blind_frequencies": 0, "model.blind_contrast": False, "data.edges": "black"}
_NOT_HASHED = ("run", "data.root", "data.on_device")


def load_config(path: str | os.PathLike[str] | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a TOML file, apply overrides, check everything.

    Args:
        path: the file; None for the defaults.
        overrides: values by dotted name, e.g. ``{"train.epochs": 2, "defence.gaussian_noise.sigma": 0.1}``. A
            string is read as a command line would read it; None removes an entry of a free table.

    >>> load_config(overrides={"train.epochs": "2", "surrogate.arguments.num_slots": 4}).train.epochs
    2
    >>> load_config(overrides={"train.epoch": 2})
    Traceback (most recent call last):
    ...
    attention_cem.training.config_checks.ConfigError: unknown setting 'train.epoch'; did you mean 'train.epochs'?
    """
    tree = {} if path is None else read_toml(Path(path), "configuration")
    for name, value in (overrides or {}).items():
        _override(tree, name, value)
    config = config_from_dict(tree)
    check_config(config)
    return config


def config_from_dict(tree: Mapping[str, Any]) -> Config:
    """Build a `Config` from nested plain data; unknown keys and wrong types raise `ConfigError`."""
    return _build(Config, tree, "")


def config_to_dict(config: Config) -> dict[str, Any]:
    """The whole tree as nested plain data, defaults included."""
    return dataclasses.asdict(config)


def config_hash(config: Config) -> str:
    """SHA-256 of everything that changes what is computed: all but the ``run`` section and where data lies."""
    settings = {k: v for k, v in comparable(config).items() if k not in _ADDED_LATER or v != _ADDED_LATER[k]}
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def comparable(config: Config) -> dict[str, Any]:
    """Settings by dotted name, without those that do not change what is computed."""
    flat = dict(flatten(config_to_dict(config)))
    return {k: v for k, v in flat.items() if not any(k == n or k.startswith(f"{n}.") for n in _NOT_HASHED)}


def differences(one: Config, other: Config) -> list[str]:
    """Settings in which two configurations differ, as ``name: a → b`` lines.

    >>> differences(Config(), load_config(overrides={"train.lr": 0.1}))
    ['train.lr: 0.05 → 0.1']
    """
    a, b = comparable(one), comparable(other)
    return [f"{k}: {a.get(k)!r} → {b.get(k)!r}" for k in sorted({*a, *b}) if a.get(k) != b.get(k)]


def setting_names() -> dict[str, Any]:
    """Every setting by dotted name, with its dataclass field; free tables appear as one name.

    >>> "train.epochs" in setting_names() and "surrogate.arguments" in setting_names()
    True
    """
    return dict(_settings(Config, ""))


def is_free(name: str) -> bool:
    """Whether a dotted name lies inside a free table, e.g. ``surrogate.arguments.num_slots``."""
    return any(name.startswith(f"{table}.") for table in free_tables())


@cache
def free_tables() -> tuple[str, ...]:
    """Names of the settings that are tables with any keys."""
    return tuple(name for name, each in setting_names().items() if each.metadata.get("type_is_table"))


def unknown_setting(name: str) -> ConfigError:
    """The error for a name that is no setting."""
    near = nearest_names(name, setting_names())
    if near and near[0] in free_tables():
        entry = name.split(".")[near[0].count(".") + 1 :] or ["KEY"]
        near = [".".join([near[0], *entry])]
    hint = f"; did you mean {near[0]!r}?" if near else "; see attention-cem train --help"
    return ConfigError(f"unknown setting {name!r}{hint}")


def _settings(kind: type, prefix: str) -> Iterator[tuple[str, Any]]:
    hints = _hints(kind)
    for each in dataclasses.fields(kind):
        name = prefix + each.name
        if dataclasses.is_dataclass(hints[each.name]):
            yield from _settings(hints[each.name], f"{name}.")
        else:
            table = get_origin(hints[each.name]) is dict
            described = {**each.metadata, "type": hints[each.name], "type_is_table": table, "default": _default(each)}
            yield name, types.SimpleNamespace(name=name, metadata=described)


def _default(each: dataclasses.Field[Any]) -> Any:
    if each.default_factory is not dataclasses.MISSING:
        return each.default_factory()
    return each.default


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as pairs of dotted name and value; an empty table is a value.

    >>> dict(flatten({"data": {"name": "synthetic", "options": {}}}))
    {'data.name': 'synthetic', 'data.options': {}}
    """
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _override(tree: dict[str, Any], name: str, value: Any) -> None:
    known = setting_names()
    if name not in known and not is_free(name):
        raise unknown_setting(name)
    parts = name.split(".")
    if not all(parts):
        raise ConfigError(f"{name!r} is not a setting's name: it has an empty part")
    table = tree
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"cannot set {name}: {part} is not a table")
    if isinstance(value, str):
        value = _parse_free(value, name) if name not in known else _parse(value, known[name].metadata["type"], name)
    if value is None:
        table.pop(parts[-1], None)
    else:
        table[parts[-1]] = value


def _parse(text: str, kind: Any, name: str) -> Any:
    """A string from the command line as the setting's type wants it; left alone where it does not fit."""
    choices = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if type(None) in choices and text.lower() in ("none", "null"):
        return None
    for choice in choices:
        if choice is str or get_origin(choice) is Literal:
            return text
        value = _parse_free(text, name)
        if choice is float and type(value) is int:
            return value
        if isinstance(value, get_origin(choice) or choice) and (choice is bool or not isinstance(value, bool)):
            return value
    return text


def _parse_free(text: str, name: str) -> Any:
    """Numbers, booleans, lists and tables as TOML writes them; ``none``; any other text is a string."""
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for convert in (int, float):
        try:
            number = convert(text)
        except ValueError:
            continue
        if number in (math.inf, -math.inf) and "inf" not in text.lower():
            raise ConfigError(f"{name}: {text if len(text) <= 20 else text[:20] + '…'!r} is too large for a number")
        return number
    if text[:1] in "[{":
        try:
            return parse_toml(f"value = {text}", name)["value"]
        except tomllib.TOMLDecodeError:
            return text
    return text


def _build(kind: type, tree: Any, prefix: str) -> Any:
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{prefix.rstrip('.') or 'the configuration'} must be a table, got {tree!r}")
    hints = _hints(kind)
    for key in tree:
        if key not in hints:
            raise unknown_setting(f"{prefix}{key}")
    values = {
        key: _build(hints[key], value, f"{prefix}{key}.")
        if dataclasses.is_dataclass(hints[key])
        else _checked(value, hints[key], prefix + key)
        for key, value in tree.items()
    }
    return kind(**values)


def _checked(value: Any, kind: Any, name: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in parts:
            return None
        return _checked(value, next(part for part in parts if part is not type(None)), name)
    if origin is Literal:
        if value not in parts:
            hint = did_you_mean(str(value), map(str, parts), otherwise="")
            raise ConfigError(f"{name} must be one of {', '.join(map(repr, parts))}, got {value!r}{hint}")
        return value
    if kind is Any:
        return plain_value(value, name)
    if origin is dict and isinstance(value, Mapping):
        given = {str(key): each for key, each in value.items() if each is not None}  # None removes an entry
        return {key: _checked(each, parts[1], f"{name}.{key}") for key, each in given.items()}
    if origin is list and isinstance(value, list | tuple):
        return [_checked(each, parts[0], name) for each in value]
    if isinstance(value, float | Integral) and not isinstance(value, bool):
        value = plain_value(value, name)  # of numpy too
    if type(value) is int and kind in (int, float):
        return kind(value)
    if kind in (int, float, bool, str) and type(value) is kind:
        return value
    hint = f"; set its entries one by one, as {name}.KEY" if origin is dict else ""
    raise ConfigError(f"{name} must be {_in_words(kind)}, got {value!r}{hint}")


def _in_words(kind: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if get_origin(kind) is list:
        return f"a list, each {_in_words(get_args(kind)[0])}"
    return words.get(kind, "a table")
