"""Many files through a server: results written as they come, nothing lost on interrupt, resumable."""

from __future__ import annotations

import json
import os
import stat
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attention_cem.shipping.preprocessing import read_image
from attention_cem.shipping.remote import RemoteClassifier
from attention_cem.training.file_lock import locked
from attention_cem.training.files import write_atomically

RESULTS_FORMAT = "attention-cem/predictions"


@dataclass(frozen=True)
class Streamed:
    """How many files were answered in this call, answered before it, and could not be read in this call."""

    answered: int
    before: int
    unreadable: int


def predict_files(
    classifier: RemoteClassifier,
    files: Sequence[Path],
    out: Path,
    *,
    workers: int = 4,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Streamed:
    """Classify files and append one JSON line each to ``out``: ``file`` with ``label``, ``class_name`` and
    ``confidence``, or with ``error`` for a file that is no image.

    Every line is on the disk before the next batch counts as done. Called again with the same ``out``, files that
    have an answer are skipped; those with an ``error`` are tried again, and so is a line cut short by a crash. Each
    file has one line. The images of requests that were under way when the process died are released a second time,
    with fresh noise.

    Args:
        classifier: the client; its ``batch_size`` is the size of the requests.
        files: image files.
        out: the JSON lines file; made if need be.
        workers: requests under way at once.
        progress: called as ``progress(done, total)``; a file that could not be read is done too.

    Raises:
        ValueError: ``out`` belongs to another bundle, is no such file, or is being written by another call.
        ServerUnreachableError, RequestRefusedError: as `RemoteClassifier.logits`; what was answered is in ``out``.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, received {workers}")
    wanted = dict.fromkeys(map(str, files))
    out.parent.mkdir(parents=True, exist_ok=True)
    with _alone(out), _open_results(out, classifier.bundle.digest, wanted) as (stream, done):
        left = deque(file for file in wanted if file not in done)
        total, before = len(left) + len(done), len(done)
        answered = unreadable = 0
        progress(before, total)
        with ThreadPoolExecutor(workers, thread_name_prefix="predict") as pool:
            pending: set[Future[list[dict[str, Any]]]] = set()
            try:
                while left or pending:
                    while left and len(pending) < workers:
                        batch = [left.popleft() for _ in range(min(classifier.batch_size, len(left)))]
                        pending.add(pool.submit(_answer, classifier, batch))
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for each in finished:
                        lines = each.result()
                        _append(stream, lines)
                        failed = sum("error" in line for line in lines)
                        unreadable += failed
                        answered += len(lines) - failed
                        progress(before + answered + unreadable, total)
            except BaseException:
                left.clear()
                for each in pending:
                    each.cancel()
                classifier.give_up()  # an interrupt must not wait for a server that is away
                _keep_finished(stream, pending)
                classifier.give_up(False)
                raise
    return Streamed(answered, before, unreadable)


def _answer(classifier: RemoteClassifier, batch: Sequence[str]) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    readable, images = [], []
    for file in batch:
        try:
            images.append(read_image(Path(file), classifier.bundle))
            readable.append(file)
        except (ValueError, OSError) as error:
            lines.append({"file": file, "error": str(error)})
    if readable:
        predictions = classifier.predict(np.stack(images))
        lines += [{"file": file, **asdict(each)} for file, each in zip(readable, predictions, strict=True)]
    return lines


def _keep_finished(stream: BinaryIO, pending: set[Future[list[dict[str, Any]]]]) -> None:
    """Write what other requests still bring in, so that an interrupt loses nothing that was answered."""
    done, _ = wait(pending)
    for each in done:
        if not each.cancelled() and each.exception() is None:
            _append(stream, each.result())


def _append(stream: BinaryIO, lines: Sequence[dict[str, Any]]) -> None:
    stream.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    stream.flush()
    os.fsync(stream.fileno())


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the results file's lock, a file of its own: a second writer would replace what the first appends to."""
    real = path.resolve()
    with ExitStack() as held:
        try:
            held.enter_context(locked(real.with_name(f".{real.name}.lock"), patience=0))
        except BlockingIOError:
            raise ValueError(f"{path} is being written by another predict; wait, or name another file") from None
        except OSError:  # a folder without room for a lock: the results file may be open for writing all the same
            pass
        yield


@contextmanager
def _open_results(path: Path, digest: str, wanted: Container[str]) -> Iterator[tuple[BinaryIO, set[str]]]:
    """The results file, open for appending behind its last whole line, and the files that have an answer.

    What it says of a wanted file that could not be read is dropped: the file is tried again and gets a new line.
    """
    header = {"format": RESULTS_FORMAT, "bundle": digest}
    content = path.read_bytes() if path.is_file() else b""
    if content and b"\n" not in content and not json.dumps(header).encode().startswith(content):
        raise ValueError(f"{path} exists and holds no predictions; name another file")
    lines = [line + b"\n" for line in content.split(b"\n")[:-1]]
    first, *rest = [*_parsed(path, lines)] or [header]
    if first.get("format") != RESULTS_FORMAT:
        raise ValueError(f"{path} exists and holds no predictions; name another file")
    if first.get("bundle") != digest:
        raise ValueError(f"{path} holds predictions of another bundle; name another file")
    again = ["error" in each and str(each.get("file")) in wanted for each in rest]
    kept = b"".join(line for line, dropped in zip(lines, [False, *again], strict=False) if not dropped)
    if kept != content:
        _rewrite(path, kept)
    with open(path, "ab") as stream:
        if not kept:
            _append(stream, [header])
        yield stream, {str(each["file"]) for each in rest if "file" in each and "error" not in each}


def _rewrite(path: Path, content: bytes) -> None:
    """Replace a file's content at one stroke, wherever it really lies; those who could read it still can."""
    real = path.resolve()
    permissions = stat.S_IMODE(real.stat().st_mode)
    write_atomically(real, content)
    real.chmod(permissions)


def _parsed(path: Path, lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise ValueError(f"{path}, line {number}, is not a JSON object; name another file")
        yield content
