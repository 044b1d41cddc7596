import json
import shlex
from pathlib import Path

import pytest

from attention_cem.cli.main import main
from attention_cem.studies.plan import load_study
from attention_cem.studies.results import write_result
from tests.studies import stub

_METHODS = (("one, weak", 0.1), ("two", 0.2), ("three", 0.3))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(stub.write_study(tmp_path))


def test_study_run__a_finished_study_prints_its_table_and_writes_the_comparison(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(stub.quick))
    assert main(["study", "run", file, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert "tiny: 6 of 6 done" in shown.err and shown.out.splitlines()[-1].endswith("comparison.json")
    assert "none  λ 0  σ 0  accuracy" in shown.out
    content = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert content["cells"]["done"] == 6

    assert main(["study", "status", file, "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.count("done     ") == 6


def test_study_run__a_failed_cell_gives_exit_code_1_and_its_reason(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(stub.seed_three_fails))
    assert main(["study", "run", file, "--out", str(tmp_path / "out")]) == 1
    assert "RuntimeError: out of memory" in capsys.readouterr().err
    assert main(["study", "report-data", file, "--out", str(tmp_path / "out")]) == 1
    assert main(["study", "status", file, "--out", str(tmp_path / "out")]) == 0
    assert "failed   synthetic-none" in capsys.readouterr().out


def test_study__failed_cells_are_told_with_a_command_that_tries_them_again(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(stub.seed_three_fails))
    where = [file, "--out", str(tmp_path / "out")]
    again = shlex.join(["attention-cem", "study", "run", *where, "--retry-failed"])
    for action in (["run", *where], ["report-data", *where], ["status", *where], ["run", *where, "--retry-failed"]):
        main(["study", *action])
        assert f"after repairing the cause: {again}\n" in capsys.readouterr().err
    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(stub.quick))
    assert main(shlex.split(again)[1:]) == 0
    assert "retry" not in capsys.readouterr().err


def test_study_report_data__what_it_says_to_go_on_with_is_the_same_study(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(stub.slow))
    where = [file, "--out", str(tmp_path / "the results"), "--store", str(tmp_path / "shared.log")]
    assert main(["study", "run", *where, "--seconds", "0.5"]) == 1
    capsys.readouterr()
    assert main(["study", "report-data", *where]) == 1
    assert f"go on with: {shlex.join(['attention-cem', 'study', 'run', *where])}\n" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["status", "report-data"])
@pytest.mark.parametrize("store", ["absent.log", "below/absent.log", "sqlite:///absent.db"])
def test_study__looking_into_a_store_that_is_not_there_is_refused_and_makes_none(
    file: str, tmp_path: Path, action: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", action, file, "--out", "out", "--store", store]) == 2
    assert f"--store: there is no store {store}; " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [Path(file)]


@pytest.mark.parametrize("action", ["run", "status", "report-data"])
def test_study__a_damaged_result_is_named_with_what_to_do(
    file: str, tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(stub.quick))
    study = load_study(file, tmp_path / "out")
    for cell in study.cells:
        write_result(study.result_file(cell.id), stub.result(cell))
    damaged = study.result_file(study.cells[0].id)
    damaged.write_text(damaged.read_text()[:50])
    assert main(["study", action, file, "--out", str(study.out)]) == 2
    said = capsys.readouterr().err
    assert f"{damaged} is not JSON" in said and said.endswith("call study run again: the cell is run once more\n")
    damaged.unlink()
    assert main(["study", "run", file, "--out", str(study.out)]) == 0
    assert stub.events(study.out, "begin") == [study.cells[0].id]


@pytest.mark.parametrize("action", ["run", "status", "report-data"])
def test_study__another_cells_result_is_refused_with_what_to_do(
    file: str, tmp_path: Path, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    study = load_study(file, tmp_path / "out")
    first, second = study.cells[:2]
    write_result(study.result_file(first.id), stub.result(second))
    assert main(["study", action, file, "--out", str(study.out)]) == 2
    said = capsys.readouterr().err
    assert f"{first.id}.json is the result of another cell, '{second.id}'; delete it and call" in said


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("place", ["results", "claims", "results/CELL"])
def test_study__what_lies_in_the_way_is_one_line(
    file: str, tmp_path: Path, place: str, workers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    way = tmp_path / "out" / place.replace("CELL", f"{load_study(file).cells[0].id}.json")
    way.parent.mkdir(parents=True)
    if "CELL" in place:
        way.mkdir()
    else:
        way.touch()
    for action in (["run", file, "--workers", workers], ["status", file], ["report-data", file]):
        assert main(["study", *action, "--out", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"attention-cem study: error: {way}") and error.count("\n") == 1


@pytest.mark.parametrize("out", ["/proc/xx", "tiny.toml", "tiny.toml/below"])
@pytest.mark.parametrize("action", ["run", "report-data"])
def test_study__a_folder_that_cannot_be_made_is_one_line(
    file: str, out: str, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", action, file, "--out", out]) == 2
    error = capsys.readouterr().err
    assert out in error and "--out" in error and error.count("\n") == 1


def test_study_run__a_wrong_device_is_refused_before_any_cell(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(stub.quick))
    for device in ("gpu", "cpu,gpu", "cpu,", "cuda:99"):
        assert main(["study", "run", file, "--device", device, "--out", str(tmp_path / "out")]) == 2
        assert "--device" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_study_run__interrupted_says_how_to_continue(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(cell: object, place: object) -> dict[str, object]:
        raise KeyboardInterrupt

    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(interrupted))
    assert main(["study", "run", file, "--out", str(tmp_path / "out")]) == 130
    assert f"attention-cem study run {file}" in capsys.readouterr().err


def test_study_run__a_lost_gpu_is_told_in_one_line(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(cell: object, place: object) -> dict[str, object]:
        raise stub.AcceleratorError("CUDA error: an illegal memory access")

    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(lost))
    assert main(["study", "run", file, "--out", str(tmp_path / "out")]) == 1
    assert "the GPU is lost to this process; the same command goes on: " in capsys.readouterr().err


def test_study_report_data__points_that_differ_by_the_attackers_weight_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # broke: two lines "λ 0  σ 0" for two weights
    study = load_study(stub.write_study(tmp_path, f"{stub.STUDY}leakage = [0.1, 0.5]\n"), tmp_path / "out")
    for cell in study.cells:
        write_result(study.result_file(cell.id), stub.result(cell))
    assert main(["study", "report-data", str(tmp_path / "tiny.toml"), "--out", str(study.out)]) == 0
    shown = capsys.readouterr().out
    assert "λ 0  σ 0  weight 0.1  accuracy" in shown and "λ 0  σ 0  weight 0.5  accuracy" in shown
    page = tmp_path / "page.html"
    assert main(["report", str(study.out), "-o", str(page)]) == 0
    assert "weight 0.1" in page.read_text() and "weight 0.5" in page.read_text()


def test_study_report_data__works_from_result_files_alone(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = load_study(file, tmp_path / "out")
    for cell in study.cells[:4]:
        write_result(study.result_file(cell.id), stub.result(cell))
    assert main(["study", "report-data", file, "--out", str(study.out)]) == 1
    assert "2 of 6 cells have no result yet" in capsys.readouterr().err
    assert not (study.out / "journal.log").exists()


def test_study_run__after_the_time_given_says_what_is_left_and_how_to_go_on(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(stub.slow))
    typed = ["study", "run", file, "--out", str(tmp_path / "out"), "--seconds", "0.5"]
    assert main(typed) == 1
    assert f"5 of 6 cells have no result yet; go on with: attention-cem {' '.join(typed)}" in capsys.readouterr().err
    assert len(list((tmp_path / "out" / "results").iterdir())) == 1


def test_study_run__only_the_methods_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = "".join(f'[[method]]\nname = "{name}"\nmatrix = {{ lambda = [{value}] }}\n' for name, value in _METHODS)
    file = str(stub.write_study(tmp_path, f'[settings]\n"surrogate.name" = "kmeans"\n{methods}'))
    monkeypatch.setattr("attention_cem.studies.running.run_studies.__kwdefaults__", _defaults(stub.quick))
    start = ["study", "run", file, "--out", str(tmp_path / "out")]
    assert main([*start, "--only", "one, weak", "--only", "two"]) == 1
    assert "1 of 3 cells have no result yet" in capsys.readouterr().err
    assert len(list((tmp_path / "out" / "results").iterdir())) == 2
    assert main([*start, "--only", "four"]) == 2
    assert "has no method 'four'; there are: one, weak; three; two" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "FILE"),
        (["rnu", "x.toml"], "invalid choice: 'rnu'"),
        (["run", "absent.toml"], "cannot read the study absent.toml"),
        (["run", "FILE", "--workers", "0"], "at least 1 worker"),
        (["run", "FILE", "--seconds", "0"], "seconds must be above 0"),
        (["run", "FILE", "--grace-seconds", "nan"], "above 0 and at most 86400, a day, got nan"),
        (["status", "FILE", "--out", "x" * 300], "File name too long"),
        (["sweep", "FILE"], "has no [sweep] table"),
        (["run", "FILE", "--wokers", "2"], "--wokers"),
        (["run", "FILE", "--store", "foo://bar"], "--store: foo://bar is no database URL, e.g. sqlite:///study.db"),
        (["status", "FILE", "--store", "foo://bar"], "--store: foo://bar is no database URL"),
        (["sweep", "FILE", "--out", "FILE"], "is a file, expected a folder; name another folder with --out"),
        (["sweep", "FILE", "--device", "gpu"], "--device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
    ],
)
def test_study__a_wrong_request_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *(file if part == "FILE" else part for part in arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("attention-cem study: error: ") and message in error and error.count("\n") == 1


def _defaults(runner: object) -> dict[str, object]:
    from attention_cem.studies.running import run_studies

    return {**(run_studies.__kwdefaults__ or {}), "runner": runner, "poll_seconds": 0.01}
