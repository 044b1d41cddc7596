"""The bundle: a folder with both halves, and a manifest without which none of its files is believed.

Reading one needs neither torch nor a network, so that a device can do it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attention_cem.training.files import write_atomically

BUNDLE_FORMAT = "attention-cem/bundle"
BUNDLE_VERSION = 1
MANIFEST = "manifest.json"
CLIENT_FILE = "client.onnx"
SERVER_FILE = "server.onnx"
WEIGHTS_FILE = "server.safetensors"
IMAGES_INPUT = "images"
FEATURE = "z"
LOGITS = "logits"
SERVER_HALF = "attention_cem_server_sha256"
"""Request parameter: the server half that the sender's client half belongs to. Other servers ignore it."""

DRAWS = ("normal", "uniform")
_LARGEST_MANIFEST = 4 * 2**20
_MOST_CLASSES = 100_000
_MOST_ELEMENTS = 2**26
_PLAIN_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9][A-Za-z0-9_.-]{0,99}){0,4}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class BundleError(ValueError):
    """A bundle lacks a file, holds one that is not what its manifest says, or has a manifest that makes no sense."""


@dataclass(frozen=True)
class Bundle:
    """A bundle whose every file was checked against its manifest.

    Args:
        folder: where it lies.
        name: the model's name on the wire.
        image_shape: ``(C, H, W)`` of one image.
        z_shape: shape of one feature.
        class_names: one name per output of the server.
        draws: kinds of the random tensors, each shaped like z, that the client graph demands at every call.
        manifest: everything else, as read.
    """

    folder: Path
    name: str
    image_shape: tuple[int, int, int]
    z_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    draws: tuple[str, ...]
    manifest: Mapping[str, Any]

    @property
    def client_path(self) -> Path:
        """The client half with its defence, as ONNX."""
        return self.folder / CLIENT_FILE

    @property
    def server_path(self) -> Path:
        """The server half, as ONNX."""
        return self.folder / SERVER_FILE

    @property
    def server_sha256(self) -> str:
        """SHA-256 of the server half: a client half only makes sense with the server half of its own export."""
        return str(self.manifest["files"][SERVER_FILE]["sha256"])

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, which names every file's: two bundles with one digest are the same."""
        return sha256_of(self.folder / MANIFEST)


def noise_name(position: int) -> str:
    """Name of the client graph's noise input at ``position`` of the draws.

    >>> noise_name(0)
    'noise_0'
    """
    return f"noise_{position}"


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``facts`` and the size and SHA-256 of every file below ``folder``."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    listed = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files
    }
    manifest = {"format": BUNDLE_FORMAT, "version": BUNDLE_VERSION, **facts, "files": listed}
    write_atomically(folder / MANIFEST, (json.dumps(manifest, indent=1, allow_nan=False) + "\n").encode())


def open_bundle(folder: str | os.PathLike[str]) -> Bundle:
    """Check every file of a bundle and return what its manifest says.

    Raises:
        BundleError: naming the file that is missing, strange or altered, or the field that makes no sense.
    """
    root = Path(folder)
    manifest = _read_manifest(root / MANIFEST)
    _check_files(root, manifest.get("files"))
    source = root / MANIFEST
    name = manifest.get("name")
    if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name):
        raise BundleError(f"{source}: 'name' must be a plain name, received {name!r}")
    image_shape = _shape(source, manifest, "image_shape")
    if len(image_shape) != 3 or image_shape[0] not in (1, 3):
        raise BundleError(f"{source}: 'image_shape' must be (1 or 3, height, width), received {list(image_shape)}")
    classes = manifest.get("class_names")
    if not isinstance(classes, list) or not 1 <= len(classes) <= _MOST_CLASSES or not _all_text(classes):
        raise BundleError(f"{source}: 'class_names' must be a list of 1 to {_MOST_CLASSES} names")
    noise = manifest.get("noise")
    draws = noise.get("draws") if isinstance(noise, dict) else None
    if not isinstance(draws, list) or not all(draw in DRAWS for draw in draws):
        raise BundleError(f"{source}: 'noise.draws' must be a list of {' and '.join(DRAWS)}, received {draws!r}")
    return Bundle(
        folder=root,
        name=name,
        image_shape=(image_shape[0], image_shape[1], image_shape[2]),
        z_shape=_shape(source, manifest, "z_shape"),
        class_names=tuple(classes),
        draws=tuple(draws),
        manifest=manifest,
    )


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise BundleError(f"{path} is missing; `attention-cem export RUN -o FOLDER` writes a bundle")
    if path.stat().st_size > _LARGEST_MANIFEST:
        raise BundleError(f"{path} has {path.stat().st_size} bytes, more than the {_LARGEST_MANIFEST} expected at most")
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != BUNDLE_FORMAT:
        raise BundleError(f"{path} is not the manifest of a bundle: its format is not {BUNDLE_FORMAT!r}")
    version = manifest.get("version")
    if type(version) is not int or not 1 <= version <= BUNDLE_VERSION:
        raise BundleError(f"{path} has version {version!r}; this release reads 1 to {BUNDLE_VERSION}")
    return manifest


def _check_files(root: Path, files: Any) -> None:
    if not isinstance(files, dict) or not all(_is_entry(name, entry) for name, entry in files.items()):
        raise BundleError(f"{root / MANIFEST}: 'files' must map plain relative paths to their bytes and sha256")
    for needed in (CLIENT_FILE, SERVER_FILE, WEIGHTS_FILE):
        if needed not in files:
            raise BundleError(f"{root / MANIFEST} does not list {needed}")
    present = {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}
    for name in sorted(present - {MANIFEST} - set(files)):
        raise BundleError(f"{root / name} is not listed in the manifest; remove it or export again")
    for name, entry in sorted(files.items()):
        path = root / name
        if path.is_symlink() or not path.is_file():
            raise BundleError(f"{path} is missing or not a plain file; export again")
        if path.stat().st_size != entry["bytes"]:
            raise BundleError(f"{path} has {path.stat().st_size} bytes, the manifest lists {entry['bytes']}")
        found = sha256_of(path)
        if found != entry["sha256"]:
            raise BundleError(f"{path} was altered: sha256 {found}, the manifest lists {entry['sha256']}")


def _is_entry(name: str, entry: Any) -> bool:
    return (
        _PLAIN_PATH.fullmatch(name) is not None
        and isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and isinstance(entry.get("sha256"), str)
    )


def _shape(source: Path, manifest: Mapping[str, Any], field: str) -> tuple[int, ...]:
    shape = manifest.get(field)
    if not isinstance(shape, list) or not 1 <= len(shape) <= 6 or not all(type(n) is int and n > 0 for n in shape):
        raise BundleError(f"{source}: {field!r} must be a list of positive whole numbers, received {shape!r}")
    elements = 1
    for n in shape:
        elements *= n
    if elements > _MOST_ELEMENTS:
        raise BundleError(f"{source}: {field!r} {shape} has more than {_MOST_ELEMENTS} elements")
    return tuple(shape)


def _all_text(names: list[Any]) -> bool:
    return all(isinstance(name, str) and len(name) <= 1000 for name in names)
