import hashlib
import math
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
from studies.publish import main, publish, stale_pages

from tests.studies.publishing import MAIN, STACKED, fill, page, repository, summary


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose main study is complete and published; nobody changes it."""
    root = repository(tmp_path_factory.mktemp("done"), MAIN)
    fill(root, "main-cifar10")
    publish(root)
    return root


def test_publish__nothing_has_been_run(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    publish(root)
    content = summary(root)
    assert content["comparisons"] == {} and content["cells"] == []
    missing = {each["comparison"]: each["reason"] for each in content["missing"]}
    assert {"cifar10.sound_vs_kmeans_published", "lfw158.sound_vs_noise"} <= set(missing)
    assert "lfw158.sound_vs_kmeans_best" not in missing, "no study runs these there, and no target asks for them"
    assert content["studies"]["main-cifar10"] | {"sha256": ""} == {
        "file": "studies/main-cifar10.toml",
        "sha256": "",
        "title": "Main study in small",
        "budget": "standard",
        "planned": 36,
        "done": 0,
        "missing": {"noise": 9, "kmeans_published": 9, "kmeans_constant": 9, "sound": 9},
        "stale": 0,
        "commits": [],
        "command": "python -m studies.reproduce --missing main-cifar10",
    }
    assert "python -m studies.reproduce --missing main-cifar10" in page(root, "main")
    assert "no study file that matches `studies/stacked-*.toml`" in page(root, "stacked")
    assert all(target["met"] is None for target in content["targets"])
    assert "not run yet" in (root / "README.md").read_text()
    assert not list((root / "results").glob("figures/*")) and stale_pages(root) == []


def test_publish__a_comparison_by_hand(done: Path) -> None:
    found = summary(done)["comparisons"]["cifar10"]["sound_vs_kmeans_published"]
    # All curves are straight lines and reach 87 %: 3 × (1 + seed/100) against 1.5.
    logs = [math.log(2 * (1 + 0.01 * seed)) for seed in (0, 1, 2)]
    half = 4.302653 * statistics.stdev(logs) / math.sqrt(3)
    assert found["accuracy"] == 0.87 and found["accuracy_from"] == "the study file"
    assert found["mse_gain"] == pytest.approx(math.exp(statistics.fmean(logs)))
    assert found["ci95"] == pytest.approx(
        [math.exp(statistics.fmean(logs) - half), math.exp(statistics.fmean(logs) + half)], rel=1e-5
    )
    assert found["seeds"] == 3 and found["seed_list"] == [0, 1, 2] and found["study"] == "main-cifar10"
    # the made-up SSIM is 0.5 - MSE, so that it must come out as such where both are read between two runs
    assert [found[f"ssim_{s}"] for s in "ab"] == pytest.approx([0.5 - sum(found[f"mse_{s}"]) / 3 for s in "ab"])
    assert found["mse_a"] == pytest.approx([0.03, 0.0303, 0.0306]) and found["mse_b"] == pytest.approx([0.015] * 3)
    assert found["outcome"] == "better" and "cost_ratio" not in found
    assert len(found["config_hashes"]["a"]) == 9 and found["commits"] == ["0123456789abcdef0123456789abcdef01234567"]


def test_publish__kmeans_best_is_the_envelope_and_says_so(done: Path) -> None:
    found = summary(done)["comparisons"]["cifar10"]["sound_vs_kmeans_best"]
    assert found["mse_b"] == pytest.approx([0.02] * 3) and set(found["best_b"].values()) == {"kmeans_constant"}
    assert "favours kmeans_best" in found["notes"][0] and "kmeans_published, kmeans_constant" in found["notes"][0]
    assert "favours kmeans_best" in page(done, "main")


def test_publish__targets_say_where_we_stand(done: Path) -> None:
    targets = {target["name"]: target for target in summary(done)["targets"]}
    published, best, hoped, arl, lfw, *_ = targets.values()
    assert published["met"] is True and published["figure"] == pytest.approx(2.02, abs=0.01)
    assert best["met"] is hoped["met"] is None and best["threshold"] == "MSE ≥ 1.1×, interval above 1"
    assert best["why"].startswith("decided by main-short-cifar10 alone, and there is no such study")
    assert (arl["met"], arl["why"]) == (None, "no results of arl_sound or adversary_sound on cifar10")
    assert lfw["met"] is None and "lfw158" not in summary(done)["comparisons"]


def test_publish__every_row_names_study_config_and_commit(done: Path) -> None:
    hashes = [cell["config_hash"][:8] for cell in summary(done)["cells"]]
    text = page(done, "main")
    assert len(set(hashes)) == 36 and all(f"`{each}`" in text for each in hashes)
    rows = [
        line for line in text.splitlines() if line.startswith("| ") and "---" not in line and "· commit" not in line
    ]
    assert len(rows) > 20 and all("main-cifar10 · " in row and "`012345678`" in row for row in rows)


def test_publish__the_front_page_has_one_table_one_plot_and_keeps_the_rest(done: Path) -> None:
    text = (done / "README.md").read_text()
    assert text.startswith("# A project\n\n<!-- results:begin -->\n") and text.endswith(
        "<!-- results:end -->\n\nMore.\n"
    )
    row = next(line for line in text.splitlines() if "against k-means CEM exactly as published |" in line)
    assert " | **2.02×** (" in row and " | 87.0 % | better" in row
    assert "Fewer than 3 seeds" not in text and "- **noise**: Gaussian noise at the cut" in page(done, "README")
    assert "](results/figures/main-cifar10.svg)" in text and (done / "results/figures/main-cifar10.svg").is_file()


def test_publish__the_same_results_give_the_same_bytes(done: Path) -> None:
    def digests() -> dict[str, str]:
        files = [file for file in done.rglob("*") if file.is_file()]
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    before = digests()
    publish(done)
    assert digests() == before


def test_publish__a_study_half_done_works_and_says_what_is_missing(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10", keep=lambda cell: cell.config.train.seed == 0 and cell.method != "noise")
    publish(root)
    content = summary(root)
    found = content["comparisons"]["cifar10"]["sound_vs_kmeans_published"]
    assert (found["seeds"], found["ci95"], found["outcome"]) == (1, None, "undecided")
    assert found["mse_gain"] == pytest.approx(2.0)
    reasons = {each["comparison"]: each["reason"] for each in content["missing"]}
    assert reasons["cifar10.sound_vs_noise"] == "main-cifar10: no results of noise on cifar10"
    assert "9 of 36 runs are done" in page(root, "main") and "noise (9), kmeans_published (6)" in page(root, "main")
    assert content["targets"][0]["met"] is None and "nothing is decided" in content["targets"][0]["why"]
    fill(root, "main-cifar10", keep=lambda cell: cell.config.train.seed < 2)
    publish(root)
    first, text = summary(root)["targets"][0], (root / "README.md").read_text()
    assert first["met"] is None and "3 seeds or more" in first["why"] and "Fewer than 3 seeds are a lead" in text


def test_publish__results_of_an_older_definition_are_listed_and_never_used(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    file = root / "studies" / "main-cifar10.toml"
    file.write_text(MAIN.replace("lambda = [0.1, 0.3, 1.0]", "lambda = [0.1, 0.3, 0.9]"))
    publish(root)
    content = summary(root)
    assert len(content["cells"]) == 33 and len(content["stale"]) == 3
    assert {each["reason"] for each in content["stale"]} == {"no cell of the study has this configuration any more"}
    assert all(each["file"].startswith("results/studies/main-cifar10/cifar10-sound-") for each in content["stale"])
    assert "Not used: `results/studies/main-cifar10/cifar10-sound-" in page(root, "main")
    assert max(cell["lambda"] for cell in content["cells"] if cell["method"] == "sound") == 0.3


def test_publish__another_attack_budget_and_a_second_copy_are_not_used(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    first, second, *_ = fill(root, "main-cifar10")
    shutil.copy(first, first.with_name("copy.json"))
    second.write_text(second.read_text().replace('"budget": "standard"', '"budget": "quick"'))
    publish(root)
    reasons = sorted(each["reason"] for each in summary(root)["stale"])
    assert reasons[0].startswith("a second result of cell cifar10-noise-")
    assert reasons[1] == "attacked with budget 'quick', the study now asks for 'standard'"


def test_publish__results_without_a_study_file_are_listed(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    (root / "studies" / "main-cifar10.toml").unlink()
    publish(root)
    stale = summary(root)["stale"]
    assert len(stale) == 36 and {each["reason"] for each in stale} == {"there is no study file of this name"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accuracy": 87.0}, "accuracy from 0 to 1"),
        ({"mse": float("nan")}, "finite MSE"),
        ({"mse": -0.1}, "finite MSE"),
        ({"format": "other"}, "is no attention-cem/study-result"),
        ({"attacks": [1]}, "attacks must be an object, got list"),
        ({"attacks": {"inverter": 1}}, "entry 'inverter' of attacks, cost or waves"),
        ({"cost": {"seconds_per_epoch": "1"}}, "entry 'seconds_per_epoch' of attacks, cost or waves"),
    ],
)
def test_publish__a_broken_result_stops_everything(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10", more=change, keep=lambda cell: cell.method == "sound")
    with pytest.raises(ValueError, match=message):
        publish(root)
    assert not (root / "results" / "summary.json").exists()


def test_publish__what_stays_hidden_by_waves_is_shown_where_results_have_it(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    publish(root)
    assert "What stays hidden" not in page(root, "main")
    fill(root, "main-cifar10", more={"waves": {"0-3": 0.02, "4-7": 0.01}, "floor_waves": {"0-3": 0.04, "4-7": 0.01}})
    publish(root)
    lines = [line for line in page(root, "main").splitlines() if line.startswith("| sound | ") and "| 0.50 ± " in line]
    assert len(lines) == 3 and all("| 0.50 ± 0.00 | 1.00 ± 0.00 |" in line for line in lines)


def test_publish__what_two_studies_of_a_page_need_is_explained_once(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN, MAIN.replace("main-cifar10", "main-short-cifar10"))
    for name in ("main-cifar10", "main-short-cifar10"):
        fill(root, name, more={"waves": {"0-3": 0.02, "4-7": 0.01}, "floor_waves": {"0-3": 0.04, "4-7": 0.01}})
    publish(root)
    text = page(root, "main")
    assert text.count("MSE ratio at equal accuracy") == text.count("1 is all") == 1
    assert text.count("\nMSE at equal accuracy") == text.count("<summary>What stays hidden, coarse to fine") == 2


def test_publish__stacked_methods_meet_those_on_the_same_defence(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN, STACKED)
    fill(root, "main-cifar10")
    fill(root, "stacked-cifar10", more={"budget": "thorough"})
    publish(root)
    found = summary(root)["comparisons"]["cifar10"]
    assert found["sound_arl_vs_kmeans_best_arl"]["mse_gain"] == pytest.approx(1.5)
    assert found["sound_arl_vs_noise_arl"]["study"] == "stacked-cifar10"
    # The plain envelope does not take in methods on another defence.
    assert "_arl" not in found["sound_vs_kmeans_best"]["notes"][0]
    target = next(each for each in summary(root)["targets"] if "ARL" in each["name"])
    assert target["met"] is False and target["why"] == "no setting reaches the accuracy: the highest is 89.05 %"


def test_publish__the_paper_table_shows_the_setting_nearest_in_accuracy(done: Path) -> None:
    text = page(done, "paper-table")
    assert "arxiv.org/abs/2503.00383" in text and "| PATROL | 89.58, 0.0293 / 0.0307 | 89.67, 0.0335 / 0.0347 |" in text
    lines = [line for line in text.splitlines() if line.startswith("| bottleneck | ") and "`sound`" in line]
    # Published 90.69 %: the highest of ours, 89.1 % on average, is nearest.
    assert len(lines) == 1 and "| 89.10 ± 0.10 |" in lines[0] and "| 60 | standard | 3 | main-cifar10 · " in lines[0]


def test_publish__a_study_with_enough_seeds_speaks_before_a_preferred_one_with_fewer(tmp_path: Path) -> None:
    short = MAIN.replace('name = "main-cifar10"', 'name = "main-cifar10-short"').replace("= 60", "= 30")
    root = repository(tmp_path, MAIN, short)
    fill(root, "main-cifar10", keep=lambda cell: cell.config.train.seed < 2)
    fill(root, "main-cifar10-short")
    publish(root)
    assert summary(root)["comparisons"]["cifar10"]["sound_vs_noise"]["study"] == "main-cifar10-short"
    fill(root, "main-cifar10")
    publish(root)
    found = summary(root)
    assert found["comparisons"]["cifar10"]["sound_vs_noise"]["study"] == "main-cifar10"
    assert set(found["comparisons_by_study"]) == {"main-cifar10", "main-cifar10-short"}


def test_publish__studies_named_together_are_compared_and_what_differs_in_training_is_said(tmp_path: Path) -> None:
    before, sound = MAIN.split('[[method]]\nname = "sound"')
    rest = (
        before.split("[[method]]")[0]
        .replace('name = "main-cifar10"', 'name = "main-cifar10-b"')
        .replace("= 60", "= 30")
    )
    root = repository(tmp_path, before, f'{rest}[[method]]\nname = "sound"{sound}')
    settings = root / "results" / "comparisons.toml"
    group = '\n[[together]]\nname = "main-cifar10"\nstudies = ["main-cifar10", "main-cifar10-b"]\n'
    settings.write_text(settings.read_text() + group)
    fill(root, "main-cifar10")
    fill(root, "main-cifar10-b")
    publish(root)
    found = summary(root)["comparisons"]["cifar10"]["sound_vs_noise"]
    assert found["seeds"] == 3
    assert "sound and noise are trained differently: train.epochs: 30 → 60" in found["cautions"]


SENSITIVITY = """
name = "slots-cifar10"
title = "How many slots"
baseline = "num_slots 4"
[settings]
"data.name" = "cifar10"
"surrogate.name" = "slot_mixture"
[matrix]
seed = [0, 1, 2]
lambda = [0.1, 0.3, 1.0]
"surrogate.arguments.num_slots" = [1, 4]
"""


def test_publish__methods_of_a_sensitivity_study_meet_its_baseline(tmp_path: Path) -> None:
    root = repository(tmp_path, SENSITIVITY)

    def make(cell: Any) -> tuple[float, float]:
        accuracy = 0.9 - 0.05 * cell.lambd
        return accuracy, 0.02 if cell.method == "num_slots 1" else 0.01 + 0.0001 * cell.config.train.seed

    fill(root, "slots-cifar10", make=lambda cell: (make(cell)[0], make(cell)[1] + 0.01 * cell.lambd))
    publish(root)
    found = summary(root)["comparisons_by_study"]["slots-cifar10"]["cifar10"]
    assert found["num_slots 1_vs_num_slots 4"]["outcome"] == "better"
    assert "num_slots 1 / num_slots 4" in page(root, "sensitivity")


def test_main__says_in_one_line_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = repository(tmp_path, MAIN)
    monkeypatch.setattr("studies.publish.ROOT", root)
    assert main(["--check"]) == 1 and "results/main.md is missing: run `make results`" in capsys.readouterr().out
    assert main([]) == 0 and main(["--check"]) == 0
    (root / "README.md").write_text("# No markers\n")
    capsys.readouterr()
    assert main([]) == 1
    assert capsys.readouterr().err.startswith("results: README.md needs the lines <!-- results:begin -->")
