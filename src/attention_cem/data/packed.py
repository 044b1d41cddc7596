"""Images packed into one ``.npz`` file: encoded bytes cut at offsets, labels, class names.

The arrays are ``bytes_<split>`` (uint8), ``offset_<split>`` (where each picture starts, and the end of the
last), ``y_<split>``, ``size`` (side of the square images) and ``classes``. A picture is one image or a sheet of
equal tiles, read row by row; a sheet may end in padding.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import features

from attention_cem.data.image_set import ImageData, ImageSet
from attention_cem.data.locate import missing
from attention_cem.data.registry import DataSource, register_data
from attention_cem.data.safe_files import decode_image, read_npz

MAX_PACKED_PIXEL_BYTES = 16 << 30


def load_packed(path: Path, split: str) -> ImageSet:
    """Read one split ("train" or "test") of a packed file."""
    arrays = read_npz(path, (f"bytes_{split}", f"offset_{split}", f"y_{split}", "size", "classes"))
    encoded, offset, y = (arrays[f"{kind}_{split}"] for kind in ("bytes", "offset", "y"))
    size = _checked_size(arrays["size"], path)
    classes = arrays["classes"]
    if classes.ndim != 1 or classes.dtype.kind != "U":
        raise ValueError(f"{path}: 'classes' must be a list of names, got {classes.dtype} {classes.shape}")
    if encoded.dtype != np.uint8 or encoded.ndim != 1:
        raise ValueError(f"{path}: 'bytes_{split}' must be 1-D uint8, got {encoded.dtype} {encoded.shape}")
    if offset.ndim != 1 or offset.dtype.kind not in "iu" or len(offset) < 2:
        raise ValueError(f"{path}: 'offset_{split}' must be at least two whole numbers, got {offset.shape}")
    ascending = bool((offset[1:] > offset[:-1]).all())
    if offset[0] != 0 or not ascending or offset[-1] != len(encoded):
        raise ValueError(f"{path}: 'offset_{split}' must ascend from 0 to {len(encoded)}")
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(f"{path}: 'y_{split}' must be 1-D whole numbers, got {y.dtype} {y.shape}")
    if len(y) * size * size * 3 > MAX_PACKED_PIXEL_BYTES:
        raise ValueError(f"{path}: {len(y)} images of {size}×{size} are more than this format is meant for")
    images = _decode_tiles(encoded.tobytes(), offset, len(y), size, f"{path} ({split})")
    names = tuple(str(name) for name in classes)
    return ImageSet(torch.from_numpy(images), torch.from_numpy(y.astype(np.int64)), names)


def _decode_tiles(encoded: bytes, offset: np.ndarray, n: int, size: int, what: str) -> np.ndarray:
    if encoded[8:12] == b"WEBP" and not features.check("webp"):
        raise ValueError(f"{what} holds WebP pictures, and this Pillow cannot read them: pip install -U pillow")
    images = np.empty((n, 3, size, size), np.uint8)
    done = 0
    for number, (start, stop) in enumerate(pairwise(offset.tolist())):
        picture = np.asarray(decode_image(encoded[start:stop], "RGB", f"{what} picture {number}"))
        height, width, _ = picture.shape
        if height % size or width % size:
            raise ValueError(f"{what} picture {number}: {width}×{height} pixels are no tiles of side {size}")
        tiles = picture.reshape(height // size, size, width // size, size, 3).transpose(0, 2, 4, 1, 3)
        tiles = tiles.reshape(-1, 3, size, size)[: n - done]
        images[done : done + len(tiles)] = tiles
        done += len(tiles)
    if done != n:
        raise ValueError(f"{what} has {n} labels but {done} images")
    return images


def _checked_size(array: np.ndarray, path: Path) -> int:
    if array.shape != () or array.dtype.kind not in "iu" or not 1 <= int(array) <= 1024:
        raise ValueError(f"{path}: 'size' must be one whole number from 1 to 1024, got {array!r}")
    return int(array)


def _register_packed(name: str, file: str, how_to_get: str, counts: tuple[int, int, int]) -> None:
    def find(root: Path | None) -> str | None:
        return str(root / file) if root is not None and (root / file).is_file() else None

    def load(root: Path | None) -> ImageData:
        found = find(root)
        if found is None:
            raise missing(name, f"the file {file}", root, how_to_get)
        path = Path(found)
        return ImageData(name, load_packed(path, "train"), load_packed(path, "test"), source=file)

    num_train, num_test, num_classes = counts
    register_data(DataSource(name, load, find, how_to_get, num_train, num_test, num_classes))


_register_packed(
    "cifar10_tiny",
    "cifar10_tiny.npz",
    "copy cifar10_tiny.npz into the data folder: the first 80 training and 40 test images of each CIFAR-10 class, "
    "packed as attention_cem.data.packed says",
    (800, 400, 10),
)
_register_packed(
    "lfw158",
    "lfw158_64.npz",
    "copy lfw158_64.npz into the data folder: the 158 people of Labeled Faces in the Wild with at least 10 images "
    "(http://vis-www.cs.umass.edu/lfw/), packed as attention_cem.data.packed says",
    (2576, 641, 158),
)
_register_packed(
    "tinyimagenet20",
    "tinyimagenet20_64.npz",
    "copy tinyimagenet20_64.npz into the data folder: every 10th class of Tiny ImageNet "
    "(http://cs231n.stanford.edu/tiny-imagenet-200.zip), packed as attention_cem.data.packed says",
    (6400, 1000, 20),
)
