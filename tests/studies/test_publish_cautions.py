"""What must not be overlooked beside a figure: runs that never learned, receipts of every run, edited programs."""

import json
from pathlib import Path

import pytest
from studies.publish import publish

from attention_cem.studies import Cell
from tests.studies.publishing import MAIN, figures, fill, page, repository, summary


def collapsed(cell: Cell) -> tuple[float, float]:
    """One run of sound answers at random, and so hides everything."""
    one = cell.method == "sound" and cell.lambd == 1.0 and cell.config.train.seed == 1
    return (0.1, 0.06) if one else figures(cell)


def test_publish__a_run_that_never_learned_is_named_and_still_counts(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10", collapsed)
    publish(root)
    found = summary(root)["comparisons"]["cifar10"]["sound_vs_noise"]
    assert found["seed_list"] == [0, 1, 2] and found["never_learned"] == 1
    # Nine runs of sound and nine of noise.
    assert "1 of 18 runs never learned (accuracy at chance)" in found["cautions"]
    assert summary(root)["comparisons"]["cifar10"]["kmeans_best_vs_noise"]["never_learned"] == 0
    marked = [line for line in page(root, "main").splitlines() if "(1 of 3 never learned)" in line]
    assert len(marked) == 1 and marked[0].startswith("| sound | ") and "never learned" in page(root, "main")


@pytest.mark.parametrize(("accuracy", "options", "never"), [(0.12, "", 1), (0.121, "", 0), (0.29, "synthetic", 1)])
def test_publish__chance_is_that_of_the_data_sets_own_classes(
    tmp_path: Path, accuracy: float, options: str, never: int
) -> None:
    """Ten classes of CIFAR-10; four of images the program draws, where the study says so."""
    named = '"data.name" = "cifar10"'
    drawn = '"data.name" = "synthetic"\n"data.options" = { num_classes = 4 }' if options else named
    root = repository(tmp_path, MAIN.replace(named, drawn))
    fill(root, "main-cifar10", lambda c: (accuracy, 0.06) if collapsed(c)[0] == 0.1 else figures(c))
    publish(root)
    (by_key,) = summary(root)["comparisons_by_study"]["main-cifar10"].values()
    assert by_key["sound_vs_noise"]["never_learned"] == never


def test_publish__a_commit_of_an_edited_program_says_so_in_the_list_of_studies(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10", more={"commit": "0123456789abcdef0123456789abcdef01234567+changes"})
    publish(root)
    row = next(line for line in page(root, "README").splitlines() if line.startswith("| main-cifar10 | "))
    assert "`012345678+changes`" in row


def test_publish__runs_that_shared_a_machine_are_not_compared_by_their_seconds(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    publish(root)
    assert "over noise" not in page(root, "cost") and "cost_ratio" not in json.dumps(summary(root)["comparisons"])
