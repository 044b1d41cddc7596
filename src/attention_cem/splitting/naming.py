"""Nearest known names, for error messages that say what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_names(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Known names most like `name`, best first.

    >>> nearest_names("featurs.7", ["features.7", "classifier.0"])
    ['features.7']
    """
    return get_close_matches(name, list(known), n=limit, cutoff=0.5)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest names as a clause to end an error message with, or the known list when none is near.

    >>> did_you_mean("vgg", ["vgg11_bn", "resnet20"])
    "did you mean 'vgg11_bn'?"
    >>> did_you_mean("transformer", ["vgg11_bn", "resnet20"])
    "known: 'vgg11_bn', 'resnet20'"
    """
    names = list(known)
    near = nearest_names(name, names)
    if near:
        return "did you mean " + " or ".join(repr(each) for each in near) + "?"
    shown = ", ".join(repr(each) for each in names[:20])
    return f"known: {shown}" + (", …" if len(names) > 20 else "")
