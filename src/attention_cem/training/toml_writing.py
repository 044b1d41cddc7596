"""Plain nested data as TOML text: what a run folder's ``config.toml`` is written with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_toml(tree: Mapping[str, Any], prefix: str = "") -> str:
    """Write tables, text, numbers, booleans and lists; entries that are None are left out.

    >>> print(to_toml({"train": {"lr": 0.05, "milestones": [60, 120]}, "defence": {"dropout": {}}}))
    [train]
    lr = 0.05
    milestones = [60, 120]
    <BLANKLINE>
    [defence]
    <BLANKLINE>
    [defence.dropout]
    """
    lines = [
        f"{_key(key)} = {_value(value)}"
        for key, value in tree.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    blocks = ["\n".join(([f"[{prefix}]"] if prefix else []) + lines)] if lines or prefix else []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            blocks.append(to_toml(value, f"{prefix}.{_key(key)}" if prefix else _key(key)))
    return "\n\n".join(block for block in blocks if block)


def _key(key: str) -> str:
    bare = key.replace("_", "").replace("-", "")
    return key if bare.isascii() and bare.isalnum() else _text(key)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for the delete character, which JSON leaves bare.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None) + "}"
    raise ValueError(f"TOML cannot hold a {type(value).__name__}: {value!r}")
