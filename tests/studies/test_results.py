import json
from pathlib import Path
from typing import Any

import pytest

from attention_cem.studies import results
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
    ],
)
def test_read_result__refuses_what_is_no_result(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    cell = load_study(stub.write_study(tmp_path)).cells[0]
    write_result(tmp_path / "r" / "x.json", {**stub.result(cell), **change})
    with pytest.raises(ValueError, match=message):
        read_result(tmp_path / "r" / "x.json")


@pytest.mark.parametrize("content", ["{", "[]", "\ufeff", '"text"'])
def test_read_result__refuses_other_files(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ResultError, match="x.json"):
        read_result(tmp_path / "x.json")


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
