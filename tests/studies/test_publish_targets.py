import json
from pathlib import Path

import pytest
from studies.publish import publish

from attention_cem.studies import Cell
from tests.studies.publishing import MAIN, STACKED, fill, page, repository, summary


@pytest.mark.parametrize(
    ("mse", "budget", "receipts", "seeds", "met", "why"),
    [
        (0.036, "thorough", True, 3, True, "0.0360 at 90.00 %"),
        (0.034, "thorough", True, 3, False, "0.0340 at 90.00 %"),
        (0.034, "standard", True, 3, False, "0.0340 at 90.00 %"),
        (0.036, "standard", True, 3, None, "attacked with budget standard, not thorough"),
        (0.036, "thorough", False, 3, None, "3 without a passing receipt"),
        (0.036, "thorough", True, 2, None, "a target is decided by 3 seeds or more"),
    ],
)
def test_publish__the_worst_case_target_asks_for_thorough_attacks_with_receipts(
    tmp_path: Path, mse: float, budget: str, receipts: bool, seeds: int, met: bool | None, why: str
) -> None:
    study = STACKED.replace('budget = "thorough"', f'budget = "{budget}"')
    root = repository(tmp_path, study.replace("seed = [0, 1]", f"seed = {list(range(seeds))}"))
    more = {"budget": budget, "receipt_ok": receipts}
    fill(root, "stacked-cifar10", make=lambda cell: (0.9, mse), more=more)
    publish(root)
    target = next(each for each in summary(root)["targets"] if "ARL" in each["name"])
    assert target["met"] is met and why in target["why"]


def test_publish__cost_compares_only_runs_that_were_alone(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    publish(root)
    assert summary(root)["cost"]["seconds_per_epoch"] == {} and "Not measured yet" in page(root, "cost")
    seconds = {"none": 1.0, "k-means": 1.5, "sound": 1.08}
    rows = [
        {"method": name, "mode": "graph", "batch": batch, "classes": 10, "images_per_s": 45_000 / s, "epoch_s": s}
        for batch in (128, 512)
        for name, s in ((name, s if batch == 128 else 9 * s) for name, s in seconds.items())
    ]
    (root / "results" / "benchmarks").mkdir()
    content = {"machine": {"gpu": "A GPU", "torch": "2.11"}, "images": 50_000, "rows": rows}
    (root / "results" / "benchmarks" / "throughput-gpu.json").write_text(json.dumps(content))
    publish(root)
    over_none, over_kmeans = summary(root)["targets"][-2:]
    assert over_none["figure"] == pytest.approx(1.08) and over_none["met"] is True
    assert over_kmeans["figure"] == pytest.approx(0.72) and over_kmeans["met"] is True
    assert "| 512 | 10 | graph | sound | 9.720 | 1.08× | 4,630 |" in page(root, "cost")


@pytest.mark.parametrize(("mse", "met"), [(0.03, True), (0.013, None)])
def test_publish__a_lower_bound_meets_a_target_or_leaves_it_open(tmp_path: Path, mse: float, met: bool | None) -> None:
    """Sound is more accurate than k-means CEM ever is: at least so many times its MSE, which may be too few to tell."""
    root = repository(tmp_path, MAIN)

    def made(cell: Cell) -> tuple[float, float]:
        if cell.method == "sound":
            return 0.95, mse * (1 + cell.config.train.seed / 1000)
        accuracy = 0.80 + 0.01 * (cell.sigma or 4.0 / (cell.lambd or 4.0))
        return accuracy, 0.01 + (0.82 - accuracy) / 100

    fill(root, "main-cifar10", make=made)
    publish(root)
    target = next(each for each in summary(root)["targets"] if "as published" in each["name"])
    assert target["met"] is met and "at least" in target["why"]
    assert "≥ " in page(root, "main") and "the ratio is a lower bound" in page(root, "main")


@pytest.mark.parametrize(("study", "decided"), [("main-cifar10", True), ("main-other", False)])
def test_publish__a_target_that_names_a_study_is_decided_by_it_alone(tmp_path: Path, study: str, decided: bool) -> None:
    root = repository(tmp_path, MAIN)
    settings = root / "results" / "comparisons.toml"
    settings.write_text(settings.read_text().replace('study = "main-cifar10"', f'study = "{study}"'))
    fill(root, "main-cifar10")
    publish(root)
    target = next(each for each in summary(root)["targets"] if "as published" in each["name"])
    assert target["figure"] is not None and (target["met"] is not None) is decided
    assert decided or "decided by main-other alone" in target["why"]


def test_publish__the_front_page_marks_where_it_was_read_and_says_it_in_chinese(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN.replace("accuracies", "# accuracies"))
    fill(root, "main-cifar10")
    publish(root)
    front = (root / "README.md").read_text(encoding="utf-8")
    assert " (lowest) |" in front and "与最好的 k-means CEM 相比" in front and "`sound`（不含注意力）" in front
