"""Run the studies behind the results pages, all of them by one command: ``make reproduce``.

python -m studies.reproduce [STUDY ...] [--only METHOD ...] [--data-root FOLDER] [--workers N] [--seconds S] [--missing]

Everything is trained and attacked anew, and held against the stored results. With ``--missing`` only the cells that
have no stored result, nor one of an equal run of another study, are run, and theirs are stored. Stopped at any time,
the same command goes on.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any

from attention_cem.studies import load_study, read_result
from attention_cem.studies.cell_run import Runner, run_cell
from attention_cem.studies.plan import Study
from attention_cem.studies.results import write_result
from attention_cem.studies.running import run_study
from attention_cem.studies.store import DeviceLostError
from studies.publish_reading import StoredStudy, read_studies
from studies.publish_settings import read_settings
from studies.publish_stamps import study_files

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Standing:
    """How a study ended: cells with a result, cells given up, all cells."""

    done: int
    failed: int
    cells: int


def chosen_studies(root: Path, patterns: Sequence[str]) -> list[Path]:
    """Study files of the results pages, in the order of the pages; those whose name matches one of the patterns.

    Raises:
        ValueError: a pattern that matches none.
    """
    settings = read_settings(root)
    files = {file.stem: file for file in study_files(root, settings)}
    pages = [page.studies for page in settings.pages]
    in_order = {name: file for page in pages for name, file in files.items() if any(fnmatchcase(name, p) for p in page)}
    files = {**in_order, **files}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in files):
            raise ValueError(f"no study of the results pages is called {pattern!r}; there are: {', '.join(files)}")
    return [file for name, file in files.items() if not patterns or any(fnmatchcase(name, p) for p in patterns)]


def check_methods(files: Sequence[Path], only: Sequence[str]) -> None:
    """Raise `ValueError` for a method that none of the study files has."""
    methods = list(dict.fromkeys(cell.method for file in files for cell in load_study(file).cells))
    for name in only:
        if name not in methods:
            raise ValueError(f"none of these studies has a method {name!r}; there are: {', '.join(methods)}")


def run_missing(root: Path, stored: StoredStudy, run: Callable[[Study], Any]) -> None:
    """Run the cells of a study that have no stored result, and store theirs, also if interrupted."""
    study = load_study(root / stored.file, root / "runs" / "studies" / stored.name)
    for each in stored.finished:
        write_result(study.result_file(each.cell.id), each.result)
    for cell in stored.missing:
        file = study.result_file(cell.id)
        if file.is_file() and (before := read_result(file).get("budget")) != study.budget:
            file.rename(file.with_suffix(f".{before}.json"))  # attacked otherwise: it is run again, nothing is lost
    try:
        run(study)
    finally:
        for cell in stored.missing:
            if study.result_file(cell.id).is_file():
                write_result(
                    root / "results" / "studies" / study.name / f"{cell.id}.json",
                    read_result(study.result_file(cell.id)),
                )


def differences(stored: StoredStudy, study: Study) -> Iterator[str]:
    """A line per method: what the study found now, over what was stored; cells that both have."""
    for method in dict.fromkeys(cell.method for cell in study.cells):
        pairs = [
            (each.result, read_result(study.result_file(each.cell.id)))
            for each in stored.finished
            if each.method == method and study.result_file(each.cell.id).is_file()
        ]
        if pairs:
            points = fmean(abs(now["accuracy"] - was["accuracy"]) for was, now in pairs) * 100
            ratio = fmean(now["mse"] for _, now in pairs) / max(fmean(was["mse"] for was, _ in pairs), 1e-12)
            yield f"{method}: {len(pairs)} cells, accuracy {points:.2f} points away, MSE {ratio:.3f} of the stored"


def reproduce(
    root: Path,
    patterns: Sequence[str] = (),
    *,
    only: Sequence[str] = (),
    missing: bool = False,
    seconds: float | None = None,
    runner: Runner = run_cell,
    tell: Callable[[str], None] = print,
    **how: Any,
) -> dict[str, Standing]:
    """Run the studies one after the other; where each of them stands.

    Args:
        root: of the repository. patterns: as for `chosen_studies`.
        only: the methods to run; all if none is named.
        missing: only what has no stored result, and store it.
        seconds: begin no cell later than this after the start.
        runner, how: as for `attention_cem.studies.run_study`.
        tell: gets a line whenever something happened.
    """
    until = None if seconds is None else time.monotonic() + seconds
    ended = {}
    files = chosen_studies(root, patterns)
    check_methods(files, only)
    for file in files:
        left = None if until is None else until - time.monotonic()
        # Read again for each: what was run for an earlier study may be a run of this one too.
        stored = next(each for each in read_studies(root, read_settings(root)) if root / each.file == file)
        wanted = {cell.id for cell in stored.study.cells if not only or cell.method in only}
        if not wanted:
            continue
        waiting = wanted & {cell.id for cell in stored.missing} if missing else wanted
        if not waiting or (left is not None and left <= 0):
            ended[stored.name] = Standing(len(wanted) - len(waiting), 0, len(wanted))
            continue
        states: dict[str, Any] = {}

        def run(
            study: Study, left: float | None = left, states: dict[str, Any] = states, wanted: set[str] = wanted
        ) -> None:
            chosen = replace(study, cells=tuple(cell for cell in study.cells if cell.id in wanted))
            states.update(run_study(chosen, seconds=left, runner=runner, tell=tell, **how))

        if missing:
            run_missing(root, stored, run)
        else:
            study = load_study(file, root / "runs" / "reproduced" / stored.name)
            run(study)
            for line in differences(stored, study):
                tell(f"{stored.name}: {line}")
        statuses = [state.status for state in states.values()]
        ended[stored.name] = Standing(statuses.count("done"), statuses.count("failed"), len(statuses))
    return ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, then say where every study stands; exit code 1 if a cell failed or is missing, 130 if stopped."""
    parser = argparse.ArgumentParser(prog="python -m studies.reproduce", description="Run the studies of the results.")
    parser.add_argument("studies", nargs="*", metavar="STUDY", help="name or pattern, e.g. 'data-*' [all]")
    parser.add_argument(
        "--only", action="append", default=[], metavar="METHOD", help="only its cells; may be given several times"
    )
    parser.add_argument("--missing", action="store_true", help="run only what has no stored result, and store it")
    parser.add_argument("--data-root", metavar="FOLDER", help="folder with the data files")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="cells at a time on this machine [1]")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N; several, separated by commas")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no cell after S seconds")
    asked = parser.parse_args(arguments)
    if asked.workers > 1:
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        ended = reproduce(
            ROOT,
            asked.studies,
            only=asked.only,
            missing=asked.missing,
            seconds=asked.seconds,
            tell=lambda text: print(text, file=sys.stderr, flush=True),
            data_root=asked.data_root,
            workers=asked.workers,
            device=asked.device,
        )
    except ValueError as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 2
    except DeviceLostError as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; the same command goes on.", file=sys.stderr)
        return 130
    for name, at in ended.items():
        print(f"{name}: {at.done} of {at.cells} cells{f', {at.failed} failed' if at.failed else ''}")
    if asked.missing:
        print("Now run `make results`.")
    return 0 if all(at.done == at.cells for at in ended.values()) else 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
