"""The names data sets go by: one function to register, one to look up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from attention_cem.data.image_set import ImageData
from attention_cem.nearest_names import did_you_mean


@dataclass(frozen=True)
class DataSource:
    """What is known of a data set before it is loaded.

    Args:
        name: the name it is loaded by.
        load: ``load(root, **options)`` reads it; root is None when no data folder is named.
        find: ``find(root)`` says where it would be read from, or None when it is not there. It must be quick.
        how_to_get: a sentence for people who do not have it.
        num_train: training images of the complete set, None when it depends on the files.
        num_test: test images, likewise.
        num_classes: classes, likewise.
        options: names of the keyword arguments ``load`` takes besides root.
    """

    name: str
    load: Callable[..., ImageData]
    find: Callable[[Path | None], str | None]
    how_to_get: str
    num_train: int | None = None
    num_test: int | None = None
    num_classes: int | None = None
    options: tuple[str, ...] = ()


_SOURCES: dict[str, DataSource] = {}


def register_data(source: DataSource) -> DataSource:
    """Make a data set known by its name; a name can be taken only once."""
    if source.name in _SOURCES:
        raise ValueError(f"a data set named {source.name!r} is already registered; choose another name")
    _SOURCES[source.name] = source
    return source


def lookup_data(name: str) -> DataSource:
    """Return the data set registered as ``name``.

    Example:
        >>> import attention_cem.data
        >>> lookup_data("syntetic")
        Traceback (most recent call last):
        ...
        ValueError: unknown data set 'syntetic'; did you mean 'synthetic'? Known: ...
    """
    if name not in _SOURCES:
        hint = did_you_mean(name, known_data(), otherwise=".")
        raise ValueError(f"unknown data set {name!r}{hint} Known: {', '.join(known_data())}")
    return _SOURCES[name]


def check_options(source: DataSource, options: Iterable[str]) -> None:
    """Refuse options that the data set's loader does not take."""
    for option in options:
        if option not in source.options:
            hint = did_you_mean(option, source.options, otherwise=".")
            takes = ", ".join(source.options) or "none"
            raise ValueError(f"data set {source.name!r} has no option {option!r}{hint} It takes {takes}")


def known_data() -> tuple[str, ...]:
    """Return the names of every registered data set, sorted."""
    return tuple(sorted(_SOURCES))
