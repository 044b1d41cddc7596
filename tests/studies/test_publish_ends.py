"""Every curve of a comparison ends at the run without a surrogate, on the same base defence and with the same noise."""

from pathlib import Path

import pytest
from studies.publish import publish

from attention_cem.studies import Cell
from tests.studies.publishing import fill, repository, summary

STACKED = """
name = "stacked-cifar10"
title = "One strength each"
[settings]
"data.name" = "cifar10"
"defence.gaussian_noise.sigma" = 0.05
"defence.adversarial_inverter.weight" = 0.3
[matrix]
seed = [0, 1, 2]
[[method]]
name = "arl"
settings = { "surrogate.name" = "none" }
matrix = { sigma = [0.05, 0.2] }
[[method]]
name = "arl_kmeans_constant"
settings = { "surrogate.name" = "kmeans" }
matrix = { lambda = [4.0] }
[[method]]
name = "arl_sound"
settings = { "surrogate.name" = "slot_mixture" }
matrix = { lambda = [0.1] }
"""
RUNS = {"arl_kmeans_constant": (0.80, 0.04), "arl_sound": (0.82, 0.05)}


def figures(cell: Cell) -> tuple[float, float]:
    """Alone .86 and .02; more noise alone .84 and .035, which would lift both curves if it were their end."""
    return RUNS.get(cell.method) or ((0.86, 0.02) if cell.sigma == 0.05 else (0.84, 0.035))


def test_publish__one_strength_each_is_compared_on_the_lines_to_the_defence_alone(tmp_path: Path) -> None:
    """At 82 % k-means is a third of the way from .04 to .02."""
    root = repository(tmp_path, STACKED)
    fill(root, "stacked-cifar10", figures)
    publish(root)
    found = summary(root)["comparisons"]["cifar10"]["arl_sound_vs_arl_kmeans_best"]
    assert (found["accuracy"], found["accuracy_from"]) == (0.82, "the lowest accuracy of the overlap")
    assert found["mse_gain"] == pytest.approx(0.05 / (0.04 - 0.02 / 3)) and found["seeds"] == 3
    assert found["overlap"] == pytest.approx([0.82, 0.86])
    assert "arl_kmeans_best is read between runs up to 6.0 points of accuracy apart" in found["cautions"]
    # The defence alone is a curve of its own, with all its noise.
    assert summary(root)["comparisons"]["cifar10"]["arl_sound_vs_arl"]["mse_gain"] == pytest.approx(0.035 / 0.035)


def test_publish__without_a_run_without_a_surrogate_single_strengths_are_not_compared(tmp_path: Path) -> None:
    root = repository(tmp_path, STACKED)
    fill(root, "stacked-cifar10", figures, keep=lambda cell: cell.method != "arl")
    publish(root)
    missing = {each["comparison"]: each["reason"] for each in summary(root)["missing"]}
    assert "share no stretch of accuracy" in missing["cifar10.arl_sound_vs_arl_kmeans_best"]


WHOLE = """
name = "main-cifar10"
title = "A stack against a method that is none"
[settings]
"data.name" = "cifar10"
"defence.gaussian_noise.sigma" = 0.05
[matrix]
seed = [0, 1, 2]
[[method]]
name = "noise"
settings = { "surrogate.name" = "none" }
[[method]]
name = "sound"
settings = { "surrogate.name" = "slot_mixture" }
matrix = { lambda = [0.1] }
[[method]]
name = "adversary_sound"
settings = { "surrogate.name" = "slot_mixture", "defence.adversarial_inverter.weight" = 0.3 }
matrix = { lambda = [0.1] }
"""


def test_publish__a_comparison_that_names_a_stack_sets_whole_against_whole(tmp_path: Path) -> None:
    """Both curves end at noise alone: a stack's own base defence is no end of a curve that is compared with others'."""
    root = repository(tmp_path, WHOLE)
    runs = {"noise": (0.90, 0.01), "sound": (0.88, 0.03), "adversary_sound": (0.86, 0.05)}
    fill(root, "main-cifar10", lambda cell: runs[cell.method])
    publish(root)
    found = summary(root)["comparisons"]["cifar10"]["adversary_sound_vs_sound"]
    assert found["accuracy"] == pytest.approx(0.88)
    assert found["mse_gain"] == pytest.approx(0.03 / 0.03) and found["seeds"] == 3
    assert found["undefended_share"] == pytest.approx({"a": 0.5, "b": 0.0})
