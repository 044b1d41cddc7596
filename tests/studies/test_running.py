import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from attention_cem.studies import running
from attention_cem.studies.plan import load_study
from attention_cem.studies.results import read_result
from attention_cem.studies.running import run_study
from tests.studies import stub

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from attention_cem.studies.plan import load_study
from attention_cem.studies.running import run_study
from tests.studies import stub
if __name__ == "__main__":
    study = load_study(sys.argv[1], sys.argv[2])
    run_study(study, workers=int(sys.argv[3]), runner=stub.slow, grace_seconds=4.0, poll_seconds=0.1)
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
    ended = len(stub.events(out, "end"))
    assert ended < 6
    assert start(file, out, workers).wait(timeout=50) == 0
    cells = sorted(cell.id for cell in load_study(file).cells)
    print(f"{workers} workers: {ended} of 6 done at the kill, then {sorted(stub.events(out, 'end')) == cells}")
    assert sorted(stub.events(out, "end")) == cells
    assert sorted(path.stem for path in (out / "results").iterdir()) == cells
    # What was done before the kill was not begun again; what was cut off was begun once more.
    assert len(stub.events(out, "begin")) <= 6 + workers


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


def test_study__one_worker_without_optuna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(running, "find_spec", lambda name: None if name == "optuna" else found(name))
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    states = run_study(study, runner=stub.seed_three_fails, poll_seconds=0.01)
    assert [state.status for state in states.values()].count("done") == 5
    assert not (study.out / "journal.log").exists()
    with pytest.raises(ValueError, match="several workers need Optuna"):
        run_study(study, runner=stub.quick, workers=2)


def test_study__no_worker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1 worker, got 0"):
        run_study(load_study(stub.write_study(tmp_path)), workers=0)
