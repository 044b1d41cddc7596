"""A worker: takes cells from the stores of its studies, one after the other, until all are done or given up."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attention_cem.studies.cell_run import CellPlace, Runner
from attention_cem.studies.plan import Study
from attention_cem.studies.results import write_result
from attention_cem.studies.store import Claim, ClaimLostError, ClaimStore, DeviceLostError
from attention_cem.training.folder_lock import FolderBusyError

_logger = logging.getLogger("attention_cem")
Queue = Sequence[tuple[Study, ClaimStore]]
"""Studies in the order in which their cells are taken, each with its store, prepared for its cells."""

_MOST_GIVEN_BACK = 30  # times that a worker waits for the holder of a cell's folder: some minutes


class StudyInterrupted(KeyboardInterrupt):
    """The worker was asked to stop; its cell was given back and can be continued."""


class Heart:
    """Beats for a claim in a thread of its own, and knows why the work must stop.

    Args:
        store: where to beat.
        claim: for which claim.
        seconds: between beats.
        wanted: whether the worker is still wanted, e.g. whether its parent lives.
    """

    def __init__(self, store: ClaimStore, claim: Claim, seconds: float, wanted: Callable[[], bool]) -> None:
        self._store, self._claim, self._seconds, self._wanted = store, claim, seconds, wanted
        self._stop = threading.Event()
        self._trouble: BaseException | None = None

    def check(self) -> None:
        """Raise if the claim was lost or the worker is not wanted any more."""
        if self._trouble is not None:
            raise self._trouble

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat inside the block."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                if not self._wanted():
                    self._trouble = StudyInterrupted("the study's main process is gone")
                    return
                self._store.beat(self._claim)
            except ClaimLostError as lost:
                self._trouble = lost
                return
            except Exception as error:  # a store that is away for a moment must not stop hours of work
                _logger.warning("study: cannot reach the store: %s", error)


def work(
    queue: Queue,
    runner: Runner,
    *,
    device: str = "auto",
    data_root: str | None = None,
    beat_seconds: float = 30.0,
    poll_seconds: float = 5.0,
    until: float | None = None,
    wanted: Callable[[], bool] = lambda: True,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Run cells until none is left for anybody; where a study has none to begin, those of the next are taken.

    A cell that fails is recorded, tried again as often as the store allows, and does not stop the others: unless the
    GPU is lost to this process, in which every further cell would fail. While other workers still run the last cells
    this one waits, to take over if they die. A cell in whose folder a worker believed dead still works is given back
    and comes after the others.

    Args:
        queue: what to run.
        runner: runs one cell, see `run_cell`.
        device: as in ``run.device``.
        data_root: as in ``data.root``.
        beat_seconds: between two signs of life.
        poll_seconds: between two looks at the stores while there is nothing to do.
        until: `time.monotonic` after which no cell is begun.
        wanted: asked with every beat; False stops the worker.
        tell: gets one line per finished cell.

    Raises:
        KeyboardInterrupt: asked to stop; the cell in work was given back first.
        DeviceLostError: go on in another process.
    """

    def pause() -> None:
        time.sleep(poll_seconds if until is None else max(0.0, min(poll_seconds, until - time.monotonic())))

    given_back: Counter[tuple[str, str]] = Counter()
    while until is None or time.monotonic() < until:
        taken = _take(queue)
        if taken is None:
            if not wanted() or _all_ended(queue):
                return
            pause()
            continue
        study, store, claim = taken
        cell = study.cell(claim.cell)
        heart = Heart(store, claim, beat_seconds, wanted)
        shared = queue[0][0].out / "calibration"  # an attack on a data set is calibrated once, whatever the study
        place = CellPlace.of(study, cell, shared, device=device, data_root=data_root, alive=heart.check)
        try:
            with heart.beating():
                result = runner(cell, place)
            store.finish(claim, result)
        except KeyboardInterrupt:
            store.fail(claim, "interrupted", counts=False)
            raise
        except ClaimLostError as lost:
            tell(f"{cell.id}: {lost}")
            continue
        except FolderBusyError as busy:
            # Whoever held the cell was believed dead, but is only suspended: neither the cell nor this worker failed.
            times = given_back[study.name, cell.id] = given_back[study.name, cell.id] + 1
            for_good = times > _MOST_GIVEN_BACK
            store.fail(claim, str(busy), counts=for_good)
            if times == 1 or for_good:
                tell(f"{cell.id}: {'failed' if for_good else 'given back'}: {busy}")
            if not wanted():
                return
            pause()
            continue
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:2000]
            _logger.debug("study: %s failed", cell.id, exc_info=error)
            store.fail(claim, reason, counts=True)
            tell(f"{cell.id}: try {claim.attempt} failed: {reason}")
            if _device_is_lost(error):
                raise DeviceLostError(f"the GPU is lost to this process; the same command goes on: {reason}") from error
            continue
        write_result(study.result_file(cell.id), result)
        tell(f"{cell.id}: {figures_line(result)}")


def _take(queue: Queue) -> tuple[Study, ClaimStore, Claim] | None:
    for study, store in queue:
        claim = store.claim()
        if claim is not None:
            return study, store, claim
    return None


def _all_ended(queue: Queue) -> bool:
    return all(state.status in ("done", "failed") for _, store in queue for state in store.states().values())


def _device_is_lost(error: BaseException | None) -> bool:
    """Whether torch reports a failed kernel, here or below: the context of the process does not survive that.

    By name, so that a worker needs no torch of its own.
    """
    while error is not None:
        if any(kind.__name__ == "AcceleratorError" for kind in type(error).__mro__):
            return True
        error = error.__cause__ or error.__context__
    return False


def figures_line(result: Mapping[str, Any]) -> str:
    """A result in a few words.

    >>> figures_line({"accuracy": 0.87, "mse": 0.0123})
    'accuracy 87.00%, worst-case MSE 0.01230'
    """
    return f"accuracy {result['accuracy']:.2%}, worst-case MSE {result['mse']:.5f}"
