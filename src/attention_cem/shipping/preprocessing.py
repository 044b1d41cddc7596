"""Image files as the client wants them: the same crop, size and resampling as the training images."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from attention_cem.data.safe_files import read_image_file
from attention_cem.shipping.bundle import Bundle

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".webp")


def read_image(path: Path, bundle: Bundle) -> NDArray[np.uint8]:
    """One image ``(C, H, W)``: the largest central part with the right proportions, resampled by Lanczos.

    Raises:
        ValueError: damaged, too large, or no image; names the file.
    """
    channels, height, width = bundle.image_shape
    image = read_image_file(path, "L" if channels == 1 else "RGB")
    scale = min(image.width / width, image.height / height)
    crop_width, crop_height = min(image.width, round(width * scale)), min(image.height, round(height * scale))
    left, top = (image.width - crop_width) // 2, (image.height - crop_height) // 2
    image = image.crop((left, top, left + crop_width, top + crop_height))
    image = image.resize((width, height), Image.Resampling.LANCZOS)
    pixels = np.asarray(image, np.uint8).reshape(height, width, channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def find_images(places: Iterable[Path]) -> list[Path]:
    """The image files named, and those inside the folders named, each once, in order.

    Hidden files and folders are left out: thumbnails that nobody meant to send, what macOS puts beside each file. A
    link that leads nowhere counts as an image, so that reading it says what is wrong.

    Raises:
        ValueError: a place that is not there, or a folder without images.
        OSError: a folder that cannot be looked into.
    """
    found: dict[Path, None] = {}
    for place in places:
        if place.is_dir():
            inside = sorted(each for each in _visible(place) if each.suffix.lower() in SUFFIXES and _is_meant(each))
            if not inside:
                raise ValueError(f"{place} holds no image ({', '.join(SUFFIXES)})")
            found.update(dict.fromkeys(inside))
        elif place.is_file():
            found[place] = None
        else:
            raise ValueError(f"{place} is neither a file nor a folder")
    return list(found)


def _visible(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> NoReturn:
        raise error

    for place, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(place, name) for name in files if not name.startswith("."))


def _is_meant(path: Path) -> bool:
    return path.is_file() or (path.is_symlink() and not path.exists())
