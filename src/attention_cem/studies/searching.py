"""`sweep`: let Optuna look for settings on the accuracy–MSE front instead of trying a matrix.

A study file becomes a sweep with a table of ranges, by dotted setting name or short axis name::

    [sweep]
    lambda = { low = 0.01, high = 10.0, log = true }
    "surrogate.arguments.num_slots" = { low = 1, high = 8 }
    "surrogate.lambd_schedule" = { choices = ["ramp", "constant"] }

Both objectives are maximised: accuracy on validation images (test images are for the final figures, not for choices)
and the worst-case MSE.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import BaseTrial, FixedTrial

from attention_cem.studies.cell_run import CellPlace, Runner, run_cell
from attention_cem.studies.optuna_store import open_storage
from attention_cem.studies.plan import AXES, Cell, load_study, make_cell, read_study_file
from attention_cem.studies.results import write_result
from attention_cem.training.config_checks import ConfigError


@dataclass(frozen=True)
class SweepPoint:
    """A point of the front: what was set, what came out."""

    settings: dict[str, Any]
    validation_accuracy: float
    mse: float
    cell: str


def sweep(
    path: str | os.PathLike[str],
    *,
    trials: int,
    out: str | os.PathLike[str] | None = None,
    store: str | None = None,
    device: str = "auto",
    data_root: str | None = None,
    seed: int = 0,
    runner: Runner = run_cell,
    tell: Callable[[str], None] = lambda text: None,
) -> list[SweepPoint]:
    """Run trials until the sweep has ``trials`` finished ones, over all machines, and return the front.

    Args:
        path: study file with a ``[sweep]`` table; its matrix, methods and cells are not used.
        trials: how many settings to try in all; a sweep that has them returns at once.
        out: where runs and results go.
        store: database URL or journal file; otherwise a journal in the folder.
        device: as in ``run.device``.
        data_root: as in ``data.root``.
        seed: of Optuna's sampler.
        runner: what runs a cell.
        tell: gets one line per trial.
    """
    tree = read_study_file(path)
    ranges = _ranges(tree.get("sweep"), path)
    study = load_study(path, out)

    def drawn(trial: BaseTrial) -> Cell:
        chosen = {AXES.get(name, name): _suggest(trial, name, values) for name, values in ranges.items()}
        return make_cell("sweep", tree.get("settings", {}), chosen, tree.get("base"), Path(path))

    # A trial that failed counts as one, so what is wrong with the file must be told before the first.
    for end in (0, -1):
        drawn(FixedTrial({name: _ends(values)[end] for name, values in ranges.items()}))
    study.out.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search = optuna.create_study(
        storage=open_storage(store or str(study.out / "sweep.log")),
        study_name=f"{study.name}/sweep",
        load_if_exists=True,
        directions=["maximize", "maximize"],
    )

    def objective(trial: optuna.Trial) -> tuple[float, float]:
        # By number: a search that is continued, or shared by machines, would else draw its first trials again.
        search.sampler = optuna.samplers.TPESampler(seed=(1_000_003 * seed + trial.number) % 2**32, multivariate=False)
        cell = drawn(trial)
        trial.set_user_attr("cell", cell.id)
        trial.set_user_attr("settings", dict(cell.settings))
        result = runner(cell, CellPlace.of(study, cell, device=device, data_root=data_root))
        write_result(study.result_file(cell.id), result)
        return float(result["validation_accuracy"]), float(result["mse"])

    def report(_: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        what = ", ".join(f"{name} {value}" for name, value in trial.params.items())
        if trial.values is None:
            tell(f"trial {trial.number}: {what}: failed")
        else:
            tell(f"trial {trial.number}: {what}: accuracy {trial.values[0]:.2%}, worst-case MSE {trial.values[1]:.5f}")

    finished = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.FAIL)
    search.optimize(
        objective,
        callbacks=[report, optuna.study.MaxTrialsCallback(trials, states=finished)],
        # A failed trial is recorded and the search goes on; only what is nobody's fault stops it.
        catch=(Exception,),
        n_trials=max(0, trials - len(search.get_trials(deepcopy=False, states=finished))),
    )
    return [
        SweepPoint(each.user_attrs["settings"], each.values[0], each.values[1], each.user_attrs["cell"])
        for each in sorted(search.best_trials, key=lambda each: each.values[0])
    ]


def _ranges(table: Any, path: str | os.PathLike[str]) -> dict[str, Mapping[str, Any]]:
    if not isinstance(table, dict) or not table:
        raise ConfigError(f"{path} has no [sweep] table of ranges")
    for name, values in table.items():
        keys = set(values) if isinstance(values, Mapping) else set()
        if keys != {"choices"} and keys | {"log"} != {"low", "high", "log"}:
            raise ConfigError(f"[sweep] {name} must be {{ low, high, log }} or {{ choices }}, got {values!r}")
        try:
            for end in _ends(values):
                _suggest(FixedTrial({name: end}), name, values)
        except (ValueError, TypeError, LookupError) as error:
            raise ConfigError(f"[sweep] {name}: {error}; got {values!r}") from None
    return table


def _ends(values: Mapping[str, Any]) -> tuple[Any, Any]:
    """The first and the last value of a range."""
    return (values["choices"][0], values["choices"][-1]) if "choices" in values else (values["low"], values["high"])


def _suggest(trial: BaseTrial, name: str, values: Mapping[str, Any]) -> Any:
    if "choices" in values:
        return trial.suggest_categorical(name, values["choices"])
    low, high, log = values["low"], values["high"], bool(values.get("log", False))
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=log)
    return trial.suggest_float(name, float(low), float(high), log=log)
