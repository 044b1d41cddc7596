"""``attention-cem predict``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TOKEN_VARIABLE = "ATTENTION_CEM_TOKEN"
Progress = Callable[[int, int], None]


def main(arguments: Sequence[str]) -> int:
    """Parse, predict, print."""
    given = _parser().parse_args(list(arguments))

    from attention_cem.cli.remedies import check_file_place, os_words
    from attention_cem.shipping.bundle import open_bundle
    from attention_cem.shipping.preprocessing import find_images
    from attention_cem.shipping.remote import RemoteClassifier
    from attention_cem.shipping.serve_settings import read_token
    from attention_cem.shipping.streaming import predict_files
    from attention_cem.shipping.transports import ServerUnreachableError, open_transport

    try:
        check_file_place(given.out)
        token = read_token(given.token_file) if given.token_file else os.environ.get(TOKEN_VARIABLE)
        files = find_images(given.images)
        transport = open_transport(given.server, token=token, authority=given.authority)
        classifier = RemoteClassifier(
            open_bundle(given.bundle),
            transport,
            timeout=given.timeout,
            patience=given.patience,
            batch_size=given.batch_size,
        )
        with _shown(quiet=given.quiet) as progress:
            streamed = predict_files(classifier, files, given.out, workers=given.workers, progress=progress)
    except KeyboardInterrupt:
        print(f"\nStopped. What was answered is in {given.out}; the same command goes on.", file=sys.stderr)
        return 130
    except ServerUnreachableError as error:
        print(f"attention-cem predict: {error}. The same command goes on where it stopped.", file=sys.stderr)
        return 1
    except (ValueError, ImportError) as error:
        print(f"attention-cem predict: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"attention-cem predict: {os_words(error)}. The same command goes on where it stopped.", file=sys.stderr)
        return 1
    print(
        f"{streamed.answered} files answered, {streamed.before} were before, "
        f"{streamed.unreadable} could not be read; results in {given.out}"
    )
    return 0 if not streamed.unreadable else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attention-cem predict",
        description="Classify images with the client half here and the server half elsewhere. Results are appended "
        f"to a JSON lines file as they come; the same command goes on after an interrupt and tries again what could "
        f"not be read. The token comes from "
        f"--token-file or the variable {TOKEN_VARIABLE}.",
    )
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE", help="image files, or folders of them")
    parser.add_argument("--server", required=True, metavar="URL", help="grpc://, grpcs://, http:// or https://")
    parser.add_argument("--bundle", required=True, type=Path, metavar="FOLDER", help="bundle with the client half")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("predictions.jsonl"), metavar="FILE", help="results [%(default)s]"
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with the bearer token")
    parser.add_argument("--authority", type=Path, metavar="FILE", help="certificates to trust (PEM)")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S", help="seconds an attempt [%(default)s]")
    parser.add_argument("--patience", type=float, default=60.0, metavar="S", help="seconds in all [%(default)s]")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="images a request [%(default)s]")
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="requests at once [%(default)s]")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


@contextmanager
def _shown(*, quiet: bool) -> Iterator[Progress]:
    """A progress bar where there is a terminal and rich is installed, otherwise nothing."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        yield lambda done, total: print(f"{done}/{total}", end="\r", file=sys.stderr)
        return
    with Bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("predict", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
