"""Checkpoints: one safetensors file each, with its facts as JSON in the header. No pickle."""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as decode
from safetensors.torch import save as encode
from torch import Tensor

from attention_cem.training.files import write_atomically

FORMAT = 1
_STEP_NAME = re.compile(r"step-(\d{9})\.safetensors")
_KEPT = 2
_MAX_HEADER_BYTES = 100_000_000  # what safetensors itself accepts


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or read; the message says which one is still good."""


@dataclass(frozen=True)
class Checkpoint:
    """Named tensors and the plain facts that belong to them (position, best score, hash of the configuration)."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors under ``name.``, without that prefix."""
        prefix = f"{name}."
        return {key[len(prefix) :]: value for key, value in self.tensors.items() if key.startswith(prefix)}


def join_parts(**parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Several named groups of tensors as one flat mapping; the inverse of `Checkpoint.part`."""
    return {f"{name}.{key}": value for name, tensors in parts.items() for key, value in tensors.items()}


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically; on failure the file that was there is untouched."""
    # A copy on the CPU: safetensors refuses tensors that share memory, and tied weights do.
    tensors = {
        key: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for key, value in sorted(checkpoint.tensors.items())
    }
    facts = {**checkpoint.facts, "format": FORMAT, "content_sha256": _digest(tensors)}
    content = encode(tensors, metadata={"attention_cem": json.dumps(facts)})
    with writing_said(path):
        write_atomically(path, content)


@contextmanager
def writing_said(path: Path) -> Iterator[None]:
    """Failures to write ``path`` inside the block become a `CheckpointError` that says what to do."""
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
        raise CheckpointError(
            f"could not write the checkpoint {path}: {reason}. The checkpoints written before it are intact; "
            "make room and resume"
        ) from error


def read_checkpoint(path: Path) -> Checkpoint:
    """Read and verify a checkpoint; a damaged or foreign file raises `CheckpointError`."""
    with _reading_said(path):
        content = path.read_bytes()
        facts = _facts(content[8 : 8 + int.from_bytes(content[:8], "little")])
        tensors = decode(content)
        if facts["format"] != FORMAT:
            raise CheckpointError(f"{path} has format {facts['format']!r}; this version reads format {FORMAT}")
        if facts["content_sha256"] != _digest(tensors):
            raise CheckpointError(f"{path} is damaged: its content does not match its checksum.{_advice(path)}")
    return Checkpoint(tensors, facts)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts of a checkpoint from its header alone: quick, and the tensors are not verified."""
    with _reading_said(path), path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MAX_HEADER_BYTES:
            raise ValueError(f"a header of {length} bytes")
        return _facts(file.read(length))


def _facts(header: bytes) -> dict[str, Any]:
    facts = json.loads(json.loads(header)["__metadata__"]["attention_cem"])
    if not isinstance(facts, dict):
        raise TypeError(f"facts must be an object, got {type(facts).__name__}")
    return facts


@contextmanager
def _reading_said(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged or was cut short ({type(error).__name__}).{_advice(path)}") from error


def step_checkpoints(folder: Path) -> list[Path]:
    """The numbered checkpoints of a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*.safetensors") if _STEP_NAME.fullmatch(path.name))


def step_path(folder: Path, step: int) -> Path:
    """Where the checkpoint after ``step`` optimiser steps lies.

    >>> step_path(Path("checkpoints"), 390).name
    'step-000000390.safetensors'
    """
    return folder / f"step-{step:09d}.safetensors"


def drop_old_checkpoints(folder: Path) -> None:
    """Keep the newest two: should the last one be damaged on the disk, the one before it is there."""
    for path in step_checkpoints(folder)[:-_KEPT]:
        path.unlink(missing_ok=True)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for key, value in sorted(tensors.items()):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _advice(path: Path) -> str:
    others = [other for other in step_checkpoints(path.parent) if other.name != path.name]
    if not others or not _STEP_NAME.fullmatch(path.name):
        return ""
    return f" {others[-1].name} beside it is older and was left alone: delete {path.name} and resume from there"
