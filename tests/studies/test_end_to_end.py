import json
from pathlib import Path

import pytest

from attention_cem.studies.gathering import write_comparison
from attention_cem.studies.plan import load_study
from attention_cem.studies.results import read_result
from attention_cem.studies.running import run_study

STUDY = """
name = "real"
budget = "quick"
[settings]
"data.options" = { size = 16, num_train = 96, num_test = 24, num_classes = 4 }
"model.name" = "tiny_cnn"
"train.epochs" = 2
"train.batch_size" = 16
"surrogate.name" = "slot_mixture"
"surrogate.lambd_schedule" = "constant"
"run.tensorboard" = false
"run.figures" = false
[matrix]
sigma = [0.05]
lambda = [0.0, 0.5]
"""


@pytest.mark.slow
def test_study__two_real_runs_are_trained_audited_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("training.building", "auditing.run_adapter"):  # the cell hands its images to both
        monkeypatch.delattr(f"attention_cem.{module}.load_data")
    file = tmp_path / "real.toml"
    file.write_text(STUDY)
    study = load_study(file, tmp_path / "out")
    told: list[str] = []
    states = run_study(study, device="cpu", tell=told.append)
    print("\n".join(told))
    assert {state.status for state in states.values()} == {"done"}, [state.error for state in states.values()]
    results = [read_result(study.result_file(cell.id)) for cell in study.cells]
    assert [result["lambda"] for result in results] == [0.0, 0.5]
    for cell, result in zip(study.cells, results, strict=True):
        record = json.loads((study.run_folder(cell) / "audit.json").read_text())
        assert result["mse"] == record["headline"]["mse"] and set(result["attacks"]) >= {"class_mean", "inverter_short"}
        assert all(entry["converged"] in (True, False) for entry in result["attacks"].values())
        assert result["cost"]["seconds_per_epoch"] > 0 and len(result["config_hash"]) == 64
        facts = json.loads((study.run_folder(cell) / "run.json").read_text())
        assert result["best_epoch"] == facts["best_epoch"] >= 1
    written = write_comparison(study, states)
    assert json.loads((study.out / "comparison.json").read_text()) == written
    method = written["methods"]["slot_mixture"]
    assert len(method["points"]) == 2 and written["pairs"] == [] and written["cells"]["done"] == 2
    assert (study.out / method["points"][0]["run"] / "audit.json").is_file()
