"""Folders of images as a data set: decoded into memory, or once into a memory-mapped cache for big ones."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from attention_cem.data.folder_layout import LAYOUTS, detect_layout, list_files
from attention_cem.data.image_set import ImageData, ImageSet
from attention_cem.data.locate import missing
from attention_cem.data.registry import DataSource, register_data
from attention_cem.data.safe_files import read_image_file
from attention_cem.data.stratified import stratified_indices

LabelledFile = tuple[Path, int]
OPTIONS = ("size", "channels", "layout", "test_fraction", "split_seed", "cache_folder")
# Raise it when files are decoded otherwise: caches of before are then left alone. 2 reads 16-bit grey, 3 turns photos.
_DECODING = 3
_MOST_NAMED = 10


def image_folder(
    folder: str | os.PathLike[str],
    *,
    size: int = 64,
    channels: int = 3,
    layout: str = "auto",
    test_fraction: float = 0.2,
    split_seed: int = 0,
    cache_folder: str | os.PathLike[str] | None = None,
    name: str = "image_folder",
) -> ImageData:
    """Read a folder of images: central square of each, scaled to ``size`` × ``size`` (Lanczos).

    Args:
        folder: the folder; its layout is one of :data:`LAYOUTS`.
        size: side of the images in pixels.
        channels: 3 for RGB, 1 for grey.
        layout: the layout's name, or "auto" to recognise it.
        test_fraction: share of test images where the layout has no split; each class gives its part.
        split_seed: decides that split.
        cache_folder: keep the decoded pixels in files there and map them into memory: a set larger than the
            memory works, and the next start decodes nothing. None decodes into memory.
        name: the name the data set carries.
    """
    path = Path(folder)
    if not _is_whole(size) or not 8 <= size <= 1024:
        raise ValueError(f"image folder: size must be a whole number from 8 to 1024, got {size!r}")
    if not _is_whole(channels) or channels not in (1, 3):
        raise ValueError(f"image folder: channels must be 1 or 3, got {channels!r}")
    if not isinstance(test_fraction, float) or not 0 < test_fraction < 1:
        raise ValueError(f"image folder: test_fraction must lie strictly between 0 and 1, got {test_fraction!r}")
    if not _is_whole(split_seed):
        raise ValueError(f"image folder: split_seed must be a whole number, got {split_seed!r}")
    if not isinstance(cache_folder, str | os.PathLike | None):
        raise ValueError(f"image folder: cache_folder must be the path of a folder, got {cache_folder!r}")
    found = detect_layout(path) if layout == "auto" and path.is_dir() else layout
    if not path.is_dir() or found is None:
        raise missing(name, f"class folders with images ({', '.join(LAYOUTS)} layout) in {path}", path, HOW_TO_GET)
    files = list_files(path, found)
    if not files.train:
        raise ValueError(f"{path}: no training images in layout {found!r}")
    if len(files.class_names) < 2:
        raise ValueError(
            f"{path} holds a single class, {files.class_names[0]!r} with {len(files.train)} training images (layout "
            f"{found!r}), and there is nothing to tell apart; --data.root may be one level too high or too low"
        )
    train, test = files.train, files.test
    if test is None:
        train, test = _random_split(files.train, test_fraction, split_seed)
    cache = None if cache_folder is None else Path(cache_folder)

    pixels = _pixels_of_all_parts([[file for file, _ in part] for part in (train, test)], size, channels, cache)
    train_set, test_set = (
        ImageSet(images, torch.tensor([label for _, label in part]), files.class_names)
        for images, part in zip(pixels, (train, test), strict=True)
    )
    return ImageData(name, train_set, test_set, source=f"folder {path.name}, layout {found}")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _random_split(
    files: Sequence[LabelledFile], fraction: float, seed: int
) -> tuple[list[LabelledFile], list[LabelledFile]]:
    labels = torch.tensor([label for _, label in files])
    n = round(fraction * len(files))
    if not 0 < n < len(files):
        raise ValueError(f"a test fraction of {fraction} leaves train or test empty: there are {len(files)} images")
    in_test = set(stratified_indices(labels, n, seed).tolist())
    train = [file for position, file in enumerate(files) if position not in in_test]
    return train, [files[position] for position in sorted(in_test)]


class DamagedImagesError(ValueError):
    """Some of the image files cannot be read; ``damaged`` says of each which and why."""

    def __init__(self, damaged: Sequence[str], count: int) -> None:
        more = f"; and {len(damaged) - _MOST_NAMED} more" if len(damaged) > _MOST_NAMED else ""
        listing = "; ".join(damaged[:_MOST_NAMED])
        super().__init__(f"{len(damaged)} of {count} images cannot be read; remove or repair them: {listing}{more}")
        self.damaged = list(damaged)


def _pixels_of_all_parts(
    parts: Sequence[Sequence[Path]], size: int, channels: int, cache_folder: Path | None
) -> list[Tensor]:
    """The pixels of each part; damaged files are named together, after all parts were decoded."""
    pixels: list[Tensor] = []
    damaged: list[str] = []
    for files in parts:
        try:
            pixels.append(load_pixels(files, size, channels, cache_folder))
        except DamagedImagesError as error:
            damaged += error.damaged
    if damaged:
        raise DamagedImagesError(damaged, sum(map(len, parts)))
    return pixels


def load_pixels(files: Sequence[Path], size: int, channels: int, cache_folder: Path | None) -> Tensor:
    """Decode files to uint8 ``(N, C, size, size)``, through a cache file when a folder for it is given."""
    shape = (len(files), channels, size, size)
    if cache_folder is None:
        pixels = np.empty(shape, np.uint8)
        _decode_into(pixels, files, size, channels)
        return torch.from_numpy(pixels)
    path = cache_folder / f"pixels-{_fingerprint(files, size, channels)}.npy"
    if not path.is_file():
        _write_cache(path, shape, files, size, channels)
    try:
        cached = np.load(path, mmap_mode="c", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"the cache {path} is damaged: {error}; delete it and start again") from error
    if cached.dtype != np.uint8 or cached.shape != shape:
        raise ValueError(f"the cache {path} holds {cached.dtype} {cached.shape}, expected uint8 {shape}; delete it")
    return torch.from_numpy(cached)


def _write_cache(path: Path, shape: tuple[int, ...], files: Sequence[Path], size: int, channels: int) -> None:
    """Decode into a temporary file in the same folder, then rename: a reader sees the whole cache or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    os.close(handle)
    try:
        pixels = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
        _decode_into(pixels, files, size, channels)
        pixels.flush()
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _decode_into(pixels: np.ndarray, files: Sequence[Path], size: int, channels: int) -> None:
    damaged: list[str] = []
    for position, file in enumerate(files):
        try:
            image = read_image_file(file, "RGB" if channels == 3 else "L")
        except (ValueError, OSError) as error:
            damaged.append(str(error))
            continue
        image = _central_square(image).resize((size, size), Image.Resampling.LANCZOS)
        pixels[position] = np.asarray(image).reshape(size, size, channels).transpose(2, 0, 1)
    if damaged:
        raise DamagedImagesError(damaged, len(files))


def _central_square(image: Image.Image) -> Image.Image:
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _fingerprint(files: Sequence[Path], size: int, channels: int) -> str:
    """Name a cache after what it was made from and how, so that a changed file never meets an old cache."""
    digest = hashlib.blake2b(f"{_DECODING}/{size}/{channels}".encode(), digest_size=16)
    for file in files:
        status = file.stat()
        digest.update(f"\n{file.resolve()}\t{status.st_size}\t{status.st_mtime_ns}".encode())
    return digest.hexdigest()


HOW_TO_GET = "name a folder with one sub-folder of images per class, or one laid out as FaceScrub or Tiny ImageNet is"
_HOW_TO_GET_FACESCRUB = (
    "ask its authors (Ng and Winkler, A data-driven approach to cleaning large face datasets, ICIP 2014) and put the "
    "face images into facescrub/<person>/ or facescrub/actors/faces/<person>/ in the data folder"
)
_HOW_TO_GET_TINYIMAGENET = "download http://cs231n.stanford.edu/tiny-imagenet-200.zip and unpack it in the data folder"


def _register_folder(
    name: str, subfolder: str, size: int, how_to_get: str, counts: tuple[int | None, int | None, int | None]
) -> None:
    def find(root: Path | None) -> str | None:
        folder = None if root is None else root / subfolder
        return str(folder) if folder is not None and folder.is_dir() and detect_layout(folder) else None

    def load(root: Path | None, *, size: int = size, **options: Any) -> ImageData:
        if root is None or find(root) is None:
            looked_for = f"the folder {subfolder} with images" if subfolder else "class folders with images"
            raise missing(name, looked_for, root, how_to_get)
        return image_folder(root / subfolder, size=size, name=name, **options)

    num_train, num_test, num_classes = counts
    register_data(DataSource(name, load, find, how_to_get, num_train, num_test, num_classes, OPTIONS))


_register_folder("image_folder", "", 64, HOW_TO_GET, (None, None, None))
_register_folder("facescrub", "facescrub", 48, _HOW_TO_GET_FACESCRUB, (None, None, 530))
_register_folder("tinyimagenet", "tiny-imagenet-200", 64, _HOW_TO_GET_TINYIMAGENET, (100_000, 10_000, 200))
