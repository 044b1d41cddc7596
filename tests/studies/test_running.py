import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from attention_cem.studies import running
from attention_cem.studies.cell_run import CellPlace
from attention_cem.studies.plan import Cell, load_study
from attention_cem.studies.results import read_result, write_result
from attention_cem.studies.running import run_studies, run_study
from attention_cem.studies.store import DeviceLostError
from tests.studies import stub, stub_of_torch

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
sys.modules["optuna"] = None  # as on a machine without it, here and in the workers, which import this file too
from attention_cem.studies.plan import load_study
from attention_cem.studies.running import run_study
from tests.studies import stub
if __name__ == "__main__":
    study = load_study(sys.argv[1], sys.argv[2])
    run_study(study, workers=int(sys.argv[3]), runner=stub.slow, grace_seconds=4.0, poll_seconds=0.1)
"""


MANY = stub.STUDY.replace("[0, 1, 2, 3, 4, 5]", str(list(range(80))))
HASTY = """
import os, sys, time
from attention_cem.studies import folder_store
from attention_cem.studies.folder_store import FolderStore
from attention_cem.studies.plan import load_study
from tests.studies import stub
folder_store.MAX_DEATHS = 100  # the kills may all meet one cell, which would rightly be given up
study = load_study(sys.argv[1], sys.argv[2])
store = FolderStore(study.out, grace_seconds=2.0)
store.prepare([cell.id for cell in study.cells])

def log(event, cell):
    with (study.out / "events.txt").open("a") as file:
        file.write(f"{event} {cell} {os.getpid()}\\n")

while any(state.status != "done" for state in store.states().values()):
    claim = store.claim()
    if claim is None:
        time.sleep(0.01)
        continue
    log("begin", claim.cell)
    time.sleep(0.02)
    store.beat(claim)
    store.finish(claim, stub.result(study.cell(claim.cell)))
    log("finished", claim.cell)
"""


def start(file: Path, out: Path, workers: int) -> subprocess.Popen[bytes]:
    script = file.with_name("script.py")
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(
        [sys.executable, str(script), str(file), str(out), str(workers)], env={**os.environ, "PYTHONPATH": path}
    )


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_study__killed_midway_and_restarted_finishes_with_each_run_done_once(tmp_path: Path, workers: int) -> None:
    file, out = stub.write_study(tmp_path), tmp_path / "out"
    first = start(file, out, workers)
    wait_until(lambda: (out / "events.txt").exists() and len(stub.events(out, "end")) >= 2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    # The kill may leave the file of a write that was under way; it is no result and is never read.
    handed_in = {path.stem for path in (out / "results").glob("*.json")}
    assert len(handed_in) < 6
    assert start(file, out, workers).wait(timeout=50) == 0
    cells = sorted(cell.id for cell in load_study(file).cells)
    begun, ended = stub.events(out, "begin"), stub.events(out, "end")
    print(f"{workers} workers: {len(handed_in)} of 6 done at the kill, {len(begun)} begun in all")
    assert sorted(path.stem for path in (out / "results").glob("*.json")) == sorted(set(ended)) == cells
    # What was handed in before the kill was not begun again; what was cut off was begun once more.
    assert all(begun.count(cell) == ended.count(cell) == 1 for cell in handed_in)
    assert len(begun) <= 6 + workers


@pytest.mark.slow
def test_study__two_commands_on_one_store_never_run_the_same_cell(tmp_path: Path) -> None:
    file, out = stub.write_study(tmp_path), tmp_path / "out"
    commands = [start(file, out, 1), start(file, out, 1)]
    assert [command.wait(timeout=50) for command in commands] == [0, 0]
    cells = sorted(cell.id for cell in load_study(file).cells)
    assert sorted(stub.events(out, "begin")) == sorted(stub.events(out, "end")) == cells


def test_study__a_failing_cell_is_reported_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    told: list[str] = []
    states = run_study(study, runner=stub.seed_three_fails, tell=told.append, poll_seconds=0.01)
    statuses = {study.cell(cell).config.train.seed: state.status for cell, state in states.items()}
    assert statuses == {0: "done", 1: "done", 2: "done", 3: "failed", 4: "done", 5: "done"}
    failed = next(state for state in states.values() if state.status == "failed")
    assert (failed.attempts, failed.error) == (2, "RuntimeError: out of memory")
    assert sum("failed: RuntimeError: out of memory" in line for line in told) == 2
    assert told[-1].startswith("tiny: 5 of 6 done, 1 failed")

    again = run_study(study, runner=stub.quick, poll_seconds=0.01)
    assert [state.status for state in again.values()].count("failed") == 1
    retried = run_study(study, runner=stub.quick, retry_failed=True, poll_seconds=0.01)
    assert {state.status for state in retried.values()} == {"done"}
    assert len(stub.events(study.out, "end")) == 6


@pytest.mark.slow
def test_study__a_worker_that_lost_its_gpu_is_replaced_and_takes_no_other_cell_with_it(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    states = run_study(study, workers=2, runner=stub.seed_one_loses_the_gpu_once, poll_seconds=0.1)
    assert {state.status for state in states.values()} == {"done"}
    assert len(stub.events(study.out, "begin")) == 7 and stub.events(study.out, "hopeless") == []


def test_study__one_worker_that_lost_its_gpu_stops_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stub, "_LOST", [])
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    with pytest.raises(DeviceLostError, match="the same command goes on: ValueError: no step"):
        run_study(study, runner=stub.seed_one_loses_the_gpu_once, poll_seconds=0.01)
    assert stub.events(study.out, "hopeless") == []
    stub._LOST.clear()  # as in a new process
    states = run_study(study, runner=stub.seed_one_loses_the_gpu_once, poll_seconds=0.01)
    assert {state.status for state in states.values()} == {"done"}


def test_study__an_interrupted_cell_is_given_back_and_its_try_does_not_count(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")

    def interrupted(cell: object, place: object) -> dict[str, object]:
        raise KeyboardInterrupt

    for _ in range(7):
        with pytest.raises(KeyboardInterrupt):
            run_study(study, runner=interrupted, poll_seconds=0.01)
    states = run_study(study, runner=stub.quick, poll_seconds=0.01)
    assert {state.status for state in states.values()} == {"done"}


@pytest.mark.parametrize("store", ["file", "sqlite"])
def test_study__results_reach_a_machine_with_another_folder_through_the_store(tmp_path: Path, store: str) -> None:
    file = stub.write_study(tmp_path)
    where = str(tmp_path / "shared.log") if store == "file" else f"sqlite:///{tmp_path / 'shared.db'}"
    here, there = load_study(file, tmp_path / "here"), load_study(file, tmp_path / "there")
    run_study(here, runner=stub.quick, store=where, poll_seconds=0.01)
    states = run_study(there, runner=stub.quick, store=where, poll_seconds=0.01)
    assert {state.status for state in states.values()} == {"done"}
    assert not (there.out / "events.txt").exists()
    for cell in there.cells:
        assert read_result(there.result_file(cell.id)) == read_result(here.result_file(cell.id))


def test_study__a_store_that_needs_optuna_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(running, "find_spec", lambda name: None if name == "optuna" else found(name))
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    with pytest.raises(ValueError, match="the store mysql://host/cem needs Optuna"):
        run_study(study, runner=stub.quick, store="mysql://host/cem")


@pytest.mark.slow
def test_study__eight_workers_of_which_five_are_killed_finish_without_optuna(tmp_path: Path) -> None:
    text = stub.STUDY.replace("[0, 1, 2, 3, 4, 5]", str(list(range(16))))
    file, out = stub.write_study(tmp_path, text), tmp_path / "out"
    command, killed, seen = start(file, out, 8), dict[int, str](), dict[str, float]()

    def kill_a_holder() -> bool:
        for claim in (out / "claims").glob("*.running"):
            # Midway through a cell of one second: one killed after its work would do the work again.
            midway = time.monotonic() - seen.setdefault(claim.name, time.monotonic()) < 0.5
            try:
                pid = json.loads(claim.read_text()).get("pid")
            except (FileNotFoundError, ValueError):
                continue
            cell = claim.name.split(".")[0]
            # Another cell each time: one that lost five holders would rightly be given up.
            if midway and pid is not None and pid not in killed and cell not in killed.values():
                os.kill(pid, signal.SIGKILL)
                killed[pid] = cell
                return True
        return False

    for _ in range(5):
        wait_until(kill_a_holder)
        time.sleep(0.3)
    assert command.wait(timeout=50) == 0
    cells = sorted(cell.id for cell in load_study(file).cells)
    assert sorted(path.stem for path in (out / "results").glob("*.json")) == cells
    begun, ended = stub.events(out, "begin"), stub.events(out, "end")
    assert sorted(set(ended)) == cells and len(begun) <= 16 + 5
    assert all(begun.count(cell) == ended.count(cell) == 1 for cell in set(cells) - set(killed.values()))
    assert len(list((out / "claims").glob("*.died"))) == 5 and not list((out / "claims").glob("*.running"))
    print(f"16 cells, 8 workers, 5 killed: {len(begun)} begun, each finished once")


@pytest.mark.slow
def test_study__workers_killed_at_any_instant_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    file, out = stub.write_study(tmp_path, MANY), tmp_path / "out"
    out.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", HASTY, str(file), str(out)], env=environment)

    workers, kills, chance = [begin() for _ in range(4)], 0, random.Random(0)
    log = out / "events.txt"
    while any(worker.poll() is None for worker in workers) and kills < 12:
        at_work = [w for w in workers if w.poll() is None and log.exists() and f" {w.pid}\n" in log.read_text()]
        time.sleep(chance.uniform(0.0, 0.03))
        if at_work:
            victim = chance.choice(at_work)
            victim.kill()
            victim.wait()
            kills += 1
            workers[workers.index(victim)] = begin()
    assert [worker.wait(timeout=50) for worker in workers] == [0, 0, 0, 0]
    cells = sorted(cell.id for cell in load_study(file).cells)
    assert sorted(path.stem for path in (out / "results").glob("*.json")) == cells
    begun, finished = stub.events(out, "begin"), stub.events(out, "finished")
    print(f"80 cells, {kills} kills: {len(begun)} begun, {len(finished)} told as finished, all with a result")
    assert kills >= 5 and len(set(finished)) == len(finished)
    # A worker holds one cell at a time, so that every kill costs one try at most.
    assert sorted(set(begun)) == cells and len(begun) <= 80 + kills


def test_study__no_cell_is_begun_after_the_time_given(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")

    def half_a_second(cell: Cell, place: CellPlace) -> dict[str, object]:
        time.sleep(0.5)
        return stub.quick(cell, place)

    states = run_study(study, runner=half_a_second, seconds=0.7, poll_seconds=0.01)
    assert [state.status for state in states.values()] == ["done", "done", *["waiting"] * 4]
    states = run_study(study, runner=stub.quick, seconds=100.0, poll_seconds=0.01)
    assert {state.status for state in states.values()} == {"done"} and len(stub.events(study.out, "begin")) == 6
    with pytest.raises(ValueError, match="seconds must be above 0, or None for no limit, got 0"):
        run_study(study, seconds=0)


@pytest.mark.slow
def test_study__workers_stop_at_the_time_given_and_finish_what_they_have(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path, MANY), tmp_path / "out")
    write_result(study.result_file(study.cells[-1].id), stub.result(study.cells[-1]))
    told: list[str] = []
    states = run_study(study, workers=2, runner=stub.slow, seconds=5.0, poll_seconds=0.1, tell=told.append)
    statuses = [state.status for state in states.values()]
    assert set(statuses) == {"done", "waiting"}
    assert statuses.count("done") - 1 == len(stub.events(study.out, "begin")) == len(stub.events(study.out, "end"))
    # Results are told once, those of earlier runs not again.
    assert sum(": accuracy" in line for line in told) == statuses.count("done") - 1


@pytest.mark.parametrize("grace", [float("nan"), -5.0, 0.0, float("inf"), 1e9])
def test_study__a_time_of_grace_that_cannot_be_is_refused(tmp_path: Path, grace: float) -> None:
    with pytest.raises(ValueError, match=rf"above 0 and at most 86400, a day, got {grace}".replace("+", r"\+")):
        run_study(load_study(stub.write_study(tmp_path), tmp_path / "out"), runner=stub.quick, grace_seconds=grace)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ('"surrogate.name" = "nne"', "no surrogate is called 'nne'; did you mean 'none'?"),
        ('"defence.gausian_noise.sigma" = 0.1', "unknown defence 'gausian_noise'; did you mean 'gaussian_noise'?"),
        ('"defence.dropout.q" = 0.1', "dropout has no parameter 'q'"),
        ('"model.name" = "vgg12_bn"', "vgg12_bn"),
    ],
)
def test_study__a_misspelt_name_is_refused_before_the_first_cell(tmp_path: Path, setting: str, told: str) -> None:
    network = '"model.name" = "tiny_cnn"'
    others = setting if setting.startswith('"model.name"') else f"{network}\n{setting}"
    text = stub.STUDY.replace(network, others)
    study = load_study(stub.write_study(tmp_path, text), tmp_path / "out")
    with pytest.raises(ValueError, match=rf"study .*, method .*: .*{re.escape(told)}"):
        run_study(study)
    assert not (tmp_path / "out").exists()


def test_studies__run_together_share_their_calibrations(tmp_path: Path) -> None:
    file = stub.write_study(tmp_path)
    studies = [replace(load_study(file, tmp_path / name), name=name) for name in ("first", "second")]
    seen: dict[str, set[Path]] = {}

    def looking(cell: Cell, place: CellPlace) -> dict[str, object]:
        seen.setdefault(place.study, set()).add(place.calibration)
        return stub.quick(cell, place)

    run_studies(studies, runner=looking, poll_seconds=0.01)
    assert seen == {name: {tmp_path / "first" / "calibration"} for name in ("first", "second")}


@pytest.mark.slow
def test_studies__share_their_workers_and_are_told_as_one(tmp_path: Path) -> None:
    file = stub.write_study(tmp_path)
    studies = [replace(load_study(file, tmp_path / name), name=name) for name in ("first", "second")]
    told: list[str] = []
    states = run_studies(studies, workers=2, runner=stub.quick, poll_seconds=0.1, tell=told.append)
    assert list(states) == ["first", "second"]
    assert {state.status for each in states.values() for state in each.values()} == {"done"}
    for study in studies:
        assert sorted(stub.events(study.out, "end")) == sorted(cell.id for cell in study.cells)
    assert told[0] == "2 studies: 0 of 12 done" and told[-1] == "2 studies: 12 of 12 done"


def test_studies__two_of_one_name_are_refused(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    with pytest.raises(ValueError, match="a name of its own, got tiny, tiny"):
        run_studies([study, study], runner=stub.quick)
    assert not (tmp_path / "out").exists()


def test_study__no_worker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1 worker, got 0"):
        run_study(load_study(stub.write_study(tmp_path)), workers=0)


def test_run_study__workers_share_the_cores_to_compute_and_to_compile_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # broke: eleven workers that each compiled with all sixteen cores, and a GPU that waited for them
    for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    run_study(study, workers=2, runner=stub.telling_its_threads, poll_seconds=0.1)
    told = [read_result(study.result_file(cell.id))["versions"] for cell in study.cells]
    assert told == [{"OMP_NUM_THREADS": "6", "TORCHINDUCTOR_COMPILE_THREADS": "6"}] * 6


def test_run_study__workers_share_the_cores_where_torch_was_imported_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # broke: under `make reproduce` each of two workers computed on both of two cores, and they got in their own way
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    run_study(study, workers=2, runner=stub_of_torch.telling_its_threads, poll_seconds=0.1)
    told = [read_result(study.result_file(cell.id))["versions"] for cell in study.cells]
    assert told == [{"threads": 6}] * 6
