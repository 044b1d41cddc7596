"""The demonstration, small enough for a test: the same path from training to the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attention_cem import demo
from attention_cem.demo import DEFENDED, UNDEFENDED, DemoPlan, demo_config, main

TINY = DemoPlan(
    data="synthetic", epochs=3, batch_size=16, classes_per_batch=4, limit=40, attack_epochs=1, attack_width=8,
    attack_blocks=1,
)  # fmt: skip


@pytest.mark.slow
def test_demo__whole_way_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "demo"
    assert main(["--folder", str(folder)], TINY) == 0
    told = capsys.readouterr().out
    records = [json.loads((folder / name / "audit.json").read_text()) for name in (UNDEFENDED, DEFENDED)]
    for record in records:
        assert f"{100 * record['accuracy']:.1f} %" in told
        assert [entry["name"] for entry in record["attacks"]] == ["class_mean", "nearest_neighbour", "inverter"]
    assert "What remains with the defence" in told and str(folder / "report.html") in told
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") > 16

    finished = {path: path.stat().st_mtime_ns for path in folder.rglob("checkpoints/*")}
    attacks = {path: path.stat().st_mtime_ns for path in folder.rglob("attacks/*")}
    assert main(["--folder", str(folder)], TINY) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("checkpoints/*")} == finished
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("attacks/*")} == attacks

    changed = DemoPlan(**{**TINY.__dict__, "epochs": 5})
    assert main(["--folder", str(folder)], changed) == 2
    assert "delete the folder" in capsys.readouterr().err


def test_demo__ctrl_c_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", interrupted)
    assert main(["--folder", str(tmp_path / "demo")]) == 130
    assert "the same command continues" in capsys.readouterr().err


def test_demo__a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(*arguments: Any) -> None:
        raise PermissionError(13, "Permission denied", "demo")

    monkeypatch.setattr(demo, "run_demo", denied)
    assert main(["--folder", str(tmp_path / "demo")]) == 1
    assert capsys.readouterr().err.startswith("demo: demo: Permission denied; check the permissions")


def test_demo_config__models_differ_in_the_defence_alone(tmp_path: Path) -> None:
    plain, defended = (demo_config(DemoPlan(), tmp_path, defended=flag) for flag in (False, True))
    assert plain.data == defended.data and plain.model == defended.model and plain.train == defended.train
    assert plain.defence == {} and plain.surrogate.name == "none"
    assert defended.surrogate.lambd > 0
