from __future__ import annotations

from pathlib import Path

import pytest

from attention_cem.cli.main import main
from tests.reporting.folders import make_run


def test_report_command__writes_the_page_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", audited=False)
    assert main(["report", str(run)]) == 0
    assert f"wrote {run / 'report.html'}" in capsys.readouterr().out
    assert (run / "report.html").read_text().startswith("<!doctype html>")


def test_report_command__out_and_figures(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", audited=False)
    assert main(["report", str(run), "-o", str(tmp_path / "x.html"), "--figures", str(tmp_path / "f")]) == 0
    assert (tmp_path / "x.html").is_file() and any((tmp_path / "f").glob("*.svg"))


def test_report_command__wrong_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "neither a run" in told and told.count("\n") == 1


def test_report_command__places_that_are_none_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", audited=False)
    for options, told in (
        (["-o", "run"], "run is a folder, expected a file; name a file, in it or elsewhere, with -o"),
        (["-o", "run/run.json/x.html"], "run/run.json/x.html cannot be made: run/run.json is a file"),
        (
            ["--figures", "run/run.json"],
            "run/run.json is a file, expected a folder; name another folder with --figures",
        ),
    ):
        assert main(["report", str(run), *options]) == 2
        refused = capsys.readouterr().err
        assert refused.startswith(f"attention-cem report: {told}") and refused.count("\n") == 1
    assert not (run / "report.html").exists()
