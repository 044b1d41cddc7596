"""Claims kept by Optuna: a journal file on any shared folder, or a database.

One Optuna trial is one try of one cell. What makes a claim exclusive, on both kinds of storage:

* Trials of a study are created one after the other and numbered in that order (the journal by its lines, a database
  by a lock on the study's row). Two processes may create a trial for the same try of the same cell; everybody sees
  the same order, and only the **first** one counts. The others are never run.
* A trial goes from WAITING to RUNNING once: `set_trial_state_values` answers True to one process only (on SQLite only
  with the locking of `_one_transaction_at_a_time`).
* A trial that is finished cannot be changed. A worker that was believed dead finds its trial failed, and can neither
  beat nor hand in a result.

Optuna's own heartbeat exists for databases only and compares clocks of different machines; here the holder counts up a
number, and an observer calls it dead when the number stood still on the observer's own clock, or when the holder's
process is gone from the observer's own machine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState, create_trial

from attention_cem.studies.processes import process_is_gone, this_process
from attention_cem.studies.store import MAX_DEATHS, SILENT, CellState, Claim, ClaimLostError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage, RDBStorage
    from sqlalchemy import Engine

_OPENINGS = 4


def open_storage(where: str) -> BaseStorage:
    """A database for a URL (``sqlite:///file``, ``mysql://...``), a journal for a file's name.

    Raises:
        ValueError: it is neither, or it cannot be used.
    """
    if "://" not in where:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        try:
            Path(where).parent.mkdir(parents=True, exist_ok=True)
            return JournalStorage(JournalFileBackend(where))
        except OSError as error:
            raise ValueError(f"--store: the file {where} cannot be made or read ({error.strerror or error})") from None
        except ValueError as error:
            raise ValueError(f"--store: the file {where} is no Optuna journal ({error})") from None
    from sqlalchemy.exc import ArgumentError, DatabaseError

    try:
        return _open_database(where)
    except ArgumentError as error:
        raise ValueError(
            f"--store: {where} is no database URL, e.g. sqlite:///study.db or mysql://user@host/name ({error})"
        ) from None
    except ImportError as error:
        raise ValueError(f"--store: {where} needs a database driver ({error.__cause__ or error})") from None
    except DatabaseError as error:
        raise ValueError(f"--store: the database {where} cannot be used ({error.orig})") from None


def is_there(where: str) -> bool:
    """Whether there is such a storage, without making one."""
    if "://" not in where:
        return Path(where).is_file()
    from sqlalchemy import create_engine, inspect, make_url
    from sqlalchemy.exc import ArgumentError, DatabaseError

    try:
        url = make_url(where)
        file = url.database or ""
        # Connecting would make the file.
        if url.get_backend_name() == "sqlite" and not file.startswith("file:") and not Path(file).is_file():
            return False
        engine = create_engine(url)
        try:
            return inspect(engine).has_table("studies")
        finally:
            engine.dispose()
    except (ArgumentError, ImportError, DatabaseError):
        return True  # opening it says what is wrong with it


def _open_database(where: str) -> RDBStorage:
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import IntegrityError, OperationalError

    sqlite = where.startswith("sqlite")
    # A second SQLite writer waits for the first instead of failing.
    patience = {"connect_args": {"timeout": 60}} if sqlite else None
    for tries_left in reversed(range(_OPENINGS)):
        try:
            storage = RDBStorage(where, engine_kwargs=patience)
        except (IntegrityError, OperationalError):
            # Processes that start together all try to create Optuna's tables; the slower ones find them there.
            if tries_left == 0:
                raise
            time.sleep(1.0)
        else:
            break
    if sqlite:
        _one_transaction_at_a_time(storage.engine)
    return storage


def _one_transaction_at_a_time(engine: Engine) -> None:
    """Make SQLite lock the file when a transaction begins, not when it first writes.

    Optuna reads a trial's state, then changes it, and locks the row in between with SELECT ... FOR UPDATE. SQLite does
    not know that, and Python's driver begins a transaction at the first write only: two processes could both read
    WAITING and both claim the trial.
    """
    from sqlalchemy import event

    def without_transactions_of_its_own(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", without_transactions_of_its_own)
    event.listen(engine, "begin", begin)
    engine.dispose()  # connections made before are of the old kind


class OptunaStore:
    """See `ClaimStore`.

    Args:
        name: of the study.
        where: database URL or journal file.
        max_failures: tries that may fail before a cell is given up.
        grace_seconds: a claim whose holder is silent for so long is given to somebody else.
        only_look: write nothing; what is not there is a ValueError.
    """

    def __init__(
        self,
        name: str,
        where: str,
        *,
        max_failures: int = 2,
        grace_seconds: float = 120.0,
        only_look: bool = False,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if only_look and not is_there(where):
            raise ValueError(f"--store: there is no store {where}; `attention-cem study run` makes it")
        self._storage = open_storage(where)
        self._study = self._found(name, where) if only_look else self._created(name)
        self._only_look = only_look
        self._id = self._storage.get_study_id_from_name(name)
        self._max_failures = max_failures
        self._grace = grace_seconds
        self._cells: list[str] = []
        self._beats: dict[int, int] = {}
        self._seen: dict[int, tuple[int, float]] = {}
        self._given_back: Counter[str] = Counter()

    def prepare(self, cells: Sequence[str], *, retry_failed: bool = False) -> None:
        """Enqueue cells that have no try yet, and those whose tries are used up if asked to."""
        self._cells = list(cells)
        if self._only_look:
            return
        tries = self._tries()
        for cell in self._cells:
            if not tries[cell]:
                self._enqueue(cell, 1)
            elif retry_failed and self._state(tries[cell]).status == "failed":
                self._enqueue(cell, len(tries[cell]) + 1, fresh=True)

    def claim(self) -> Claim | None:
        """Give silent claims up, enqueue the next tries, then take the first cell that can be had."""
        for mine in self._tries().values():
            if mine and mine[-1].state == TrialState.RUNNING and self._is_silent(mine[-1]):
                self._end(mine[-1]._trial_id, "died", SILENT)
        for cell, mine in self._tries().items():
            if mine and mine[-1].state == TrialState.FAIL and self._state(mine).status == "waiting":
                self._enqueue(cell, len(mine) + 1)
        for cell, mine in sorted(self._tries().items(), key=lambda item: self._given_back[item[0]]):
            if mine and mine[-1].state == TrialState.WAITING and self._take(mine[-1]._trial_id):
                claim = Claim(cell, len(mine), mine[-1]._trial_id)
                self._storage.set_trial_user_attr(claim.key, "worker", this_process())
                self._beats[claim.key] = 0
                return claim
        return None

    def beat(self, claim: Claim) -> None:
        """Count up."""
        self._beats[claim.key] = self._beats.get(claim.key, 0) + 1
        try:
            self._storage.set_trial_user_attr(claim.key, "beat", self._beats[claim.key])
        except UpdateFinishedTrialError as error:
            raise ClaimLostError(f"{claim.cell} was given to another worker") from error

    def finish(self, claim: Claim, result: Mapping[str, Any]) -> None:
        """Store the result with the trial and complete it."""
        try:
            self._storage.set_trial_user_attr(claim.key, "result", dict(result))
            values = [float(result["accuracy"]), float(result["mse"])]
            self._storage.set_trial_state_values(claim.key, TrialState.COMPLETE, values)
        except UpdateFinishedTrialError as error:
            raise ClaimLostError(f"{claim.cell} was given to another worker") from error

    def fail(self, claim: Claim, error: str, *, counts: bool) -> None:
        """End the try; the next `claim` of anybody enqueues another one, if there is one left."""
        self._given_back[claim.cell] += not counts
        self._end(claim.key, "failed" if counts else "released", error)

    def states(self) -> dict[str, CellState]:
        """Where every cell stands."""
        return {cell: self._state(tries) for cell, tries in self._tries().items()}

    def results(self) -> dict[str, dict[str, Any]]:
        """The results handed in."""
        return {
            cell: tries[-1].user_attrs["result"]
            for cell, tries in self._tries().items()
            if tries and tries[-1].state == TrialState.COMPLETE
        }

    def close(self) -> None:
        """Close the connection to a database."""
        self._storage.remove_session()

    def _created(self, name: str) -> optuna.Study:
        return optuna.create_study(
            storage=self._storage, study_name=name, load_if_exists=True, directions=["maximize", "maximize"]
        )

    def _found(self, name: str, where: str) -> optuna.Study:
        try:
            return optuna.load_study(storage=self._storage, study_name=name)
        except KeyError:
            raise ValueError(
                f"--store: {where} holds no study {name!r}; `attention-cem study run` puts it there"
            ) from None

    def _tries(self) -> dict[str, list[FrozenTrial]]:
        """For each cell its tries in order: of trials for the same try the first created."""
        found: dict[str, dict[int, FrozenTrial]] = {cell: {} for cell in self._cells}
        for trial in sorted(self._storage.get_all_trials(self._id, deepcopy=False), key=lambda each: each.number):
            cell, attempt = trial.user_attrs.get("cell"), trial.user_attrs.get("attempt")
            if cell in found and isinstance(attempt, int):
                found[cell].setdefault(attempt, trial)
        return {cell: [tries[attempt] for attempt in sorted(tries)] for cell, tries in found.items()}

    def _state(self, tries: Sequence[FrozenTrial]) -> CellState:
        if not tries:
            return CellState("waiting")
        last = tries[-1]
        if last.state == TrialState.WAITING:
            return CellState("waiting", len(tries) - 1)
        if last.state == TrialState.RUNNING:
            return CellState("running", len(tries))
        if last.state == TrialState.COMPLETE:
            return CellState("done", len(tries), seconds=last.duration.total_seconds() if last.duration else None)
        since = max((i for i, each in enumerate(tries) if each.user_attrs.get("fresh")), default=0)
        reasons = [each.user_attrs.get("reason", "died") for each in tries[since:]]
        spent = reasons.count("failed") >= self._max_failures or reasons.count("died") >= MAX_DEATHS
        return CellState("failed" if spent else "waiting", len(tries), last.user_attrs.get("error"))

    def _enqueue(self, cell: str, attempt: int, *, fresh: bool = False) -> None:
        attributes = {"cell": cell, "attempt": attempt, **({"fresh": True} if fresh else {})}
        self._study.add_trial(create_trial(state=TrialState.WAITING, user_attrs=attributes))

    def _take(self, trial: int) -> bool:
        try:
            return self._storage.set_trial_state_values(trial, TrialState.RUNNING)
        except UpdateFinishedTrialError:
            return False

    def _end(self, trial: int, reason: str, error: str) -> None:
        try:
            self._storage.set_trial_user_attr(trial, "reason", reason)
            self._storage.set_trial_user_attr(trial, "error", error)
            self._storage.set_trial_state_values(trial, TrialState.FAIL)
        except UpdateFinishedTrialError:
            return  # somebody else ended it first, or its holder came back in time

    def _is_silent(self, trial: FrozenTrial) -> bool:
        if process_is_gone(trial.user_attrs.get("worker")):
            return True
        beat, now = trial.user_attrs.get("beat", 0), time.monotonic()
        before, since = self._seen.get(trial._trial_id, (-1, now))
        if before != beat:
            self._seen[trial._trial_id] = (beat, now)
            return False
        return now - since > self._grace
