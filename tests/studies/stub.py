"""Cells that cost nothing: what workers do with them is what is tested. A module, so that processes can import it."""

import os
import time
from pathlib import Path
from typing import Any

from attention_cem.studies.cell_run import CellPlace
from attention_cem.studies.plan import Cell
from attention_cem.studies.results import RESULT_FORMAT, RESULT_VERSION
from attention_cem.training.config_reading import config_hash

STUDY = """
name = "tiny"
budget = "quick"
max_failures = 2
[settings]
"model.name" = "tiny_cnn"
[matrix]
seed = [0, 1, 2, 3, 4, 5]
"""


def write_study(folder: Path, text: str = STUDY) -> Path:
    file = folder / "tiny.toml"
    file.write_text(text)
    return file


def note(place: CellPlace, event: str, cell: Cell) -> None:
    """One line per event, appended in one write: lines of several processes do not mix."""
    log = place.folder.parents[1] / "events.txt"
    with log.open("a") as file:
        file.write(f"{event} {cell.id}\n")


def events(out: Path, event: str) -> list[str]:
    lines = (out / "events.txt").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith(event)]


def result(cell: Cell) -> dict[str, Any]:
    seed = cell.config.train.seed
    return {
        "format": RESULT_FORMAT,
        "version": RESULT_VERSION,
        "cell": cell.id,
        "method": cell.method,
        "data": cell.config.data.name,
        "seed": seed,
        "lambda": cell.lambd,
        "sigma": cell.sigma,
        "settings": dict(cell.settings),
        "config_hash": config_hash(cell.config),
        "accuracy": 0.8 + seed / 1000,
        "validation_accuracy": 0.8,
        "mse": 0.02 - seed / 10_000,
        "receipt_ok": True,
    }


def quick(cell: Cell, place: CellPlace) -> dict[str, Any]:
    note(place, "begin", cell)
    time.sleep(0.05)
    note(place, "end", cell)
    return result(cell)


def telling_its_threads(cell: Cell, place: CellPlace) -> dict[str, Any]:
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")}
    return {**result(cell), "versions": threads}


def slow(cell: Cell, place: CellPlace) -> dict[str, Any]:
    note(place, "begin", cell)
    for _ in range(10):
        time.sleep(0.1)
        place.alive()
    note(place, "end", cell)
    return result(cell)


class AcceleratorError(RuntimeError):
    """Called as torch's is."""


_LOST: list[str] = []


def seed_one_loses_the_gpu_once(cell: Cell, place: CellPlace) -> dict[str, Any]:
    """Every cell that is run in a process after that fails as well."""
    note(place, "begin", cell)
    if _LOST:
        note(place, "hopeless", cell)
        raise AcceleratorError("CUDA error: an illegal memory access was encountered")
    if cell.config.train.seed == 1 and not (place.folder.parents[1] / "lost").exists():
        (place.folder.parents[1] / "lost").touch()
        _LOST.append(cell.id)
        raise ValueError("no step") from AcceleratorError("CUDA error: an illegal memory access was encountered")
    note(place, "end", cell)
    return result(cell)


def seed_three_fails(cell: Cell, place: CellPlace) -> dict[str, Any]:
    note(place, "begin", cell)
    if cell.config.train.seed == 3:
        raise RuntimeError("out of\nmemory")
    note(place, "end", cell)
    return result(cell)
