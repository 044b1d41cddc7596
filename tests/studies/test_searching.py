from pathlib import Path
from typing import Any

import pytest

from attention_cem.studies.cell_run import CellPlace
from attention_cem.studies.plan import Cell
from attention_cem.studies.searching import sweep
from attention_cem.training import ConfigError
from tests.studies import stub

SWEEP = """
name = "search"
[settings]
"surrogate.name" = "slot_mixture"
[sweep]
lambda = { low = 0.1, high = 10.0, log = true }
"surrogate.arguments.num_slots" = { low = 1, high = 8 }
"surrogate.lambd_schedule" = { choices = ["ramp", "constant"] }
"""


def made_up(cell: Cell, place: CellPlace) -> dict[str, Any]:
    """More λ costs accuracy and gains privacy; more slots only cost."""
    if cell.config.surrogate.arguments["num_slots"] == 8:
        raise RuntimeError("out of memory")
    slots = cell.config.surrogate.arguments["num_slots"]
    figures = {"validation_accuracy": 0.9 - cell.lambd / 100, "mse": 0.01 + cell.lambd / 1000 - slots / 1e5}
    return {**stub.result(cell), **figures}


def test_sweep__returns_the_front_and_continues_where_it_was_left(tmp_path: Path) -> None:
    file, told = stub.write_study(tmp_path, SWEEP), list[str]()
    options: dict[str, Any] = {"out": tmp_path / "out", "runner": made_up, "tell": told.append}
    sweep(file, trials=6, **options)
    assert len(told) == 6
    front = sweep(file, trials=14, **options)
    assert len(told) == 14
    accuracies, errors = [p.validation_accuracy for p in front], [p.mse for p in front]
    assert len(front) > 1 and accuracies == sorted(accuracies) and errors == sorted(errors, reverse=True)
    assert set(front[0].settings) == {
        "surrogate.lambd",
        "surrogate.arguments.num_slots",
        "surrogate.lambd_schedule",
    }
    assert (tmp_path / "out" / "results" / f"{front[0].cell}.json").is_file()
    assert sweep(file, trials=14, **options) == front and len(told) == 14


def test_sweep__continued_it_tries_new_settings_and_anew_the_same_ones(tmp_path: Path) -> None:
    file = stub.write_study(tmp_path, SWEEP)

    def tried(out: str, *parts: int) -> list[str]:
        told: list[str] = []
        for trials in parts:
            sweep(file, trials=trials, out=tmp_path / out, runner=made_up, tell=told.append)
        return told

    interrupted = tried("parts", 3, 6, 9)
    assert len({line.partition(": ")[2] for line in interrupted}) == 9
    assert interrupted == tried("at once", 9)


def test_sweep__a_failed_trial_is_told_and_does_not_stop_the_search(tmp_path: Path) -> None:
    text = SWEEP.replace("low = 1, high = 8", "low = 8, high = 8")
    told: list[str] = []
    assert (
        sweep(stub.write_study(tmp_path, text), trials=2, out=tmp_path / "out", runner=made_up, tell=told.append) == []
    )
    assert len(told) == 2 and all(line.endswith("failed") for line in told)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", r"has no \[sweep\] table"),
        ("[sweep]\nlambda = [1, 2]", "must be { low, high, log } or { choices }"),
        ("[sweep]\nlambda = { low = 0.1, high = 1.0, lgo = true }", "must be { low, high, log } or { choices }"),
        ("[sweep]\nlambda = { low = 10, high = 1 }", "low <= high"),
        ('[sweep]\nlambda = { low = "a", high = 1 }', r"\[sweep\] lambda: "),
        ("[sweep]\nlambda = { low = 0, high = 2.0, log = true }", "low > 0"),
        ("[sweep]\nlambda = { choices = [] }", r"\[sweep\] lambda: "),
        ("[sweep]\nlambda = { choices = 5 }", r"\[sweep\] lambda: "),
        ("[sweep]\nlambdaa = { low = 1, high = 2 }", "unknown setting 'lambdaa'"),
        ('[sweep]\n"train.lr" = { choices = [0.1, -1.0] }', "train.lr must be"),
    ],
)
def test_sweep__ranges_that_are_none_are_refused(tmp_path: Path, table: str, message: str) -> None:
    file = stub.write_study(tmp_path, f"[matrix]\nseed = [0]\n{table}")
    with pytest.raises(ConfigError, match=message):
        sweep(file, trials=1, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()  # nothing that counts as tried
