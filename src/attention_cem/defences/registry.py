"""Defences by name: `register_defence` adds one, `build_defence` makes one from plain data."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from attention_cem.nearest_names import did_you_mean

from .base import Defence

_KNOWN: dict[str, type[Defence]] = {}
_ELSEWHERE = {"linear_leakage": "attention_cem.surrogates.leakage_penalty"}  # imported on first use
_Kind = TypeVar("_Kind", bound=type[Defence])


def register_defence(kind: _Kind) -> _Kind:
    """Class decorator: make a `Defence` subclass buildable by its ``name``.

    Raises:
        ValueError: the name is already taken by another class.
    """
    if kind.name in _KNOWN:
        raise ValueError(f"a defence named {kind.name!r} is already registered: {_KNOWN[kind.name].__qualname__}")
    _KNOWN[kind.name] = kind
    return kind


def build_defence(config: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> Defence:
    """Build a defence from ``{"name": ..., **parameters}``.

    The mapping that `Defence.describe` returns is accepted as it is; its ``guarantee`` is text about the
    parameters, not a parameter, and is computed anew.

    Args:
        config: name and constructor arguments.
        context: values a config file need not repeat because the model knows them (``z_shape``,
            ``image_shape``, ``filters``, ``z_layer``); used only for arguments that the constructor has and
            the config leaves out.

    Raises:
        ValueError: unknown name or argument (the message names the nearest match), or a missing argument.

    >>> build_defence({"name": "gaussian_noise", "sigma": 0.1})
    GaussianNoise(sigma=0.1)
    >>> build_defence({"name": "gausian_noise", "sigma": 0.1})
    Traceback (most recent call last):
    ...
    ValueError: unknown defence 'gausian_noise'; did you mean 'gaussian_noise'? Known: ...
    """
    kind = check_defence(config)
    name, accepted = kind.name, inspect.signature(kind.__init__).parameters
    arguments = {key: value for key, value in config.items() if key not in ("name", "guarantee")}
    for key, value in (context or {}).items():
        if key in accepted:
            arguments.setdefault(key, value)
    missing = [
        key
        for key, parameter in accepted.items()
        if key != "self" and parameter.default is inspect.Parameter.empty and key not in arguments
    ]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}, received {', '.join(arguments) or 'nothing'}")
    return kind(**arguments)


def check_defence(config: Mapping[str, Any]) -> type[Defence]:
    """The class that ``config`` names; nothing is built.

    Raises:
        ValueError: unknown name or argument; the message names the nearest match.
    """
    name = config.get("name")
    if not isinstance(name, str):
        raise ValueError(f"a defence needs a 'name', received the keys {sorted(map(str, config))}")
    if name in _ELSEWHERE:
        importlib.import_module(_ELSEWHERE[name])
    if name not in _KNOWN:
        names = sorted({*_KNOWN, *_ELSEWHERE})
        hint = did_you_mean(name, names, otherwise=".")
        raise ValueError(f"unknown defence {name!r}{hint} Known: {', '.join(names)}")
    kind = _KNOWN[name]
    accepted = inspect.signature(kind.__init__).parameters
    for key in (key for key in config if key not in ("name", "guarantee")):
        if key not in accepted or key == "self":
            known = [parameter for parameter in accepted if parameter != "self"]
            hint = did_you_mean(key, known, otherwise=".")
            raise ValueError(f"{name} has no parameter {key!r}{hint} Known: {', '.join(known)}")
    return kind
