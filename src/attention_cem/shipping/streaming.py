"""Many files through a server: results written as they come, nothing lost on interrupt, resumable."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attention_cem.shipping.preprocessing import read_image
from attention_cem.shipping.remote import RemoteClassifier

RESULTS_FORMAT = "attention-cem/predictions"


@dataclass(frozen=True)
class Streamed:
    """How many files were answered in this call, answered before it, and could not be read."""

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
    have a line are skipped, and a line cut short by a crash is dropped and asked again. Each file has one line. The
    images of requests that were under way when the process died are released a second time, with fresh noise.

    Args:
        classifier: the client; its ``batch_size`` is the size of the requests.
        files: image files.
        out: the JSON lines file; made if need be.
        workers: requests under way at once.
        progress: called as ``progress(done, total)``.

    Raises:
        ValueError: ``out`` belongs to another bundle or is no such file.
        ServerUnreachableError, RequestRefusedError: as `RemoteClassifier.logits`; what was answered is in ``out``.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, received {workers}")
    with _open_results(out, classifier.bundle.digest) as (stream, done):
        left = deque(dict.fromkeys(str(file) for file in files if str(file) not in done))
        total, before, unreadable = len(left) + len(done), len(done), 0
        answered = 0
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
                        answered += len(lines)
                        unreadable += sum("error" in line for line in lines)
                        progress(before + answered, total)
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
def _open_results(path: Path, digest: str) -> Iterator[tuple[BinaryIO, set[str]]]:
    """The results file, open for appending behind its last whole line, and the files that have a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as stream:
        stream.seek(0)
        lines = [line for line in stream if line.endswith(b"\n")]
        if not lines:
            stream.truncate(0)
            _append(stream, [{"format": RESULTS_FORMAT, "bundle": digest}])
            yield stream, set()
            return
        first, *rest = _parsed(path, lines)
        if first.get("format") != RESULTS_FORMAT:
            raise ValueError(f"{path} exists and holds no predictions; name another file")
        if first.get("bundle") != digest:
            raise ValueError(f"{path} holds predictions of another bundle; name another file")
        stream.truncate(sum(map(len, lines)))
        yield stream, {str(each["file"]) for each in rest if "file" in each}


def _parsed(path: Path, lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ValueError(f"{path}, line {number}, is not a JSON object; name another file")
        yield content
