"""One call to load any data set by name, one to say which of them are at hand."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from attention_cem.data.image_set import ImageData
from attention_cem.data.locate import data_root
from attention_cem.data.registry import check_options, known_data, lookup_data


def load_data(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    limit: int | None = None,
    test_limit: int | None = None,
    seed: int = 0,
    **options: Any,
) -> ImageData:
    """Load a data set by name, as uint8 tensors on the CPU.

    Args:
        name: one of :func:`known_data`.
        root: the folder with the files; by default the environment variable ``ATTENTION_CEM_DATA``.
        limit: keep at most this many training images and this many test images, every class its share.
        test_limit: keep at most this many test images; overrides ``limit`` for the test set.
        seed: decides which images a limit keeps. The full sets do not depend on it.
        options: passed to the data set's own loader, e.g. ``size`` for image folders.

    Example:
        >>> data = load_data("synthetic", limit=200)
        >>> len(data.train), len(data.test), data.image_shape, data.num_classes
        (200, 200, (3, 32, 32), 10)
    """
    source = lookup_data(name)
    check_options(source, options)
    data = source.load(data_root(root), **options)
    test_limit = limit if test_limit is None else test_limit
    if limit is not None:
        data = replace(data, train=data.train.limit(limit, seed))
    if test_limit is not None:
        data = replace(data, test=data.test.limit(test_limit, seed))
    return data


@dataclass(frozen=True)
class DataRecord:
    """One line of the list of data sets.

    Args:
        name: the name it is loaded by.
        found: where it would be read from, None when it is not there.
        how_to_get: a sentence for people who do not have it.
        num_train: training images of the complete set, None when it depends on the files.
        num_test: test images, likewise.
        num_classes: classes, likewise.
    """

    name: str
    found: str | None
    how_to_get: str
    num_train: int | None
    num_test: int | None
    num_classes: int | None


def describe_data(root: str | os.PathLike[str] | None = None) -> list[DataRecord]:
    """List every known data set: found where, how large, and how to get it. Nothing is decoded.

    Example:
        >>> [record.found for record in describe_data() if record.name == "synthetic"]
        ['drawn by the program, no files needed']
    """
    folder = data_root(root)
    sources = [lookup_data(name) for name in known_data()]
    return [DataRecord(s.name, s.find(folder), s.how_to_get, s.num_train, s.num_test, s.num_classes) for s in sources]
