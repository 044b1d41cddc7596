"""Results that lack a figure, or that several studies have."""

from pathlib import Path
from typing import Any

import pytest
from studies.publish import publish

from tests.studies.publishing import MAIN, figures, fill, page, repository, summary


@pytest.mark.parametrize(
    "more", [{"ssim": None}, {"ssim": float("nan")}, {"waves": {"0-3": None}, "floor_waves": {"0-3": 1.0}}]
)
def test_publish__results_without_ssim_or_waves_are_shown_with_dashes(tmp_path: Path, more: dict[str, Any]) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10", more=more)
    publish(root)
    found = summary(root)["comparisons"]["cifar10"]["sound_vs_noise"]
    assert found["outcome"] == "better" and (found["ssim_a"] is None) is ("ssim" in more)
    assert ("| – / – |" in page(root, "main")) is ("ssim" in more)


def test_publish__runs_of_one_configuration_are_told_apart(tmp_path: Path) -> None:
    other = MAIN.replace("main-cifar10", "stacked-cifar10")
    root = repository(tmp_path, MAIN, other)
    fill(root, "main-cifar10")
    publish(root)
    assert "run more than once" not in page(root, "README")  # the second study borrows all of them
    fill(root, "stacked-cifar10", lambda cell: (figures(cell)[0] + 0.01, figures(cell)[1]))
    publish(root)
    assert "36 configurations were run more than once" in page(root, "README")
    assert "at most 1.00 points of accuracy" in page(root, "README")
