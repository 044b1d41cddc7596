"""The measurement of what augmented images add, on runs small enough for a test; and the page that is made from it."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import augmented, report

ROOT = Path(__file__).parents[2]
SMALL = """
name = "finalists-mirrored-cifar10"
base = "../configs/synthetic-sound.toml"
[settings]
"data.limit" = 120
"data.test_limit" = 40
"train.epochs" = 1
"train.batch_size" = 40
"run.tensorboard" = false
"run.figures" = false
[matrix]
seed = [0]
[[method]]
name = "kmeans_constant_mirrored"
settings = { "surrogate.name" = "kmeans" }
matrix = { lambda = [5.0, 7.0] }
[[method]]
name = "sound_attention_mirrored"
settings = { "surrogate.name" = "none", "defence.linear_leakage.random_features" = 8 }
matrix = { leakage = [0.5] }
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / f"{augmented.STUDY}.toml").write_text(SMALL, encoding="utf-8")
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    given = ["augmented", "--data-root", ".", "--device", "cpu", *arguments]
    monkeypatch.setattr(sys, "argv", given)
    monkeypatch.setattr(augmented, "EPOCHS", 1)
    augmented.main()


def test_augmented__runs_go_on_where_they_were_left_and_are_written_when_all_are_there(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, ours = augmented.chosen()
    assert [augmented.strength(each) for each in (theirs, ours)] == [5.0, 0.5], "of each method one strength"
    run(monkeypatch, "--cell", ours.id)
    assert not augmented.OUT.exists() and "with augmented images" in capsys.readouterr().out
    kept = small / "runs" / "augmented" / f"{ours.id}.json"
    before = kept.read_bytes()
    run(monkeypatch)
    assert kept.read_bytes() == before, "done once"
    found: dict[str, Any] = json.loads(augmented.OUT.read_text(encoding="utf-8"))
    assert [each["cell"] for each in found["runs"]] == [theirs.id, ours.id]
    for each in found["runs"]:
        assert set(each["attacks"]) == {"plain", "augmented"} and 0 < each["accuracy"] <= 1
        assert all(0 < attack["mse"] < 1 and attack["reason"] for attack in each["attacks"].values())
        assert each["attacks"]["plain"]["mse"] != each["attacks"]["augmented"]["mse"]
    assert not list((small / "runs" / "augmented").glob("*.challenge")), "large, and not needed any more"
    with pytest.raises(SystemExit):
        run(monkeypatch, "--cell", ours.id, "--cell", "another")
    assert f"no such run: another; there are {theirs.id}, {ours.id}" in capsys.readouterr().err


def test_report__is_the_page_of_the_figures_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = tmp_path / "RESULTS.md"
    monkeypatch.setattr(report, "PAGE", page)
    report.main()
    assert page.read_text(encoding="utf-8") == (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    runs = json.loads((ROOT / augmented.OUT).read_text(encoding="utf-8"))["runs"]
    assert len(re.findall(r"^\| `(?:sound_attention|kmeans_constant)_mirrored` \|", page.read_text("utf-8"), re.M)) == 6
    assert {run["strength"] for run in runs} == set(augmented.STRENGTHS.values())
