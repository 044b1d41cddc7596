"""One cell for real: train, write the challenge, audit, put the result together."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention_cem.studies.plan import Cell, Study
from attention_cem.studies.results import result_of
from attention_cem.training.config import Config

if TYPE_CHECKING:
    from attention_cem.data import ImageData


@dataclass(frozen=True)
class CellPlace:
    """Where and how a cell is run; nothing here changes what is computed.

    Args:
        study: name of the study.
        folder: run folder of the cell.
        calibration: folder with calibrations that all cells share, those of studies run together too.
        budget: of the audit.
        device: as in ``run.device``.
        data_root: as in ``data.root``; None leaves the configuration's.
        keep_challenge: whether to keep the challenge after the audit.
        alive: called often; raises when the work must stop.
    """

    study: str
    folder: Path
    calibration: Path
    budget: str
    device: str = "auto"
    data_root: str | None = None
    keep_challenge: bool = True
    alive: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, study: Study, cell: Cell, calibration: Path | None = None, **more: Any) -> CellPlace:
        """The cell's place in its study; ``more`` is what the machine decides: device, data_root, alive."""
        return cls(
            study=study.name,
            folder=study.run_folder(cell),
            calibration=calibration or study.out / "calibration",
            budget=study.budget,
            keep_challenge=study.keep_challenges,
            **more,
        )


Runner = Callable[[Cell, CellPlace], Mapping[str, Any]]
"""What runs a cell and returns its result."""


def run_cell(cell: Cell, place: CellPlace) -> dict[str, Any]:
    """Run or continue a cell in its folder; what is finished there is not done again."""
    # torch is imported here, so that reading and comparing studies does without it.
    import torch

    from attention_cem.auditing import audit_run
    from attention_cem.training.building import resolve_device
    from attention_cem.training.run import train

    began = time.perf_counter()
    config = dataclasses.replace(
        cell.config,
        data=dataclasses.replace(cell.config.data, root=place.data_root or cell.config.data.root),
        run=dataclasses.replace(cell.config.run, folder=str(place.folder), resume=True, device=place.device),
    )
    data = images_of(config)
    try:
        trained = train(config, data=data, observer=_training_observer(place.alive))
        audit_began = time.perf_counter()
        record = audit_run(
            place.folder,
            budget=place.budget,
            device=resolve_device(place.device),
            data=data,
            calibration_cache=place.calibration,
            seed=cell.config.train.seed,
            compiled=cell.config.train.compile,
            observer=_audit_observer(place.alive),
        )
    finally:
        # Workers share the GPU: what one keeps for its next cell, the others cannot use. Does nothing without one.
        torch.cuda.empty_cache()
        if cell.config.train.compile:
            torch.compiler.reset()  # else the ninth cell meets the limit of recompilations and runs uncompiled
    now = time.perf_counter()
    seconds = {"audit_seconds": now - audit_began, "total_seconds": now - began}
    result = result_of(place.study, cell, facts=trained.facts, metrics=trained.metrics, audit=record, seconds=seconds)
    if not place.keep_challenge:
        shutil.rmtree(place.folder / "audit" / "challenge", ignore_errors=True)
    return result


def images_of(config: Config) -> ImageData:
    """The images of a run; those of the last call are kept, because the next cell mostly wants them again."""
    settings = config.data
    # Only a limit makes the images depend on the seed.
    seed = 0 if settings.limit is None and settings.test_limit is None else config.train.seed
    options = json.dumps(settings.options, sort_keys=True)
    return _load(settings.name, settings.root, settings.limit, settings.test_limit, seed, options)


@lru_cache(maxsize=1)
def _load(name: str, root: str | None, limit: int | None, test_limit: int | None, seed: int, options: str) -> ImageData:
    from attention_cem.data import load_data

    return load_data(name, root, limit=limit, test_limit=test_limit, seed=seed, **json.loads(options))


def _training_observer(alive: Callable[[], None]) -> Any:
    from attention_cem.training.observer import Observer

    class Watching(Observer):
        """Stops the training where the claim is lost."""

        def step(self, epoch: int, batch: int) -> None:
            alive()

    return Watching()


def _audit_observer(alive: Callable[[], None]) -> Any:
    from attention_cem.auditing import AuditObserver

    class Watching(AuditObserver):
        """Stops the audit where the claim is lost."""

        def progress(self, what: str, done: int, total: int, mse: float) -> None:
            alive()

    return Watching()
