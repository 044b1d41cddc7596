"""What makes a claim exclusive, on a journal file and on a database."""

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from attention_cem.studies.optuna_store import OptunaStore
from attention_cem.studies.plan import load_study
from attention_cem.studies.processes import this_process
from attention_cem.studies.serial_store import SerialStore
from attention_cem.studies.store import ClaimLostError
from attention_cem.studies.worker import Heart, StudyInterrupted, work
from tests.studies import stub

CELLS = [f"cell-{number}" for number in range(8)]
RESULT = {"accuracy": 0.9, "mse": 0.02}
CLAIMER = """
import sys
from attention_cem.studies.optuna_store import OptunaStore
store = OptunaStore("s", sys.argv[1])
store.prepare(sys.argv[2].split(","))
while (claim := store.claim()) is not None:
    print(claim.cell, flush=True)
    store.finish(claim, {"accuracy": 0.9, "mse": 0.02})
"""


@pytest.fixture(params=["journal", "sqlite"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "j.log") if request.param == "journal" else f"sqlite:///{tmp_path / 's.db'}"


def opened(where: str, grace_seconds: float = 60.0, max_failures: int = 2) -> OptunaStore:
    store = OptunaStore("s", where, grace_seconds=grace_seconds, max_failures=max_failures)
    store.prepare(CELLS)
    return store


@pytest.mark.slow
def test_store__processes_that_start_together_share_the_cells_without_a_double(where: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    claimers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, where, ",".join(CELLS)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(4)
    ]
    claimed = [line for each in claimers for line in each.communicate(timeout=50)[0].split()]
    assert all(each.returncode == 0 for each in claimers)
    assert Counter(claimed) == Counter(CELLS)


def test_store__a_cell_enqueued_twice_is_run_once(where: str) -> None:
    first, second = opened(where), OptunaStore("s", where)
    second._cells = CELLS  # what a process does that looked before the first one had enqueued anything
    for cell in CELLS:
        second._enqueue(cell, 1)
    taken = []
    for store in (first, second) * len(CELLS):
        claim = store.claim()
        if claim is not None:
            taken.append(claim.cell)
            store.finish(claim, RESULT)
    assert Counter(taken) == Counter(CELLS)
    assert {state.status for state in second.states().values()} == {"done"}


def test_store__threads_of_one_process_do_not_share_a_claim(tmp_path: Path) -> None:
    store, taken, lock = opened(str(tmp_path / "j.log")), [], threading.Lock()

    def take() -> None:
        while (claim := store.claim()) is not None:
            with lock:
                taken.append(claim.cell)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(taken) == Counter(CELLS)


def test_store__a_silent_claim_goes_to_another_and_its_former_holder_cannot_hand_in(where: str) -> None:
    slow, other = opened(where, grace_seconds=0.0), opened(where, grace_seconds=0.0)
    claim = slow.claim()
    assert claim is not None and claim.cell == CELLS[0]
    assert other.claim() is not None  # looks at the silent claim for the first time: not silent yet
    again = other.claim()
    assert again is not None and (again.cell, again.attempt) == (CELLS[0], 2)
    with pytest.raises(ClaimLostError):
        slow.beat(claim)
    with pytest.raises(ClaimLostError):
        slow.finish(claim, RESULT)
    slow.fail(claim, "too late", counts=True)
    other.finish(again, RESULT)
    assert other.states()[CELLS[0]].status == "done" and slow.results() == {CELLS[0]: RESULT}


def test_store__a_claim_that_beats_is_kept(where: str) -> None:
    holder, other = opened(where), opened(where, grace_seconds=0.0)
    claim = holder.claim()
    assert claim is not None
    for _ in range(len(CELLS) - 1):
        holder.beat(claim)
        taken = other.claim()
        assert taken is not None and taken.cell != claim.cell
        other.finish(taken, RESULT)
    holder.finish(claim, RESULT)


def test_store__a_worker_of_this_machine_that_is_gone_is_noticed_at_once(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = {**this_process(), "pid": 2**22 + 1, "started": "1"}
    monkeypatch.setattr("attention_cem.studies.optuna_store.this_process", lambda: dead)
    assert opened(where).claim() is not None
    monkeypatch.undo()
    again = opened(where, grace_seconds=1e9).claim()
    assert again is not None and (again.cell, again.attempt) == (CELLS[0], 2)


def test_store__a_cell_that_kills_its_workers_is_given_up(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = {**this_process(), "pid": 2**22 + 1, "started": "1"}
    monkeypatch.setattr("attention_cem.studies.optuna_store.this_process", lambda: dead)
    store = OptunaStore("s", where)
    store.prepare(CELLS[:1])
    tries = 0
    while store.claim() is not None:
        tries += 1
    state = store.states()[CELLS[0]]
    assert (tries, state.status, state.attempts) == (5, "failed", 5)
    assert state.error == "the worker was not heard of any more"


def test_serial_store__a_second_process_is_refused(tmp_path: Path) -> None:
    store = SerialStore(tmp_path)
    with pytest.raises(ValueError, match="another process"):
        SerialStore(tmp_path)
    store.close()
    SerialStore(tmp_path).close()
    (tmp_path / "journal.log").touch()
    with pytest.raises(ValueError, match="shared by several workers"):
        SerialStore(tmp_path)


def test_worker__stops_without_a_result_when_its_claim_is_lost(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    study.out.mkdir()
    store = OptunaStore("tiny", str(tmp_path / "j.log"))
    store.prepare([cell.id for cell in study.cells])
    told: list[str] = []

    def stolen(cell: object, place: object) -> dict[str, object]:
        trial = next(t for t in store._storage.get_all_trials(store._id) if t.state.name == "RUNNING")
        store._end(trial._trial_id, "died", "believed dead")
        return {**RESULT, "accuracy": 0.0}

    def first_stolen(cell, place):  # type: ignore[no-untyped-def]
        return stolen(cell, place) if not told else stub.quick(cell, place)

    work(study, store, first_stolen, poll_seconds=0.01, tell=told.append)
    assert "was given to another worker" in told[0]
    assert {result["accuracy"] for result in store.results().values()} >= {0.8} and len(store.results()) == 6
    assert 0.0 not in {result["accuracy"] for result in store.results().values()}


def test_heart__tells_the_work_that_its_main_process_is_gone(tmp_path: Path) -> None:
    store = opened(str(tmp_path / "j.log"))
    claim = store.claim()
    assert claim is not None
    heart = Heart(store, claim, 0.01, lambda: False)
    with heart.beating():
        for _ in range(200):
            if heart._trouble is not None:
                break
            threading.Event().wait(0.01)
    with pytest.raises(StudyInterrupted):
        heart.check()


def test_heart__a_store_that_is_away_for_a_moment_does_not_stop_the_work(caplog: pytest.LogCaptureFixture) -> None:
    class Away:
        beats = 0

        def beat(self, claim: object) -> None:
            self.beats += 1
            raise ConnectionError("database is gone")

    store = Away()
    heart = Heart(store, None, 0.01, lambda: True)  # type: ignore[arg-type]
    with heart.beating():
        while store.beats < 3:
            threading.Event().wait(0.01)
    heart.check()
    assert "cannot reach the store: database is gone" in caplog.text
