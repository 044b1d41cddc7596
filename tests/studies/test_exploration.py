"""The exploration's own code: it trains and attacks, and its page says what its files say."""

import math

import pytest
import torch
from studies.exploration import attacking, training
from studies.exploration.cell import Cell
from studies.exploration.plans import PLANS
from studies.exploration.report import PAGE, RESULTS, curves, longer_table, modes_lines, mse_at, page, result_rows

from attention_cem.data import ImageSet

TINY = {"epochs": 2, "attack_epochs": 1, "warmup_epochs": 1}


def test_page__is_that_of_the_stored_runs() -> None:
    assert result_rows(RESULTS) and PAGE.read_text() == page(result_rows(RESULTS))


def test_mse_at__reads_the_logarithm_between_near_neighbours_only() -> None:
    points = [(0.86, 0.01), (0.84, 0.04), (0.70, 0.05)]
    assert mse_at(points, 0.85) == pytest.approx(math.sqrt(0.01 * 0.04))
    assert mse_at(points, 0.80) is None and mse_at(points, 0.87) is None


def test_modes__compare_one_slot_with_eight_in_every_seed() -> None:
    stored = [row for row in result_rows(RESULTS) if row["cell"]["data"] == "cifar100_coarse"]
    lines = modes_lines(curves(stored))
    assert {line.split(",")[0] for line in lines} == {"- seed 0", "- seed 1"}


def test_longer__stands_beside_the_usual_attack_and_not_on_the_curves() -> None:
    cell = {**result_rows(RESULTS)[0]["cell"], "data": "cifar10"}
    rows = [
        {"cell": cell | {"attack_epochs": epochs}, "mse_test": mse}
        for epochs, mse in ((15, 0.03), (15, 0.05), (60, 0.03))
    ]
    assert longer_table(rows)[-1].endswith("| 0.0400 | 60 | 0.0300 | 0.75× |")
    assert longer_table(rows[:2]) == ["No cell was attacked for longer yet."]


def test_plans__name_each_cell_once() -> None:
    for name, plan in PLANS.items():
        cells = plan()
        assert len({cell.name for cell in cells}) == len(cells), name


@pytest.mark.parametrize(
    "cell",
    [
        Cell("slot_mixture", 0.1, leak=0.5, leak_features=16, blind=2, **TINY),
        Cell("kmeans", 5, schedule="reference", arl=0.3, **TINY),
    ],
    ids=["sound", "adversary"],
)
def test_cell__trains_and_is_attacked(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "BATCH", 16)
    monkeypatch.setattr(attacking, "ATTACK_BATCH", 16)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (48, 3, 32, 32), dtype=torch.uint8, generator=generator)
    data = ImageSet(images, torch.arange(48) % 4, tuple("abcd"))
    model, figures = training.train(cell, data, "cpu", compiled=False)
    found = attacking.attack(cell, model, data, {"test": data}, "cpu", compiled=False)
    assert figures["nonfinite"] == 0 and 0 < found["mse_test"] < 1
    assert (figures["linear_leakage"] > 0) == bool(cell.leak)
