"""The weights that were best on validation: in memory at once, on the disk with the next checkpoint."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from attention_cem.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    read_facts,
    step_checkpoints,
    write_checkpoint,
    writing_said,
)
from attention_cem.training.files import replacing

_NAME = re.compile(r"best-(\d{5,})\.safetensors")


class BestWeights:
    """Keeps the best weights of a run so that the disk always shows a state from which the run can go on.

    A checkpoint names the epoch whose weights were best when it was written, and is what makes them count::

        keep(epoch, weights)    # a copy in memory, as often as there is a new best
        write()                 # best-00012.safetensors: not yet anybody's
        write_checkpoint(...)   # names epoch 12: from here on a resumed run finds these weights
        publish(12)             # best.safetensors becomes another name of that file

    A process killed in between leaves either weights that no checkpoint names, or weights that one names and that
    are not yet public; `settle` puts both right. Weights named by a checkpoint that is still there are kept.

    Args:
        folder: the checkpoints' folder.
        public: the file that others read.
    """

    def __init__(self, folder: Path, public: Path) -> None:
        self._folder, self._public = folder, public
        self._unwritten: tuple[int, Checkpoint] | None = None

    def keep(self, epoch: int, weights: Checkpoint) -> None:
        """Copy the weights of an epoch (from 1), on their device and without waiting for it; replaces what was kept."""
        copies = {name: tensor.detach().clone() for name, tensor in weights.tensors.items()}
        self._unwritten = epoch, Checkpoint(copies, weights.facts)

    def write(self) -> None:
        """Before a checkpoint: put what was kept beside it, under the name of its epoch."""
        if self._unwritten is not None:
            epoch, weights = self._unwritten
            write_checkpoint(self._path(epoch), weights)
            self._unwritten = None

    def publish(self, epoch: int) -> None:
        """After a checkpoint that names ``epoch``: give its weights the public name, and drop those nobody names."""
        weights = self._path(epoch)
        # Without the file of its own the public one holds them: `settle` has seen to that.
        if epoch and weights.is_file() and not _is_copy(weights, self._public):
            with writing_said(self._public), replacing(self._public) as temporary:
                _link_or_copy(weights, temporary)
        self._drop_unnamed()

    def settle(self, epoch: int) -> None:
        """Before a run goes on from a checkpoint that names ``epoch`` (0: it starts): make the files agree with it.

        Raises:
            CheckpointError: the weights of that epoch are not there.
        """
        if not epoch:
            self._public.unlink(missing_ok=True)
            self._drop_unnamed()
        elif self._path(epoch).is_file():
            self.publish(epoch)
        else:
            self._check_public(epoch)
            self._drop_unnamed()

    def finish(self) -> None:
        """After a run: it will not go on, so the public file is enough."""
        for _, path in self._files():
            path.unlink(missing_ok=True)

    def _check_public(self, epoch: int) -> None:
        missing = f"epoch {epoch} was the best so far, but {self._path(epoch).name} is missing"
        advice = f"bring it back into {self._folder}, or start again in a new run.folder"
        if not self._public.is_file():
            raise CheckpointError(f"{missing}; {advice}")
        held = read_facts(self._public).get("best_epoch")
        if held != epoch:
            raise CheckpointError(f"{missing} and {self._public.name} holds epoch {held}; {advice}")

    def _drop_unnamed(self) -> None:
        named = {_best_epoch(path) for path in step_checkpoints(self._folder)}
        for epoch, path in self._files():
            if epoch not in named:
                path.unlink(missing_ok=True)

    def _path(self, epoch: int) -> Path:
        return self._folder / f"best-{epoch:05d}.safetensors"

    def _files(self) -> list[tuple[int, Path]]:
        found = [(_NAME.fullmatch(path.name), path) for path in sorted(self._folder.glob("best-*.safetensors"))]
        return [(int(match[1]), path) for match, path in found if match]


def _best_epoch(checkpoint: Path) -> object:
    facts = _facts_if_readable(checkpoint)
    return None if facts is None else facts.get("best_epoch")  # from an unreadable one nobody can go on


def _is_copy(source: Path, target: Path) -> bool:
    if not target.exists():
        return False
    # Renaming one name of a file over another of the same file does nothing, and would leave the first behind.
    return os.path.samefile(source, target) or _facts_if_readable(target) == read_facts(source)


def _facts_if_readable(path: Path) -> dict[str, Any] | None:
    try:
        return read_facts(path)
    except CheckpointError:
        return None


def _link_or_copy(source: Path, target: Path) -> None:
    target.unlink()
    try:
        os.link(source, target)
    except OSError:  # not every file system has links
        shutil.copyfile(source, target)
