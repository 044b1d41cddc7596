"""Run the studies behind the results pages, all of them by one command: ``make reproduce``.

python -m studies.reproduce [STUDY ...] [--only METHOD ...] [--data-root FOLDER] [--workers N] [--seconds S] [--missing]

Everything is trained and attacked anew, and held against the stored results. With ``--missing`` only the cells that
have no stored result, nor one of an equal run of another study, or one that lacks attacks which its budget has by now,
are run, and theirs are stored. Studies come in the order in which they are named; workers that find no cell of one to
begin take those of the next. Stopped at any time, the same command goes on.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any

from attention_cem.freed_memory import keep_freed_memory
from attention_cem.studies import load_study, read_result
from attention_cem.studies.plan import Cell, Study
from attention_cem.studies.results import write_result
from attention_cem.studies.running import run_studies
from attention_cem.studies.store import CellState, DeviceLostError
from attention_cem.training.config_reading import config_hash
from studies.publish_finished import Finished
from studies.publish_pictures import keep_strip, wants_strip
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
    """Study files of the results pages whose name matches one of the patterns, in the order of the patterns; else all.

    Those that one pattern matches come in the order of the pages.

    Raises:
        ValueError: a pattern that matches none.
    """
    settings = read_settings(root)
    files = {file.stem: file for file in study_files(root, settings)}
    pages = [page.studies for page in settings.pages]
    in_order = {name: file for page in pages for name, file in files.items() if any(fnmatchcase(name, p) for p in page)}
    files = {**in_order, **files}
    chosen: dict[str, Path] = {}
    for pattern in patterns or ["*"]:
        found = {name: file for name, file in files.items() if fnmatchcase(name, pattern)}
        if patterns and not found:
            raise ValueError(f"no study of the results pages is called {pattern!r}; there are: {', '.join(files)}")
        chosen = {**chosen, **{name: file for name, file in found.items() if name not in chosen}}
    return list(chosen.values())


def check_methods(files: Sequence[Path], only: Sequence[str]) -> None:
    """Raise `ValueError` for a method that none of the study files has."""
    methods = list(dict.fromkeys(cell.method for file in files for cell in load_study(file).cells))
    for name in only:
        if name not in methods:
            raise ValueError(f"none of these studies has a method {name!r}; there are: {', '.join(methods)}")


def with_stored_results(root: Path, stored: StoredStudy) -> Study:
    """The study in a folder of its own, in which the cells that have a stored result are done."""
    study = load_study(root / stored.file, root / "runs" / "studies" / stored.name)
    for each in stored.finished:
        if not each.outdated:
            write_result(study.result_file(each.cell.id), each.result)
    for cell in stored.to_run:
        file = study.result_file(cell.id)
        before = Finished(study.name, cell, read_result(file)) if file.is_file() else None
        if before is not None and (before.budget != study.budget or before.outdated):
            file.rename(file.with_suffix(f".{before.budget}.json"))  # attacked otherwise: run again, nothing is lost
    return study


def store_results(root: Path, study: Study, cells: Iterable[Cell]) -> None:
    """Store the results of these cells, as far as they are there."""
    for cell in cells:
        file = study.result_file(cell.id)
        if file.is_file():
            write_result(root / "results" / "studies" / study.name / f"{cell.id}.json", read_result(file))


def store_strips(root: Path, study: Study, cells: Iterable[Cell], data_root: str | None = None) -> None:
    """Keep what became of the images of those cells that a picture may show."""
    settings = read_settings(root)
    for cell in cells:
        file = study.result_file(cell.id)
        if file.is_file() and wants_strip(settings, study.name, cell):
            keep_strip(root, study, cell, read_result(file), data_root)


def without_repetitions(wanted: Mapping[str, Sequence[Cell]], budgets: Mapping[str, str]) -> dict[str, list[Cell]]:
    """The cells of each study without those whose run, configuration and attacks, an earlier one has already."""
    seen: set[tuple[str, str]] = set()
    kept: dict[str, list[Cell]] = {}
    for name, cells in wanted.items():
        keys = {cell.id: (config_hash(cell.config), budgets[name]) for cell in cells}
        kept[name] = [cell for cell in cells if keys[cell.id] not in seen]
        seen |= set(keys.values())
    return kept


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
    tell: Callable[[str], None] = print,
    **how: Any,
) -> dict[str, Standing]:
    """Run the studies, one workforce for all; where each of them stands.

    Args:
        root: of the repository. patterns: as for `chosen_studies`.
        only: the methods to run; all if none is named.
        missing: only what has no stored result, or one made with fewer attacks than its budget has, and store it.
        tell: gets a line whenever something happened.
        how: workers, seconds and others, as for `attention_cem.studies.run_studies`.
    """
    files = chosen_studies(root, patterns)
    check_methods(files, only)
    stored = _stored(root, files)
    wanted = {
        name: [cell for cell in each.study.cells if not only or cell.method in only] for name, each in stored.items()
    }
    wanted = {name: cells for name, cells in wanted.items() if cells}
    if not missing:
        return _anew(root, stored, wanted, tell=tell, **how)
    absent = {name: {cell.id for cell in stored[name].to_run} for name in wanted}
    to_run = without_repetitions(
        {name: [cell for cell in cells if cell.id in absent[name]] for name, cells in wanted.items()},
        {name: stored[name].study.budget for name in wanted},
    )
    studies = {name: with_stored_results(root, stored[name]) for name, cells in to_run.items() if cells}
    states: dict[str, dict[str, CellState]] = {}
    try:
        chosen = [replace(study, cells=tuple(to_run[name])) for name, study in studies.items()]
        if chosen:
            states = run_studies(chosen, tell=tell, **how)
    finally:
        for name, study in studies.items():
            store_results(root, study, stored[name].to_run)
        for name, study in studies.items():  # once every result is safe
            store_strips(root, study, stored[name].to_run, how.get("data_root"))
    # Read again: what was run for one study may be a run of another too.
    left = {name: {cell.id for cell in each.to_run} for name, each in _stored(root, files).items()}
    return {
        name: Standing(sum(cell.id not in left[name] for cell in cells), _failed(states.get(name, {})), len(cells))
        for name, cells in wanted.items()
    }


def _stored(root: Path, files: Sequence[Path]) -> dict[str, StoredStudy]:
    found = {root / each.file: each for each in read_studies(root, read_settings(root))}
    return {found[file].name: found[file] for file in files}


def _anew(
    root: Path, stored: Mapping[str, StoredStudy], wanted: Mapping[str, Sequence[Cell]], **how: Any
) -> dict[str, Standing]:
    """Run all of it in a folder of its own, and tell how far it is from what is stored."""
    studies = [load_study(root / stored[name].file, root / "runs" / "reproduced" / name) for name in wanted]
    states = run_studies([replace(study, cells=tuple(wanted[study.name])) for study in studies], **how)
    for study in studies:
        for line in differences(stored[study.name], study):
            how["tell"](f"{study.name}: {line}")
    return {
        name: Standing([state.status for state in each.values()].count("done"), _failed(each), len(each))
        for name, each in states.items()
    }


def _failed(states: Mapping[str, CellState]) -> int:
    return [state.status for state in states.values()].count("failed")


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
    keep_freed_memory()
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
