"""A side read as a mixture with the run without a surrogate: the share is said, and verdicts reach no further."""

from pathlib import Path
from typing import Any

import pytest
from studies.publish import publish
from studies.publish_tables import verdict_across

from attention_cem.studies import Cell
from tests.studies.publishing import fill, page, repository, summary

MIXED = """
name = "main-cifar10"
title = "One strength each, and the noise that both end at"
accuracies = [0.84]
[settings]
"data.name" = "cifar10"
"defence.gaussian_noise.sigma" = 0.05
[matrix]
seed = [0, 1, 2]
[[method]]
name = "noise"
settings = { "surrogate.name" = "none" }
[[method]]
name = "kmeans_constant"
settings = { "surrogate.name" = "kmeans" }
matrix = { lambda = [4.0] }
[[method]]
name = "sound"
settings = { "surrogate.name" = "slot_mixture" }
matrix = { lambda = [0.1] }
"""
RUNS = {"noise": (0.86, 0.02), "kmeans_constant": (0.80, 0.03), "sound": (0.82, 0.05)}


def published(tmp_path: Path) -> dict[str, Any]:
    root = repository(tmp_path, MIXED)

    def figures(cell: Cell) -> tuple[float, float]:
        accuracy, mse = RUNS[cell.method]
        return accuracy, mse * (1 + cell.config.train.seed / 1000)

    fill(root, "main-cifar10", figures)
    publish(root)
    return summary(root)


def test_publish__the_share_of_the_run_without_a_surrogate_is_stored_and_shown(tmp_path: Path) -> None:
    """At 84 % sound is half of the way from 82 to 86 %, k-means two thirds of that from 80 to 86 %."""
    content = published(tmp_path)
    found = content["comparisons"]["cifar10"]["sound_vs_kmeans_best"]
    assert found["undefended_share"] == pytest.approx({"a": 1 / 2, "b": 2 / 3})
    assert [at["undefended_share"]["a"] for at in found["across"]] == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    sends = "is read as a mixture that sends {} % of the images through the run without a surrogate"
    assert {f"sound {sends.format(50)}", f"kmeans_best {sends.format(67)}"} <= set(found["cautions"])
    assert "| 50 / 67 | 3 |" in page(tmp_path, "main")
    assert "Beyond them: higher up" in (tmp_path / "README.md").read_text(), "84 % lies above what sound reaches"
    assert {"undefended_share", "own_until"} <= set(content["definitions"])


def test_publish__a_small_share_is_no_caution_and_a_method_without_surrogate_has_none(tmp_path: Path) -> None:
    root = repository(tmp_path, MIXED.replace("0.84", "0.825"))
    fill(root, "main-cifar10", lambda cell: RUNS[cell.method])
    publish(root)
    found = summary(root)["comparisons"]["cifar10"]["sound_vs_kmeans_best"]
    assert found["undefended_share"]["a"] == pytest.approx(1 / 8)
    assert not [text for text in found["cautions"] if text.startswith("sound is read as a mixture")]
    records = summary(root)["comparisons_by_study"]["main-cifar10"]["cifar10"].values()
    assert all(record["undefended_share"]["b"] == 0 for record in records if record["b"] == "noise")


def test_publish__a_difference_read_beyond_the_first_sides_own_runs_says_so(tmp_path: Path) -> None:
    found = published(tmp_path)["comparisons"]["cifar10"]["sound_vs_kmeans_best"]
    assert found["outcome"] == "better" and found["own_until"] == pytest.approx(0.82)
    assert verdict_across(found) == "better, beyond its own runs"


def test_publish__receipts_count_every_run_of_both_curves_the_ends_too(tmp_path: Path) -> None:
    root = repository(tmp_path, MIXED)
    fill(root, "main-cifar10", lambda cell: RUNS[cell.method])
    fill(root, "main-cifar10", lambda cell: RUNS[cell.method], lambda c: c.method == "noise", {"receipt_ok": False})
    publish(root)
    found = summary(root)["comparisons"]["cifar10"]["sound_vs_kmeans_best"]
    assert found["receipts"] == {"passed": 6, "runs": 9}
    assert "3 of 9 runs have no passing receipt: their MSE may be lower than measured" in found["cautions"]


@pytest.mark.parametrize(
    ("own_until", "ssim_at_85", "told"),
    [
        (0.90, 0.3, "better, from 80.0 to 85.0 %"),
        (0.84, 0.3, "better, from 80.0 to 82.0 %"),
        (0.90, 0.5, "better, from 80.0 to 82.0 %"),
        (0.82, 0.3, "better, from 80.0 to 82.0 %"),
        (None, 0.3, "better, beyond its own runs"),
    ],
)
def test_verdict_across__ends_where_own_runs_end_or_where_ssim_says_otherwise(
    own_until: float | None, ssim_at_85: float, told: str
) -> None:
    read = [(0.8, 0.3, "better"), (0.82, 0.3, "better"), (0.85, ssim_at_85, "better"), (0.9, 0.3, "undecided")]
    across = [{"accuracy": at, "outcome": said, "ssim_a": ssim, "ssim_b": 0.4} for at, ssim, said in read]
    assert verdict_across({**across[1], "across": across, "own_until": own_until, "at_least": False}) == told


def test_publish__an_envelope_is_one_curve(tmp_path: Path) -> None:
    """A member that reaches less far must not be read where a run of another beats it in both figures."""
    more = """
[[method]]
name = "kmeans_published"
settings = { "surrogate.name" = "kmeans" }
matrix = { lambda = [9.0] }
"""
    figures = {**RUNS, "kmeans_published": (0.78, 0.025), "sound": (0.79, 0.05)}
    root = repository(tmp_path, MIXED.replace("0.84", "0.79") + more)
    fill(root, "main-cifar10", lambda cell: figures[cell.method])
    publish(root)
    found = summary(root)["comparisons"]["cifar10"]["sound_vs_kmeans_best"]
    assert found["accuracy"] == found["overlap"][0] == pytest.approx(0.80), "not 79 %, where one member alone is read"
    assert found["mse_b"] == pytest.approx([0.03] * 3)
    assert set(found["best_b"].values()) == {"kmeans_constant"}
    assert found["methods"]["b"] == ["kmeans_constant", "kmeans_published"]


def test_publish__own_runs_that_a_mixture_beats_are_not_on_the_curve(tmp_path: Path) -> None:
    """The second setting has 84 % and less MSE than a half of each neighbour: the curve's own runs end at 82 %."""
    figures = {0.1: (0.82, 0.05), 0.2: (0.84, 0.03)}
    root = repository(tmp_path, MIXED.replace("lambda = [0.1]", "lambda = [0.1, 0.2]"))
    fill(root, "main-cifar10", lambda cell: figures.get(cell.lambd, RUNS[cell.method]))
    publish(root)
    assert summary(root)["comparisons"]["cifar10"]["sound_vs_kmeans_best"]["own_until"] == pytest.approx(0.82)
