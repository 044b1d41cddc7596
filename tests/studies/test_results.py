import json
from pathlib import Path
from typing import Any

import pytest

from attention_cem.studies import results
from attention_cem.studies.folder_store import FolderStore
from attention_cem.studies.gathering import comparison_of
from attention_cem.studies.plan import load_study
from attention_cem.studies.results import ResultError, program_commit, read_result, result_of, write_result
from attention_cem.studies.store import CellState
from tests.studies import stub


def test_result_of__an_audit_without_a_headline_is_no_result(tmp_path: Path) -> None:
    cell = load_study(stub.write_study(tmp_path)).cells[0]
    audit = {"headline": None, "warnings": ["no attack is calibrated"]}
    with pytest.raises(ValueError, match="no headline: no attack is calibrated"):
        result_of("s", cell, facts={}, metrics=[], audit=audit, seconds={})


def test_program_commit__names_a_commit_of_this_checkout() -> None:
    commit = program_commit()
    assert commit is None or len(commit.removesuffix("+changes")) == 40


def test_program_commit__outside_git_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_git(*arguments: str) -> str:
        raise FileNotFoundError("git")

    monkeypatch.setattr(results, "_git", no_git)
    assert program_commit() is None
    monkeypatch.setenv("ATTENTION_CEM_COMMIT", "ab" * 20)
    assert program_commit() == "ab" * 20
    monkeypatch.setenv("ATTENTION_CEM_COMMIT", "main")
    with pytest.raises(ValueError, match="must be a full git commit, 40 hexadecimal digits, got 'main'"):
        program_commit()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is no attention-cem/study-result"),
        ({"version": 2}, "is no attention-cem/study-result"),
        ({"mse": "low"}, "mse must be of type float"),
        ({"seed": True}, "seed must be of type int"),
        ({"accuracy": None}, "accuracy must be of type float"),
        ({"accuracy": 7.5}, "accuracy from 0 to 1"),
        ({"mse": -1.0}, "finite MSE from 0 on, got 0.8, -1.0"),
        ({"mse": float("nan")}, "finite MSE from 0 on, got 0.8, nan"),
        ({"lambda": None}, "lambda must be a finite number, got None"),
        ({"lambda": 10**400}, "lambda must be a finite number"),
        ({"sigma": "x"}, "sigma must be a finite number or null, got 'x'"),
        ({"settings": 5}, "settings must be of type dict, got 5"),
    ],
)
def test_read_result__refuses_what_is_no_result(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    cell = load_study(stub.write_study(tmp_path)).cells[0]
    write_result(tmp_path / "r" / "x.json", {**stub.result(cell), **change})
    with pytest.raises(ResultError, match=rf"x\.json.*{message}"):
        read_result(tmp_path / "r" / "x.json")


@pytest.mark.parametrize("content", ["{", "[]", "\ufeff", '"text"', "[" * 100_000, "9" * 5000])
def test_read_result__refuses_other_files(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ResultError, match="x.json"):
        read_result(tmp_path / "x.json")


def test_read_result__refuses_a_folder_and_a_link_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to("absent")
    for name in ("folder.json", "link.json"):
        with pytest.raises(ResultError, match=f"{name} is no file, or a link to none"):
            read_result(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cell": "../../x", "config_hash": "0" * 64}, r"is the result of another cell, '\.\./\.\./x'"),
        ({"seed": 4}, "seed is 4, but that of the study's cell is 0"),
        ({"config_hash": "0" * 64}, "config_hash is '0000"),
        ({"config_hash": None}, "config_hash is None"),
        ({"cost": 5}, "cost must be an object of numbers, got 5"),
        ({"cost": {"seconds_per_epoch": "x"}}, "cost must be an object of numbers"),
        ({"psnr": float("inf")}, "holds NaN or infinity"),
    ],
)
def test_comparison_of__refuses_what_contradicts_the_study(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    first = study.cells[0]
    write_result(study.result_file(first.id), {**stub.result(first), **change})
    with pytest.raises(ResultError, match=rf"{first.id}\.json.*{message}"):
        comparison_of(study)


def test_results__that_of_one_cell_does_not_count_as_another_ones(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    first, second = study.cells[:2]
    write_result(study.result_file(first.id), stub.result(second))
    store = FolderStore(study.out)
    store.prepare([first.id])
    for look in (store.results, store.states, lambda: comparison_of(study)):
        with pytest.raises(ResultError, match=rf"{first.id}\.json is the result of another cell, '{second.id}'"):
            look()


def test_results__a_run_of_the_same_configuration_counts_for_the_cell_it_is_lent_to(tmp_path: Path) -> None:
    """Studies that repeat a run of another one are given its result, which keeps the names it was made with."""
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    first = study.cells[0]
    lent = {"cell": f"synthetic-elsewhere-{first.id[-12:]}", "method": "elsewhere", "settings": {"other": 1}}
    write_result(study.result_file(first.id), {**stub.result(first), **lent})
    store = FolderStore(study.out)
    store.prepare([first.id])
    assert store.results()[first.id]["method"] == "elsewhere"
    (point,) = comparison_of(study)["methods"]["none"]["points"]
    assert (point["cell"], point["method"], point["settings"]) == (first.id, "none", dict(first.settings))


def test_comparison_of__a_method_that_is_spelled_anew_keeps_its_results(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    first = study.cells[0]
    write_result(study.result_file(first.id), {**stub.result(first), "method": "None"})
    assert comparison_of(study)["methods"]["none"]["points"][0]["method"] == "none"


def test_comparison_of__says_what_is_done_failed_and_missing(tmp_path: Path) -> None:
    study = load_study(stub.write_study(tmp_path), tmp_path / "out")
    done, broken, *missing = study.cells
    write_result(study.result_file(done.id), stub.result(done))
    content = comparison_of(study, {broken.id: CellState("failed", 2, "out of memory")})
    json.dumps(content, allow_nan=False)
    assert content["cells"] == {
        "planned": 6,
        "done": 1,
        "failed": [{"cell": broken.id, "method": "none", "error": "out of memory"}],
        "missing": [cell.id for cell in missing],
    }
    assert content["methods"]["none"]["points"][0]["run"] == f"runs/{done.id}"


def test_result_of__says_what_the_training_warned_of_in_its_last_epoch(tmp_path: Path) -> None:
    headline = {"mse": 0.06, "ci95": [0.05, 0.07], "psnr": 12.0, "ssim": 0.1, "attack": "ridge", "status": "passed"}
    audit = {"headline": {**headline, "note": ""}, "warnings": ["of the audit"], "attacks": [], "budget": "screening"}
    facts = {"test": {"accuracy": 0.1}, "best_accuracy": 0.1, "best_epoch": 3}
    row = {"seconds": 1.0, "images_per_s": 1.0, "alarms": ["nothing is learned"]}
    cell = load_study(stub.write_study(tmp_path)).cells[0]
    made = result_of("s", cell, facts=facts, metrics=[{**row, "alarms": []}, row], audit=audit, seconds={})
    assert made["warnings"] == ["training: nothing is learned", "of the audit"]
