"""Surrogates by name: what configuration files call them."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from attention_cem.nearest_names import did_you_mean
from attention_cem.surrogates.base import ConditionalEntropySurrogate

_REGISTRY: dict[str, Callable[..., ConditionalEntropySurrogate]] = {}
_NO_SURROGATE = "none"  # the configuration takes it; nothing is built


def register_surrogate(name: str, factory: Callable[..., ConditionalEntropySurrogate]) -> None:
    """Make ``factory`` available under ``name``; a name can be taken once."""
    if name in _REGISTRY:
        raise ValueError(f"a surrogate named {name!r} is registered already")
    _REGISTRY[name] = factory


def surrogate_names() -> list[str]:
    """The registered names, sorted."""
    return sorted(_REGISTRY)


def surrogate_defaults(name: str) -> dict[str, Any]:
    """The arguments that the surrogate called ``name`` takes and their defaults, None where it has none.

    >>> from attention_cem.surrogates.registry import surrogate_defaults
    >>> surrogate_defaults("slot_mixture")["bank_size"]
    128
    """
    accepted = inspect.signature(_REGISTRY[name]).parameters if name in _REGISTRY else {}
    return {key: None if each.default is each.empty else each.default for key, each in accepted.items()}


def check_surrogate(name: str, arguments: Iterable[str]) -> None:
    """Refuse a name or the name of an argument that no surrogate has; nothing is built.

    Raises:
        ValueError: unknown; the message names the nearest match.
    """
    if name not in _REGISTRY:
        known = sorted([*surrogate_names(), _NO_SURROGATE])
        hint = did_you_mean(name, known, otherwise=".")
        raise ValueError(f"no surrogate is called {name!r}{hint} Known: {', '.join(known)}")
    accepted = inspect.signature(_REGISTRY[name]).parameters
    unknown = sorted(set(arguments) - set(accepted))
    if unknown:
        raise ValueError(f"surrogate {name!r} takes no argument {unknown[0]!r}{did_you_mean(unknown[0], accepted)}")


def build_surrogate(
    name: str, *, feature_dim: int, num_classes: int, reg_strength: float, **arguments: Any
) -> ConditionalEntropySurrogate:
    """Build the surrogate called ``name`` for labels 0 … num_classes - 1.

    What the surrogate does not take of the common arguments is left out.

    >>> from attention_cem.surrogates import build_surrogate
    >>> build_surrogate("gated", feature_dim=8, num_classes=2, reg_strength=0.1, form="trace").form
    'trace'
    """
    check_surrogate(name, arguments)
    factory = _REGISTRY[name]
    accepted = inspect.signature(factory).parameters
    common = {"feature_dim": feature_dim, "num_classes": num_classes, "reg_strength": reg_strength}
    common["label_space"] = num_classes
    return factory(**{k: v for k, v in common.items() if k in accepted and k not in arguments}, **arguments)
