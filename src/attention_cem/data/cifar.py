"""CIFAR-10 and CIFAR-100 (fine or coarse classes), from the official binary files or from packed ones.

When several are there, the official folder comes first, then the official archive, then the packed files: the
packed CIFAR-100 holds only half of the training images. The official *python* version is never read: its files
are pickles, and unpickling a file runs whatever code it contains.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from attention_cem.data.cifar_binary import CIFAR10_BINARY, CIFAR100_BINARY, BinaryLayout, load_binary
from attention_cem.data.cifar_names import CIFAR100_COARSE_NAMES, coarse_of_fine
from attention_cem.data.image_set import ImageData, ImageSet
from attention_cem.data.locate import missing
from attention_cem.data.packed import load_packed
from attention_cem.data.registry import DataSource, register_data

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
_PACKED_TRAIN = {
    "cifar10": ("cifar10_train_part1.npz", "cifar10_train_part2.npz"),
    "cifar100": ("cifar100_train_part1.npz",),
}
_LAYOUT = {"cifar10": CIFAR10_BINARY, "cifar100": CIFAR100_BINARY}
_PICKLED = {
    "cifar10": ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
    "cifar100": ("cifar-100-python", "cifar-100-python.tar.gz"),
}


def _packed_files(name: str) -> tuple[str, ...]:
    return (*_PACKED_TRAIN[name], f"{name}_test.npz")


def _how_to_get(name: str) -> str:
    return f"download the binary version, {_LAYOUT[name].archive}, from {PAGE} into the data folder; leave it packed"


def _find(root: Path | None, name: str) -> str | None:
    if root is None:
        return None
    layout = _LAYOUT[name]
    if (root / layout.folder).is_dir():
        return str(root / layout.folder)
    if (root / layout.archive).is_file():
        return str(root / layout.archive)
    files = _packed_files(name)
    if not all((root / file).is_file() for file in files):
        return None
    part = " (25,000 of the 50,000 training images)" if name == "cifar100" else ""
    return ", ".join(str(root / file) for file in files) + part


def _load(root: Path | None, name: str) -> ImageData:
    layout = _LAYOUT[name]
    found = _find(root, name)
    if root is None or found is None:
        raise _not_found(root, name, layout)
    if found in (str(root / layout.folder), str(root / layout.archive)):
        return load_binary(Path(found), layout, name)
    parts = [load_packed(root / file, "train") for file in _PACKED_TRAIN[name]]
    test = load_packed(root / f"{name}_test.npz", "test")
    for part in (*parts, test):
        if part.class_names != layout.class_names:
            raise ValueError(f"{root}: the packed files of {name} do not name the official classes in order")
    train = ImageSet(
        torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts]), layout.class_names
    )
    return ImageData(name, train, test, source=", ".join(_packed_files(name)))


def _not_found(root: Path | None, name: str, layout: BinaryLayout) -> Exception:
    looked_for = (
        f"the folder {layout.folder}, the archive {layout.archive} or the files {', '.join(_packed_files(name))}"
    )
    refused = [file for file in _PICKLED[name] if root is not None and (root / file).exists()]
    if refused:
        looked_for += (
            f" (found {refused[0]}, which is refused: it is the python version, made of pickles, and reading a "
            "pickle runs whatever code is in it)"
        )
    return missing(name, looked_for, root, _how_to_get(name))


def with_coarse_labels(data: ImageData, name: str = "cifar100_coarse") -> ImageData:
    """Give CIFAR-100 images the labels of their 20 superclasses."""
    coarse = torch.tensor(coarse_of_fine())

    def relabel(fine: ImageSet) -> ImageSet:
        return replace(fine, labels=coarse[fine.labels], class_names=CIFAR100_COARSE_NAMES)

    return replace(data, name=name, train=relabel(data.train), test=relabel(data.test))


register_data(
    DataSource(
        "cifar10",
        lambda root: _load(root, "cifar10"),
        lambda root: _find(root, "cifar10"),
        _how_to_get("cifar10"),
        num_train=50_000,
        num_test=10_000,
        num_classes=10,
    )
)
register_data(
    DataSource(
        "cifar100",
        lambda root: _load(root, "cifar100"),
        lambda root: _find(root, "cifar100"),
        _how_to_get("cifar100"),
        num_train=50_000,
        num_test=10_000,
        num_classes=100,
    )
)
register_data(
    DataSource(
        "cifar100_coarse",
        lambda root: with_coarse_labels(_load(root, "cifar100")),
        lambda root: _find(root, "cifar100"),
        _how_to_get("cifar100"),
        num_train=50_000,
        num_test=10_000,
        num_classes=20,
    )
)
