"""The published table: what stands beside which row, and how the runs shown were made."""

from pathlib import Path

import pytest
from studies.publish import publish

from attention_cem.studies import load_study
from tests.studies.publishing import MAIN, ROOT, fill, page, repository

STACKED = """
name = "stacked-cifar10"
title = "Pruning, and PATROL-like"
[settings]
"data.name" = "cifar10"
"data.rotation_degrees" = 15.0
"train.epochs" = 40
"train.batch_size" = 512
"train.lr" = 0.1
"train.schedule" = "multistep"
"train.milestones" = [10, 20]
"train.milestone_factor" = 0.2
"defence.channel_pruning.share" = 0.3
[matrix]
seed = [0]
[[method]]
name = "pruning"
settings = { "surrogate.name" = "none" }
[[method]]
name = "patrol"
settings = { "surrogate.name" = "none", "defence.adversarial_inverter.weight" = 0.3 }
"""


def rows(root: Path, defence: str) -> list[str]:
    """Lines about our runs beside a published row."""
    lines = page(root, "paper-table").split("## Our runs")[1].splitlines()
    return [line for line in lines if line.startswith(f"| {defence} | ")]


def test_paper__sound_never_stands_beside_the_published_table_without_our_own_kmeans(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10", keep=lambda cell: cell.method != "kmeans_published")
    publish(root)
    lines = rows(root, "bottleneck")
    assert len(lines) == 3 and "k-means CEM (`kmeans_constant`)" in lines[1] and "`sound`" in lines[2]


def test_paper__training_and_strengths_are_those_of_the_configurations(tmp_path: Path) -> None:
    root = repository(tmp_path, STACKED)
    fill(root, "stacked-cifar10", lambda cell: (0.85, 0.02))
    publish(root)
    text = page(root, "paper-table")
    told = "40 epochs, batches of 512, step size 0.1 × 0.2 at 10, 20, rotation up to 15°, 45,000 training images"
    assert f"- ours, stacked-cifar10: {told} (10 % are held out)\n" in text
    assert (
        "Published: 240 epochs, batches of 128, step size 0.05 × 0.2 at stages, rotation up to 15°, all 50,000" in text
    )
    assert "  - PATROL: " in text and "channel pruning share 0.3" in text and "adversarial inverter weight 0.3" in text


def test_paper__pruning_alone_does_not_stand_beside_patrol(tmp_path: Path) -> None:
    root = repository(tmp_path, STACKED)
    fill(root, "stacked-cifar10", lambda cell: (0.85, 0.02), keep=lambda cell: cell.method == "pruning")
    publish(root)
    assert rows(root, "PATROL") == []
    fill(root, "stacked-cifar10", lambda cell: (0.85, 0.02))
    publish(root)
    assert len(rows(root, "PATROL")) == 1 and "(`patrol`)" in rows(root, "PATROL")[0]
    assert "the Lipschitz term left out" in page(root, "paper-table")


ACCURATE = """
name = "stacked-{name}"
title = "Beside an inverter"
[settings]
"data.name" = "cifar10"
"data.edges" = "{edges}"
"train.epochs" = {epochs}
"train.label_smoothing" = 0.1
[matrix]
seed = [0]
[[method]]
name = "adversary_sound"
settings = {{ "surrogate.name" = "none", "defence.adversarial_inverter.weight" = 2.0 }}
"""


def test_paper__sound_trained_to_be_accurate_is_shown_once_and_with_all_that_makes_it_so(tmp_path: Path) -> None:
    root = repository(tmp_path, ACCURATE.format(name="long", edges="black", epochs=240))
    fill(root, "stacked-long", lambda cell: (0.85, 0.02))
    publish(root)
    assert len(rows(root, "ResSFL (ARL)")) == 1
    study = ACCURATE.format(name="accurate", edges="mirrored", epochs=120)
    (root / "studies" / "stacked-accurate.toml").write_text(study, encoding="utf-8")
    fill(root, "stacked-accurate", lambda cell: (0.90, 0.03))
    publish(root)
    longest, accurate = rows(root, "ResSFL (ARL)")
    assert "| sound (`adversary_sound`) |" in longest and "| 240 |" in longest
    assert "trained to be accurate (`adversary_sound`) |" in accurate and "| 90.00" in accurate
    assert "mirrored edges, labels smoothed by 0.1" in page(root, "paper-table")


@pytest.mark.parametrize(("name", "adversary"), [("pruning", False), ("patrol", True)])
def test_stacked__patrol_joins_pruning_with_an_adversary_and_pruning_has_none(name: str, adversary: bool) -> None:
    cells = [
        cell for cell in load_study(ROOT / "studies" / "stacked-cifar10.toml").cells if cell.method.startswith(name)
    ]
    assert len({cell.method for cell in cells}) == 3
    assert all("channel_pruning" in cell.config.defence for cell in cells)
    assert all(("adversarial_inverter" in cell.config.defence) is adversary for cell in cells)
