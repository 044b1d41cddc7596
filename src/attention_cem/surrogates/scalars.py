"""Scalars of a surrogate that are learnable or frozen by name."""

from collections.abc import Collection, Mapping

import torch
from torch import nn


def register_scalars(module: nn.Module, values: Mapping[str, float], learnable: bool | Collection[str]) -> None:
    """Register each named value as a parameter if it is learnable, as a persistent buffer if it is frozen.

    Args:
        module: receives the scalars as attributes.
        values: name → start value.
        learnable: True (all), False (none), or the names that are learned.
    """
    if isinstance(learnable, str):
        raise ValueError(f"learnable must be True, False or a collection of names, got the string {learnable!r}")
    chosen = set(values) if learnable is True else set() if learnable is False else set(learnable)
    unknown = chosen - set(values)
    if unknown:
        raise ValueError(f"no such scalar: {sorted(unknown)}; known: {sorted(values)}")
    for name, value in values.items():
        number = torch.tensor(float(value))
        if name in chosen:
            module.register_parameter(name, nn.Parameter(number))
        else:
            module.register_buffer(name, number)
