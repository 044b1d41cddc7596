"""`run_study`, `run_studies`: all cells, N at a time here, and at the same time anywhere the store can be reached."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any

from attention_cem.freed_memory import keep_freed_memory
from attention_cem.studies.cell_run import Runner, run_cell
from attention_cem.studies.folder_store import FolderStore
from attention_cem.studies.plan import Study
from attention_cem.studies.progress import progress_line
from attention_cem.studies.results import make_folder, program_commit, write_result
from attention_cem.studies.store import CellState, ClaimStore, DeviceLostError
from attention_cem.studies.worker import Queue, figures_line, work
from attention_cem.training.config_checks import ConfigError

_DEVICE_LOST = 75
"""Exit code of a worker that asks to be started again."""

_LONGEST_GRACE = 86_400.0


def run_study(study: Study, **how: Any) -> dict[str, CellState]:
    """Run every cell of a study that has no result yet, and return where all of them stand.

    Args:
        study: from `load_study`.
        how: workers, store, device and the other arguments of `run_studies`.
    """
    return run_studies([study], **how)[study.name]


def run_studies(
    studies: Sequence[Study],
    *,
    workers: int = 1,
    store: str | None = None,
    device: str = "auto",
    data_root: str | None = None,
    retry_failed: bool = False,
    seconds: float | None = None,
    runner: Runner = run_cell,
    grace_seconds: float = 120.0,
    poll_seconds: float = 2.0,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, dict[str, CellState]]:
    """Run every cell that has no result yet, each once, and return where all of them stand, study by study.

    Call it again after a crash: finished cells stay finished, an unfinished run continues from its checkpoint. Call
    it on several machines with the same store: they share the cells. Studies come in the order given; a worker that
    finds no cell of one to begin does not wait for its last ones, but takes those of the next.

    Args:
        studies: from `load_study`.
        workers: processes on this machine; 1 works in this process.
        store: database URL or Optuna journal file that all machines can reach; otherwise each study's folder itself,
            which they may share too.
        device: as in ``run.device``; several, separated by commas, are dealt out to the workers.
        data_root: as in ``data.root``.
        retry_failed: try cells again that were given up.
        seconds: begin no cell later than this after the start; cells in work are finished. None: all cells.
        runner: what runs a cell; with several workers a function of a module.
        grace_seconds: a worker not heard of for so long is believed dead, and its cell is given to another.
        poll_seconds: between two looks at the stores.
        tell: gets one line whenever something happened.

    Raises:
        ValueError: settings with which no cell could be run; none was begun.
        KeyboardInterrupt: asked to stop; call again to continue.
        DeviceLostError: the only worker lost its GPU; call again, from a new process. Of several it is replaced.
    """
    if workers < 1:
        raise ValueError(f"a study needs at least 1 worker, got {workers}")
    if seconds is not None and not seconds > 0:
        raise ValueError(f"seconds must be above 0, or None for no limit, got {seconds}")
    if not 0 < grace_seconds <= _LONGEST_GRACE:
        raise ValueError(
            f"grace_seconds must be above 0 and at most {_LONGEST_GRACE:.0f}, a day, got {grace_seconds}; leave it out "
            "for 120"
        )
    if len({study.name for study in studies}) < len(studies):
        raise ValueError(f"each study must have a name of its own, got {', '.join(study.name for study in studies)}")
    if runner is run_cell:
        _check_names(studies)
    program_commit()  # goes into every result; what is wrong with it shall be told before the first is worked for
    devices = devices_of(device)
    # This clock is the same for all processes of a machine.
    until = None if seconds is None else time.monotonic() + seconds
    for study in studies:
        make_folder(study.out)
    with _opened(studies, store, grace_seconds, retry_failed=retry_failed) as queue:
        _restore_all(queue)
        settings: dict[str, Any] = {
            "data_root": data_root,
            "beat_seconds": grace_seconds / 4,
            "poll_seconds": poll_seconds,
            "until": until,
        }
        tell(progress_line(queue))
        if workers == 1:
            told = partial(_tell_progress, queue, tell)
            work(queue, runner, device=devices[0], tell=told, **settings)
        else:
            orders = [
                {
                    "device": devices[number % len(devices)],
                    "threads": max(1, (os.cpu_count() or 1) // workers),
                    **settings,
                }
                for number in range(workers)
            ]
            _run_workers(queue, store, grace_seconds, runner, orders, tell, poll_seconds)
        _restore_all(queue)
        return {study.name: claims.states() for study, claims in queue}


def _check_names(studies: Sequence[Study]) -> None:
    """Refuse networks, defences, surrogates and their arguments that do not exist, before the first cell is begun."""
    # Here and not where study files are read: these import torch, and reading studies does without it.
    from attention_cem.defences.registry import check_defence
    from attention_cem.splitting import get_backbone
    from attention_cem.surrogates.registry import check_surrogate

    for study in studies:
        for cell in study.cells:
            config = cell.config
            try:
                get_backbone(config.model.name)
                for name, arguments in config.defence.items():
                    check_defence({"name": name, **arguments})
                if config.surrogate.name != "none":
                    check_surrogate(config.surrogate.name, config.surrogate.arguments)
            except ValueError as error:
                raise ValueError(f"study {study.name}, method {cell.method}: {error}") from None


def devices_of(device: str) -> list[str]:
    """The devices named, separated by commas; one that is not there would fail every cell.

    >>> devices_of("auto"), devices_of("gpu")
    Traceback (most recent call last):
    ...
    ValueError: --device must be auto, cpu, cuda or cuda:N, got 'gpu'
    """
    names = [name.strip() for name in device.split(",")]
    for name in names:
        if name in ("auto", "cpu"):  # always there, and known without torch
            continue
        import torch

        from attention_cem.training.building import resolve_device

        try:
            found = resolve_device(name)
        except ConfigError as error:
            raise ValueError(str(error).replace("run.device", "--device")) from None
        if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
            raise ValueError(f"--device: there is no {name}; this machine has {torch.cuda.device_count()} CUDA devices")
    return names


def open_store(
    study: Study, store: str | None = None, *, grace_seconds: float = 120.0, only_look: bool = False
) -> ClaimStore:
    """The store of a study: its folder, or, where a database or journal file is named, Optuna's.

    Args:
        study: whose.
        store: database URL or journal file.
        grace_seconds: see `run_study`.
        only_look: write nothing.

    Raises:
        ValueError: a database or journal file is named, but Optuna is not installed, or it cannot be opened.
    """
    if store is None:
        return FolderStore(study.out, max_failures=study.max_failures, grace_seconds=grace_seconds)
    if find_spec("optuna") is None:
        raise ValueError(
            f"the store {store} needs Optuna: pip install 'attention-cem[sweep]'; without a store named, workers that "
            "see the same folder share the study without it"
        )
    from attention_cem.studies.optuna_store import OptunaStore

    return OptunaStore(
        study.name, store, max_failures=study.max_failures, grace_seconds=grace_seconds, only_look=only_look
    )


def study_states(study: Study, store: str | None = None) -> dict[str, CellState]:
    """Where every cell stands, without running any; results that are in the store only are written as files.

    Raises:
        ValueError: there is no such store, or the study's folder is a file or below one.
    """
    nearest = next(path for path in (study.out, *study.out.parents) if path.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is a file; --out must be the study's folder, got {study.out}")
    claims = open_store(study, store, only_look=True)
    try:
        claims.prepare([cell.id for cell in study.cells])
        restore_results(study, claims)
        return claims.states()
    finally:
        claims.close()


def in_turn(study: Study) -> list[str]:
    """The cells' ids, all of the first seed first: a study that is cut short has compared everything with that one."""
    return [cell.id for cell in sorted(study.cells, key=lambda each: each.config.train.seed)]


def restore_results(study: Study, claims: ClaimStore) -> None:
    """Write the result files that other machines, or a killed worker, left in the store only."""
    for cell, result in claims.results().items():
        if not study.result_file(cell).is_file():
            write_result(study.result_file(cell), result)


@contextmanager
def _opened(
    studies: Sequence[Study], store: str | None, grace_seconds: float, *, retry_failed: bool = False
) -> Iterator[Queue]:
    """The studies with their stores, prepared, and closed behind the block."""
    with ExitStack() as stack:
        queue = []
        for study in studies:
            claims = stack.enter_context(closing(open_store(study, store, grace_seconds=grace_seconds)))
            claims.prepare(in_turn(study), retry_failed=retry_failed)
            queue.append((study, claims))
        yield queue


def _restore_all(queue: Queue) -> None:
    for study, claims in queue:
        restore_results(study, claims)


def _tell_progress(queue: Queue, tell: Callable[[str], None], text: str) -> None:
    tell(text)
    tell(progress_line(queue))


def _run_workers(
    queue: Queue,
    store: str | None,
    grace_seconds: float,
    runner: Runner,
    orders: Sequence[dict[str, Any]],
    tell: Callable[[str], None],
    poll_seconds: float,
) -> None:
    context = multiprocessing.get_context("spawn")
    studies = [study for study, _ in queue]

    def begin(order: dict[str, Any]) -> SpawnProcess:
        process = context.Process(target=_work_in_process, args=(studies, store, grace_seconds, runner, order))
        process.start()
        return process

    before = [claims.states() for _, claims in queue]
    processes = [begin(order) for order in orders]
    try:
        while any(process.is_alive() or process.exitcode == _DEVICE_LOST for process in processes):
            time.sleep(poll_seconds)
            # Each of these ends with a failure that counts, so that there is an end to them.
            processes = [
                begin(order) if process.exitcode == _DEVICE_LOST else process
                for process, order in zip(processes, orders, strict=True)
            ]
            now = [claims.states() for _, claims in queue]
            if now != before:
                for (_, claims), states, earlier in zip(queue, now, before, strict=True):
                    _tell_changes(claims, states, earlier, tell)
                tell(progress_line(queue))
                before = now
    except BaseException:
        for process in processes:
            if process.is_alive():
                process.terminate()
        raise
    finally:
        for process in processes:
            process.join()


def _tell_changes(
    claims: ClaimStore, now: Mapping[str, CellState], before: Mapping[str, CellState], tell: Callable[[str], None]
) -> None:
    """A line for each cell that ended or failed between two looks."""
    changed = [cell for cell, state in now.items() if state != before.get(cell)]
    results = claims.results() if changed else {}
    for cell in changed:
        if cell in results or now[cell].error:
            tell(f"{cell}: {figures_line(results[cell]) if cell in results else now[cell].error}")


def _work_in_process(
    studies: Sequence[Study], store: str | None, grace_seconds: float, runner: Runner, order: dict[str, Any]
) -> None:
    """What a worker process does; it stops when the process that started it is gone."""
    _share_cores(order.pop("threads"))
    keep_freed_memory()
    # Ctrl-C reaches only the main process, which then asks each worker once; twice would mean "at once".
    os.setsid()
    signal.signal(signal.SIGTERM, _interrupt)
    parent = multiprocessing.parent_process()
    try:
        with _opened(studies, store, grace_seconds) as queue:
            work(queue, runner, wanted=lambda: parent is None or parent.is_alive(), **order)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except DeviceLostError:
        raise SystemExit(_DEVICE_LOST) from None
    except OSError as error:
        raise SystemExit(f"study: a worker cannot go on: {error}") from None


def _share_cores(threads: int) -> None:
    """Workers that each take all cores, to compute or to compile, get in each other's way; who says otherwise is heard.

    The environment is read when torch is imported, which the program that began the worker may do in it too.
    """
    if "OMP_NUM_THREADS" not in os.environ and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
        os.environ.setdefault(name, str(threads))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
