"""Cells that others hold: whose folder is held by a worker that was suspended, or which others are at."""

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attention_cem.studies import worker
from attention_cem.studies.cell_run import CellPlace
from attention_cem.studies.plan import Cell, load_study
from attention_cem.studies.running import open_store
from attention_cem.studies.worker import work
from attention_cem.training.folder_lock import alone_in
from tests.studies import stub


def locked(cell: Cell, place: CellPlace) -> dict[str, Any]:
    """As a real cell: nobody else may work in its folder."""
    place.folder.mkdir(parents=True, exist_ok=True)
    with alone_in(place.folder, patience=0.0):
        return stub.quick(cell, place)


@pytest.mark.parametrize("journal", [False, True])
def test_work__a_cell_whose_folder_is_held_waits_for_it_and_stops_no_other(tmp_path: Path, journal: bool) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    first = study.cells[0]
    store = open_store(study, str(tmp_path / "journal.log") if journal else None)
    store.prepare([cell.id for cell in study.cells])
    told: list[str] = []
    study.run_folder(first).mkdir(parents=True)
    with ExitStack() as suspended:
        suspended.enter_context(alone_in(study.run_folder(first)))

        def tell(text: str) -> None:
            told.append(text)
            if len(told) == len(study.cells):
                suspended.close()  # it goes on, finds its claim lost, and ends

        work([(study, store)], locked, poll_seconds=0.01, tell=tell)
    given_back = [line for line in told if f"{first.id}: given back: another process is training in" in line]
    assert given_back == [told[0]] and told[-1].startswith(first.id), "tried first, said once, done after all others"
    assert {state.status for state in store.states().values()} == {"done"}
    assert sorted(stub.events(study.out, "begin")) == sorted(cell.id for cell in study.cells)


def test_work__a_folder_that_is_never_free_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_MOST_GIVEN_BACK", 2)
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    first, told = study.cells[0], list[str]()
    store = open_store(study)
    store.prepare([first.id])
    study.run_folder(first).mkdir(parents=True)
    with alone_in(study.run_folder(first)):
        work([(study, store)], locked, poll_seconds=0.01, tell=told.append)
    assert store.states()[first.id].status == "failed" and "failed: another process is training in" in told[-1]


def test_work__one_that_is_not_wanted_any_more_does_not_wait_for_a_held_folder(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    store = open_store(study)
    store.prepare([study.cells[0].id])
    study.run_folder(study.cells[0]).mkdir(parents=True)
    with alone_in(study.run_folder(study.cells[0])):
        work([(study, store)], locked, poll_seconds=60.0, wanted=lambda: False)
    assert store.states()[study.cells[0].id].status == "waiting"


def test_work__while_others_are_at_the_last_cells_of_a_study_those_of_the_next_are_taken(tmp_path: Path) -> None:
    names = ("first", "second")
    file = stub.write_study(tmp_path)
    studies = [replace(load_study(file, tmp_path / name), name=name) for name in names]
    queue = [(study, open_store(study)) for study in studies]
    for study, store in queue:
        store.prepare([cell.id for cell in study.cells])
    others = open_store(studies[0])
    others.prepare([cell.id for cell in studies[0].cells[:2]])
    held = [others.claim(), others.claim()]
    work(queue, stub.quick, poll_seconds=0.01, until=time.monotonic() + 5)
    states = [[state.status for state in store.states().values()] for _, store in queue]
    assert states == [["running"] * 2 + ["done"] * 4, ["done"] * 6]
    for claim in held:
        assert claim is not None
        others.fail(claim, "stopped", counts=False)
    work(queue, stub.quick, poll_seconds=0.01)
    assert {state.status for _, store in queue for state in store.states().values()} == {"done"}
