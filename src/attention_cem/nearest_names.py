"""Nearest known names, for error messages that say what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_LISTED = 20


def nearest_names(name: str, known: Iterable[str], limit: int = 1) -> list[str]:
    """Known names most like ``name``, best first; none where nothing is like it.

    >>> nearest_names("featurs.7", ["features.7", "classifier.0"])
    ['features.7']
    """
    return get_close_matches(name, list(known), n=limit, cutoff=0.5)


def did_you_mean(name: str, known: Iterable[str], *, limit: int = 1, otherwise: str | None = None) -> str:
    """The nearest names as a clause to go on an error message with.

    Args:
        name: what was written.
        known: what could have been meant.
        limit: name at most so many.
        otherwise: the clause where nothing is near; by default a list of the known names.

    >>> did_you_mean("vgg", ["vgg11_bn", "resnet20"])
    "; did you mean 'vgg11_bn'?"
    >>> did_you_mean("transformer", ["vgg11_bn", "resnet20"])
    "; known: 'vgg11_bn', 'resnet20'"
    >>> did_you_mean("transformer", ["vgg11_bn", "resnet20"], otherwise=".")
    '.'
    """
    names = list(known)
    near = nearest_names(name, names, limit)
    if near:
        return "; did you mean " + " or ".join(repr(each) for each in near) + "?"
    if otherwise is not None:
        return otherwise
    return "; known: " + ", ".join(repr(each) for each in names[:_MOST_LISTED]) + ", …" * (len(names) > _MOST_LISTED)
