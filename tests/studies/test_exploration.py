"""The exploration's own code: it trains and attacks, and its page says what its files say."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
import studies.exploration.__main__ as runs
import torch
from studies.exploration import attacking, training
from studies.exploration.cell import Cell
from studies.exploration.left_out import left_out, left_out_lines
from studies.exploration.longer import long_training_table, longer_table
from studies.exploration.noise import CutNoise
from studies.exploration.plans import PLANS
from studies.exploration.report import (
    PAGE,
    RESULTS,
    curves,
    modes_lines,
    of_default_attack,
    page,
    repeats_line,
    result_rows,
)

from attention_cem.data import ImageData, ImageSet

TINY = {"epochs": 2, "attack_epochs": 1, "warmup_epochs": 1}


def test_page__is_that_of_the_stored_runs() -> None:
    assert result_rows(RESULTS) and PAGE.read_text() == page(result_rows(RESULTS))


def test_left_out__by_hand() -> None:
    straight_curve = [(0.80, 0.03), (0.84, 0.022), (0.90, 0.01)]
    log_curve = [(0.80, 0.04), (0.85, 0.02), (0.90, 0.01), (0.82, 0.001)]  # the last one is beaten and left alone
    found = left_out([straight_curve, log_curve, [(0.8, 0.02), (0.9, 0.01)]])
    assert found.curves == 2
    assert found.straight == pytest.approx([0.0, math.log(0.025 / 0.02)])
    assert found.logarithm == pytest.approx([math.log(0.03**0.6 * 0.01**0.4 / 0.022), 0.0])
    assert [line.split("|")[-2].strip() for line in left_out_lines(found)[2:]] == ["1", "1"]


def test_left_out__straight_lines_are_nearer_to_the_stored_runs() -> None:
    """The reading that the comparisons use is the one that meets runs it has not seen."""
    found = curves(row for row in result_rows(RESULTS) if of_default_attack(row, "cifar10"))
    errors = left_out(points for by_seed in found.values() for points in by_seed.values())
    assert len(errors.straight) > 20
    assert sum(e * e for e in errors.straight) < 0.7 * sum(e * e for e in errors.logarithm)


def test_modes__compare_one_slot_with_eight_in_every_seed() -> None:
    stored = [row for row in result_rows(RESULTS) if row["cell"]["data"] == "cifar100_coarse"]
    lines = modes_lines(curves(stored))
    assert {line.split(",")[0] for line in lines} == {"- seed 0", "- seed 1"}
    ratios = [float(line.split("slots ")[1].split("×")[0]) for line in lines]
    assert min(ratios) < 1 < max(ratios)  # the page says so


def test_repeats__are_told_from_the_runs_of_one_cell() -> None:
    cell = result_rows(RESULTS)[0]["cell"]
    rows = [{"cell": cell, "accuracy_test": a, "mse_test": m} for a, m in ((0.86, 0.02), (0.864, 0.019), (0.861, 0.02))]
    rows.append({"cell": cell | {"seed": 9}, "accuracy_test": 0.1, "mse_test": 0.5})
    assert repeats_line(rows) == "1 cells were run twice or more: up to 0.4 points and 0.0010 MSE apart."
    assert repeats_line(rows[2:]) == "No cell was run twice."


def test_longer__stands_beside_the_usual_attack_of_its_seed_and_not_on_the_curves() -> None:
    cell = {**result_rows(RESULTS)[0]["cell"], "data": "cifar10", "seed": 0}
    rows = [
        {"cell": cell | {"attack_epochs": epochs, "seed": seed}, "accuracy_test": 0.86, "mse_test": mse}
        for epochs, seed, mse in ((15, 0, 0.03), (15, 0, 0.05), (15, 1, 0.01), (60, 0, 0.03))
    ]
    assert longer_table(rows)[-1].endswith("| 0 | 86.00, 0.0300; 86.00, 0.0500 | 60 | 86.00, 0.0300 | 0.75× |")
    assert longer_table(rows[2:])[-1].endswith("| 0 | – | 60 | 86.00, 0.0300 | – |")
    assert longer_table(rows[:3]) == ["No cell was attacked for longer yet."]
    rows[-1]["mse_test_usual"] = 0.06
    assert longer_table(rows)[-1].endswith("| 0 | 86.00, 0.0600 | 60 | 86.00, 0.0300 | 0.50× |")


def test_long_training__is_read_at_the_accuracy_of_the_more_accurate_run() -> None:
    usual = asdict(Cell("noise"))
    figures = (("noise", 0.0, 0.90, 0.005), ("kmeans", 5.0, 0.88, 0.015), ("slot_mixture", 0.1, 0.87, 0.035))
    rows = [
        {"cell": usual | {"method": method, "lambd": lam, "seed": 0, "epochs": 160}, "accuracy_test": a, "mse_test": m}
        for method, lam, a, m in (*figures, ("slot_mixture", 0.05, 0.89, 0.03))
    ]
    rows.append({"cell": usual | {"epochs": 40}, "accuracy_test": 0.5, "mse_test": 0.5})
    ratios = [line.split("|")[-2].strip() for line in long_training_table(rows, 160, "k-means CEM", "noise alone")[2:]]
    assert ratios == ["–", "–", "1.67× at 88.00 %", "3.00× at 89.00 %"]  # .025 / .015 and .03 / .01
    assert long_training_table(rows[4:], 160, "k-means CEM", "noise alone") == ["No cell was trained for longer yet."]


def test_plans__name_each_cell_once() -> None:
    for name, plan in PLANS.items():
        cells = plan()
        assert len({cell.name for cell in cells}) == len(cells), name


def random_images(count: int) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return ImageSet(images, torch.arange(count) % 4, tuple("abcd"))


@pytest.mark.parametrize(
    "cell",
    [
        Cell("slot_mixture", 0.1, leak=0.5, leak_features=16, blind=2, **TINY),
        Cell("kmeans", 5, schedule="reference", arl=0.3, **TINY),
        Cell("noise", sigma=0.1, shaped=True, **TINY),
    ],
    ids=["sound", "adversary", "shaped"],
)
def test_cell__trains_and_is_attacked(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "BATCH", 16)
    monkeypatch.setattr(attacking, "ATTACK_BATCH", 16)
    data = random_images(48)
    model, noise, figures = training.train(cell, data, "cpu", compiled=False)
    found = attacking.attack(cell, model, noise, data, {"test": data}, "cpu", compiled=False)
    assert figures["nonfinite"] == 0 and 0 < found["mse_test"] < 1 and -1 < found["ssim_test"] < 1
    assert (figures["linear_leakage"] > 0) == bool(cell.leak)


def test_noise__shaped_has_the_power_of_white_noise_and_the_directions_of_the_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(4000) % 4
    spread = torch.tensor([1.0, 0.1, 0.1, 0.1])
    z = 5 * torch.randn(4, 4, generator=generator)[y] + spread * torch.randn(4000, 4, generator=generator)
    noise = CutNoise(0.2, (4,), "cpu", shaped=True)
    white = noise(torch.zeros(20_000, 4)).var(0)
    torch.testing.assert_close(white, torch.full((4,), 0.04), rtol=0.1, atol=0)
    for part in torch.arange(4000).split(100):
        noise.learn(z[part], y[part])
    noise.renew()
    shaped = noise(torch.zeros(20_000, 4)).var(0)
    assert shaped.sum().item() == pytest.approx(4 * 0.04, rel=0.05)
    torch.testing.assert_close(shaped / shaped[0], spread.square(), rtol=0.2, atol=0)


def test_run_cell__attacks_one_client_for_longer_and_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "BATCH", 16)
    monkeypatch.setattr(attacking, "ATTACK_BATCH", 16)
    data = random_images(40)
    monkeypatch.setattr(runs, "images_of", lambda *_: ImageData("random", data, data))
    monkeypatch.setattr(runs, "default_of", lambda name: 1)
    cell = Cell("noise", **TINY | {"attack_epochs": 2})
    runs.run_cell(cell, "", tmp_path, "cpu")
    found = json.loads((tmp_path / f"{cell.name}.json").read_text())
    assert found["mse_test"] != found["mse_test_usual"] and 0 < found["mse_test_usual"] < 1
