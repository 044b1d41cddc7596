"""Folders whose every file is named, sized and hashed in a manifest, so that nothing can be swapped unseen."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from attention_cem.training.files import replacing, write_atomically

MANIFEST = "manifest.json"
_LARGEST_MANIFEST = 16 * 2**20
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class SealBrokenError(ValueError):
    """A sealed folder lacks a file, has one too many, or holds one that is not what its manifest says."""


def write_json_atomically(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain data as indented JSON; NaN and infinity are refused because JSON has none."""
    write_atomically(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def write_tensors_atomically(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors; large files never pass through memory twice."""
    with replacing(path) as temporary:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, temporary)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json(path: Path, largest: int = _LARGEST_MANIFEST) -> dict[str, Any]:
    """Read a JSON object from a file that may be anybody's; ValueError names the file and what is wrong."""
    if not path.is_file():
        raise SealBrokenError(f"{path} is missing or not a file")
    if path.stat().st_size > largest:
        raise SealBrokenError(f"{path} has {path.stat().st_size} bytes, more than the {largest} expected at most")
    try:
        content = json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SealBrokenError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise SealBrokenError(f"{path} holds a JSON {type(content).__name__}, expected an object")
    return content


def seal(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest: what is given, plus size and SHA-256 of every file in the folder (not in subfolders)."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    listed = {path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files}
    write_json_atomically(folder / MANIFEST, {**manifest, "files": listed})


def open_sealed(folder: Path, format_name: str, version: int, subfolders: tuple[str, ...] = ()) -> dict[str, Any]:
    """Check a sealed folder against its manifest and return the manifest.

    Args:
        folder: the folder.
        format_name: the ``format`` its manifest must name.
        version: the newest ``version`` that can be read.
        subfolders: folders that may lie beside the files; their content is not looked at.

    Raises:
        SealBrokenError: naming the file, and for an altered one the hash found and the hash expected.
    """
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format") != format_name:
        raise SealBrokenError(f"{folder / MANIFEST} has format {manifest.get('format')!r}, expected {format_name!r}")
    found_version = manifest.get("version")
    if not isinstance(found_version, int) or not 1 <= found_version <= version:
        raise SealBrokenError(f"{folder / MANIFEST} has version {found_version!r}; this release reads 1 to {version}")
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(_is_entry(name, entry) for name, entry in files.items()):
        raise SealBrokenError(f"{folder / MANIFEST}: 'files' must map plain file names to their bytes and sha256")
    present = {path.name for path in folder.iterdir()} - {MANIFEST, *subfolders}
    for name in sorted(present - set(files)):
        raise SealBrokenError(f"{folder / name} is not listed in the manifest; remove it or write the folder again")
    for name, entry in sorted(files.items()):
        _check_file(folder / name, entry["bytes"], entry["sha256"])
    return manifest


def _is_entry(name: str, entry: Any) -> bool:
    return (
        _PLAIN_NAME.fullmatch(name) is not None
        and isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), str)
    )


def _check_file(path: Path, size: int, digest: str) -> None:
    if path.is_symlink() or not path.is_file():
        raise SealBrokenError(f"{path} is missing or not a plain file; the manifest lists {size} bytes")
    if path.stat().st_size != size:
        raise SealBrokenError(
            f"{path} has {path.stat().st_size} bytes, the manifest lists {size}; it was truncated or replaced "
            f"(expected sha256 {digest})"
        )
    found = sha256_of(path)
    if found != digest:
        raise SealBrokenError(f"{path} was altered: sha256 {found}, the manifest lists {digest}")
