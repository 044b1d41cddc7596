"""What makes a claim exclusive: in the study's folder, on an Optuna journal file and on a database."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attention_cem.studies.folder_store import FolderStore
from attention_cem.studies.optuna_store import OptunaStore
from attention_cem.studies.plan import load_study
from attention_cem.studies.processes import this_process
from attention_cem.studies.results import RESULT_FORMAT, RESULT_VERSION
from attention_cem.studies.store import ClaimLostError, ClaimStore
from attention_cem.studies.worker import Heart, StudyInterrupted, work
from tests.studies import stub

ROOT = Path(__file__).parents[2]
CELLS = [f"cell-{number}" for number in range(8)]


def result(cell: str) -> dict[str, Any]:
    names = {"format": RESULT_FORMAT, "version": RESULT_VERSION, "cell": cell, "method": "m", "data": "d", "seed": 0}
    return {**names, "accuracy": 0.9, "mse": 0.02, "lambda": 0.0, "settings": {}}


CLAIMER = """
import sys
from tests.studies.test_stores import opened, result
store = opened(sys.argv[1])
while (claim := store.claim()) is not None:
    print(claim.cell, flush=True)
    store.finish(claim, result(claim.cell))
"""


@pytest.fixture(params=["folder", "journal", "sqlite"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    places = {"journal": str(tmp_path / "j.log"), "sqlite": f"sqlite:///{tmp_path / 's.db'}"}
    return places.get(request.param, str(tmp_path))


def opened(where: str, grace_seconds: float = 60.0, max_failures: int = 2, cells: Sequence[str] = CELLS) -> ClaimStore:
    folder = Path(where)
    store: ClaimStore = (
        FolderStore(folder, grace_seconds=grace_seconds, max_failures=max_failures)
        if folder.is_dir()
        else OptunaStore("s", where, grace_seconds=grace_seconds, max_failures=max_failures)
    )
    store.prepare(cells)
    return store


def pretend_to_be_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = {**this_process(), "pid": 2**22 + 1, "started": "1"}
    for store in ("optuna_store", "folder_store"):
        monkeypatch.setattr(f"attention_cem.studies.{store}.this_process", lambda: dead)


@pytest.mark.slow
def test_store__processes_that_start_together_share_the_cells_without_a_double(where: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])}
    claimers = [
        subprocess.Popen([sys.executable, "-c", CLAIMER, where], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(4)
    ]
    claimed = [line for each in claimers for line in each.communicate(timeout=50)[0].split()]
    assert all(each.returncode == 0 for each in claimers)
    assert Counter(claimed) == Counter(CELLS)


@pytest.mark.parametrize("where", ["journal", "sqlite"], indirect=True)
def test_optuna_store__a_cell_enqueued_twice_is_run_once(where: str) -> None:
    first, second = opened(where), OptunaStore("s", where)
    second._cells = CELLS  # what a process does that looked before the first one had enqueued anything
    for cell in CELLS:
        second._enqueue(cell, 1)
    taken = []
    for store in (first, second) * len(CELLS):
        claim = store.claim()
        if claim is not None:
            taken.append(claim.cell)
            store.finish(claim, result(claim.cell))
    assert Counter(taken) == Counter(CELLS)
    assert {state.status for state in second.states().values()} == {"done"}


@pytest.mark.parametrize("where", ["folder", "journal"], indirect=True)
def test_store__threads_of_one_process_do_not_share_a_claim(where: str) -> None:
    store, taken, lock = opened(where), list[str](), threading.Lock()

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
        slow.finish(claim, result(claim.cell))
    slow.fail(claim, "too late", counts=True)
    other.finish(again, result(again.cell))
    assert other.states()[CELLS[0]].status == "done" and slow.results() == {CELLS[0]: result(CELLS[0])}


def test_store__a_claim_that_beats_is_kept(where: str) -> None:
    holder, other = opened(where), opened(where, grace_seconds=0.0)
    claim = holder.claim()
    assert claim is not None
    for _ in range(len(CELLS) - 1):
        holder.beat(claim)
        taken = other.claim()
        assert taken is not None and taken.cell != claim.cell
        other.finish(taken, result(taken.cell))
    holder.finish(claim, result(claim.cell))


def test_store__a_worker_of_this_machine_that_is_gone_is_noticed_at_once(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_to_be_dead(monkeypatch)
    assert opened(where).claim() is not None
    monkeypatch.undo()
    again = opened(where, grace_seconds=1e9).claim()
    assert again is not None and (again.cell, again.attempt) == (CELLS[0], 2)


def test_store__a_cell_that_kills_its_workers_is_given_up(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_to_be_dead(monkeypatch)
    store = opened(where, cells=CELLS[:1])
    tries = 0
    while store.claim() is not None:
        tries += 1
    state = store.states()[CELLS[0]]
    assert (tries, state.status, state.attempts) == (5, "failed", 5)
    assert state.error == "the worker was not heard of any more"


def test_store__failed_tries_are_counted_and_forgiven_on_request(where: str) -> None:
    store = opened(where, cells=CELLS[:1])
    for attempt in (1, 2):
        claim = store.claim()
        assert claim is not None and claim.attempt == attempt
        store.fail(claim, "out of memory", counts=True)
    state = opened(where, cells=CELLS[:1]).states()[CELLS[0]]
    assert (state.status, state.attempts, state.error) == ("failed", 2, "out of memory")
    assert store.claim() is None
    store.prepare(CELLS[:1], retry_failed=True)
    assert store.states()[CELLS[0]].status == "waiting"
    claim = store.claim()
    assert claim is not None and claim.attempt == 3
    store.fail(claim, "interrupted", counts=False)
    claim = store.claim()
    assert claim is not None and claim.attempt == 4
    store.finish(claim, result(claim.cell))
    done = opened(where, cells=CELLS[:1]).states()[CELLS[0]]
    assert (done.status, done.attempts) == ("done", 4)


def test_folder_store__a_number_that_ended_before_it_was_created_again_is_given_up(tmp_path: Path) -> None:
    """A process looks, is stopped, and creates a try that others have claimed and ended meanwhile."""
    store, late = opened(str(tmp_path)), FolderStore(tmp_path)
    late.prepare(CELLS)
    first = store.claim()
    assert first is not None
    assert not late._take(first.cell, 1)
    for counts, status in ((True, "failed"), (False, "released")):
        claim = first if counts else store.claim()
        assert claim is not None
        store.fail(claim, "no matter", counts=counts)
        assert not late._take(claim.cell, 1 if counts else claim.attempt)
        assert (tmp_path / "claims" / f"{claim.cell}.{claim.attempt}.{status}").is_file()
    again = store.claim()
    assert again is not None
    store.finish(again, result(again.cell))
    assert not late._take(again.cell, again.attempt)
    assert not list((tmp_path / "claims").glob("*.running"))


def test_folder_store__a_withdrawn_claim_of_a_killed_process_hides_nothing(tmp_path: Path) -> None:
    store = opened(str(tmp_path), cells=CELLS[:1])
    claim = store.claim()
    assert claim is not None
    store.fail(claim, "out of memory", counts=True)
    (tmp_path / "claims" / f"{CELLS[0]}.1.running").write_text("{}")
    assert store.states()[CELLS[0]].error == "out of memory"
    again = store.claim()
    assert again is not None and again.attempt == 2


def test_folder_store__a_holder_killed_while_it_wrote_is_replaced_after_the_grace(tmp_path: Path) -> None:
    holder = opened(str(tmp_path), grace_seconds=0.0, cells=CELLS[:1])
    claim = holder.claim()
    assert claim is not None
    (tmp_path / "claims" / f"{CELLS[0]}.1.running").write_text('{"format": "attention-cem/st')
    other = opened(str(tmp_path), grace_seconds=0.0, cells=CELLS[:1])
    assert other.claim() is None
    again = other.claim()
    assert again is not None and again.attempt == 2
    assert other.results() == {}


def test_folder_store__foreign_names_in_the_folder_are_ignored(tmp_path: Path) -> None:
    store = opened(str(tmp_path))
    (tmp_path / "claims").mkdir()
    for name in ("x", "cell-0.running", "cell-0.one.running", "cell-0.1.boiling", "cell-9.1.failed", ".nfs0001"):
        (tmp_path / "claims" / name).touch()
    assert {state.status for state in store.states().values()} == {"waiting"}
    claim = store.claim()
    assert claim is not None and (claim.cell, claim.attempt) == (CELLS[0], 1)


def test_folder_store__looking_leaves_no_trace(tmp_path: Path) -> None:
    store = opened(str(tmp_path))
    assert len(store.states()) == len(CELLS) and store.results() == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["journal", "sqlite"], indirect=True)
def test_optuna_store__looking_enqueues_nothing(where: str) -> None:
    first = opened(where, cells=CELLS[:1])
    assert isinstance(first, OptunaStore)
    looker = OptunaStore("s", where, only_look=True)
    looker.prepare(CELLS)
    assert [state.status for state in looker.states().values()] == ["waiting"] * len(CELLS)
    assert len(first._storage.get_all_trials(first._id)) == 1
    with pytest.raises(ValueError, match="holds no study 'other'"):
        OptunaStore("other", where, only_look=True)


def test_optuna_store__a_database_of_somebody_else_is_not_looked_into(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("create table recipes (name text)")
    connection.close()
    before = (tmp_path / "s.db").read_bytes()
    with pytest.raises(ValueError, match="there is no store"):
        OptunaStore("s", f"sqlite:///{tmp_path / 's.db'}", only_look=True)
    assert (tmp_path / "s.db").read_bytes() == before


@pytest.mark.parametrize("only_look", [False, True])
@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("foo://bar", "is no database URL, e.g. sqlite:///study.db"),
        ("://", "is no database URL"),
        ("sqlite:///FOLDER/text", "cannot be used"),
        ("FOLDER/text", "is no Optuna journal"),
    ],
)
def test_optuna_store__what_is_no_store_is_refused_in_words(
    tmp_path: Path, where: str, message: str, only_look: bool
) -> None:
    text = "\\documentclass{article}\nno store\n" * 100
    (tmp_path / "text").write_text(text)
    with pytest.raises(ValueError, match=f"^--store: .* {message}"):
        OptunaStore("s", where.replace("FOLDER", str(tmp_path)), only_look=only_look)
    assert (tmp_path / "text").read_text() == text


@pytest.mark.parametrize("where", ["folder", "journal"], indirect=True)
def test_worker__stops_without_a_result_when_its_claim_is_lost(where: str, tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    study.out.mkdir()
    cells = [cell.id for cell in study.cells]
    store = opened(where if where != str(tmp_path) else str(study.out), cells=cells)
    told: list[str] = []

    def stolen(cell: object, place: object) -> dict[str, object]:
        if isinstance(store, OptunaStore):
            trial = next(t for t in store._storage.get_all_trials(store._id) if t.state.name == "RUNNING")
            store._end(trial._trial_id, "died", "believed dead")
        else:
            file = next((study.out / "claims").glob("*.running"))
            file.rename(file.with_suffix(".died"))
        return {**result(cells[0]), "accuracy": 0.0}

    def first_stolen(cell, place):  # type: ignore[no-untyped-def]
        return stolen(cell, place) if not told else stub.quick(cell, place)

    work([(study, store)], first_stolen, poll_seconds=0.01, tell=told.append)
    assert "was given to another worker" in told[0]
    assert {each["accuracy"] for each in store.results().values()} >= {0.8} and len(store.results()) == 6
    assert 0.0 not in {each["accuracy"] for each in store.results().values()}


def test_heart__tells_the_work_that_its_main_process_is_gone(tmp_path: Path) -> None:
    store = opened(str(tmp_path))
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
