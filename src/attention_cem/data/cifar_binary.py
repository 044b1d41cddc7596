"""The official binary files of CIFAR-10 and CIFAR-100, from their folder or straight out of the archive.

A record is one label byte (CIFAR-10) or a coarse and a fine label byte (CIFAR-100), then 3072 bytes of pixels:
red, green, blue, each row by row. Archives are read in memory; nothing is ever extracted to disk.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from attention_cem.data.cifar_names import CIFAR10_NAMES, CIFAR100_NAMES, coarse_of_fine
from attention_cem.data.image_set import ImageData, ImageSet

PIXEL_BYTES = 3 * 32 * 32
_MAX_OTHER_MEMBER = 1 << 20


@dataclass(frozen=True)
class BinaryLayout:
    """Where the official files of one set lie and how their records look."""

    folder: str
    archive: str
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    records_per_train_file: int
    label_bytes: int
    class_names: tuple[str, ...]
    records_per_test_file: int = 10_000


CIFAR10_BINARY = BinaryLayout(
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    train_files=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test_files=("test_batch.bin",),
    records_per_train_file=10_000,
    label_bytes=1,
    class_names=CIFAR10_NAMES,
)
CIFAR100_BINARY = BinaryLayout(
    folder="cifar-100-binary",
    archive="cifar-100-binary.tar.gz",
    train_files=("train.bin",),
    test_files=("test.bin",),
    records_per_train_file=50_000,
    label_bytes=2,
    class_names=CIFAR100_NAMES,
)


def load_binary(path: Path, layout: BinaryLayout, name: str) -> ImageData:
    """Read the complete set from ``path``, the official folder or the official ``.tar.gz``."""
    record = layout.label_bytes + PIXEL_BYTES
    sizes = dict.fromkeys(layout.train_files, layout.records_per_train_file * record)
    sizes |= dict.fromkeys(layout.test_files, layout.records_per_test_file * record)
    contents = _from_folder(path, sizes) if path.is_dir() else _from_archive(path, layout.folder, sizes)

    def image_set(files: tuple[str, ...]) -> ImageSet:
        records = np.concatenate([np.frombuffer(contents[f], np.uint8) for f in files]).reshape(-1, record)
        labels = records[:, layout.label_bytes - 1].astype(np.int64)
        if labels.max() >= len(layout.class_names):
            raise ValueError(f"{path}: label {labels.max()} in {files}, there are {len(layout.class_names)} classes")
        if layout.label_bytes == 2 and (records[:, 0] != np.array(coarse_of_fine())[labels]).any():
            raise ValueError(f"{path}: coarse and fine labels in {files} contradict each other")
        pixels = records[:, layout.label_bytes :].reshape(-1, 3, 32, 32)
        return ImageSet(torch.from_numpy(pixels.copy()), torch.from_numpy(labels), layout.class_names)

    return ImageData(name, image_set(layout.train_files), image_set(layout.test_files), source=path.name)


def _from_folder(folder: Path, sizes: dict[str, int]) -> dict[str, bytes]:
    for file, size in sizes.items():
        path = folder / file
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            raise ValueError(
                f"{path} must have {size} bytes, " + ("it is missing" if found is None else f"it has {found}")
            )
    return {file: (folder / file).read_bytes() for file in sizes}


class _BoundedGzip(gzip.GzipFile):
    """Hands out no more at once than a wanted file has: tarfile reads a header's extension whole, however long."""

    def __init__(self, path: Path, largest: int) -> None:
        super().__init__(path, "rb")
        self._largest = max(largest, _MAX_OTHER_MEMBER)

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= self._largest:
            raise tarfile.ReadError(f"a header claims {size} bytes")
        return super().read(size)


def _from_archive(path: Path, folder: str, sizes: dict[str, int]) -> dict[str, bytes]:
    wanted = {f"{folder}/{file}": file for file in sizes}
    contents: dict[str, bytes] = {}
    try:
        with _BoundedGzip(path, max(sizes.values())) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as archive:
            for member in archive:
                file = wanted.get(member.name.removeprefix("./"))
                if file is None:
                    # Skipping a member still decompresses it: a huge stranger is refused, not waded through. One of
                    # negative size would be followed by itself, for ever.
                    if not 0 <= member.size <= _MAX_OTHER_MEMBER:
                        raise ValueError(f"{path}: unexpected member {member.name!r} of {member.size} bytes")
                    continue
                if not member.isreg() or member.size != sizes[file] or file in contents:
                    raise ValueError(
                        f"{path}: {member.name!r} must be one plain file of {sizes[file]} bytes, found {member.size}"
                    )
                stream = archive.extractfile(member)
                contents[file] = stream.read() if stream is not None else b""
    except (tarfile.TarError, EOFError, OSError, RecursionError, zlib.error) as error:
        raise ValueError(f"{path} is damaged or no gzip-compressed tar archive: {error}") from error
    for file, size in sizes.items():
        if len(contents.get(file, b"")) != size:
            raise ValueError(f"{path}: {folder}/{file} is missing or cut short")
    return contents
