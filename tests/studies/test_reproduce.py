import shutil
from pathlib import Path
from typing import Any

import pytest
from studies.publish_finished import AUGMENTED_BUDGETS
from studies.publish_reading import read_studies
from studies.publish_settings import read_settings
from studies.reproduce import Standing, chosen_studies, main, reproduce

from attention_cem.auditing.budgets import AUGMENTED, BUDGETS, named_budget
from attention_cem.studies import Cell, load_study, read_result
from attention_cem.studies.cell_run import CellPlace
from attention_cem.studies.results import write_result
from tests.attacks.helpers import challenge_for, identity_client, noise, small_data
from tests.studies.publishing import MAIN, figures, repository, result

SECOND = MAIN.replace("main-cifar10", "data-lfw158").replace('name" = "cifar10"', 'name" = "lfw158"')


def runner(cell: Cell, place: CellPlace) -> dict[str, Any]:
    """What the stored results say, with twice the MSE."""
    accuracy, mse = figures(cell)
    with (place.folder.parents[2] / "begun.txt").open("a") as log:
        log.write(f"{cell.id}\n")
    return result(place.study, cell, accuracy, 2 * mse)


def store(root: Path, name: str, count: int) -> list[str]:
    study = load_study(root / "studies" / f"{name}.toml")
    for cell in study.cells[:count]:
        write_result(root / "results" / "studies" / name / f"{cell.id}.json", result(name, cell, *figures(cell)))
    return [cell.id for cell in study.cells]


def begun(root: Path, folder: str) -> list[str]:
    return (root / "runs" / folder / "begun.txt").read_text().split()


def test_reproduce__runs_what_is_missing_and_stores_it(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    ids = store(root, "main-cifar10", 30)
    before = {file.name: file.read_bytes() for file in (root / "results/studies/main-cifar10").iterdir()}
    ended = reproduce(root, missing=True, runner=runner)
    assert ended == {"main-cifar10": Standing(36, 0, 36)}
    assert sorted(begun(root, "studies")) == sorted(ids[30:])
    stored = {file.name: file.read_bytes() for file in (root / "results/studies/main-cifar10").iterdir()}
    assert len(stored) == 36 and all(stored[name] == content for name, content in before.items())
    assert reproduce(root, missing=True, runner=runner) == ended and len(begun(root, "studies")) == 6


def test_reproduce__knows_which_budgets_have_augmented_images(tmp_path: Path) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data())
    has = [
        name for name in BUDGETS if any(each.endswith(AUGMENTED) for each, _ in named_budget(name, challenge).attacks)
    ]
    assert tuple(has) == AUGMENTED_BUDGETS


def test_reproduce__what_was_attacked_with_less_than_its_budget_has_by_now_is_run_again(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    ids = store(root, "main-cifar10", 36)
    old = root / "results" / "studies" / "main-cifar10" / f"{ids[3]}.json"
    plain = read_result(old)
    plain["attacks"] = {"inverter": plain["attacks"]["inverter"]}
    write_result(old, plain)
    write_result(root / "runs" / "studies" / "main-cifar10" / "results" / f"{ids[3]}.json", plain)
    assert reproduce(root, missing=True, runner=runner) == {"main-cifar10": Standing(36, 0, 36)}
    assert begun(root, "studies") == [ids[3]]
    assert (
        read_result(old)["mse"] == pytest.approx(2 * plain["mse"])
        and "inverter_augmented" in read_result(old)["attacks"]
    )
    aside = root / "runs" / "studies" / "main-cifar10" / "results" / f"{ids[3]}.standard.json"
    assert read_result(aside)["mse"] == plain["mse"], "nothing is lost"


def test_reproduce__the_first_seed_of_all_methods_comes_first(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    reproduce(root, missing=True, runner=runner)
    study = load_study(root / "studies" / "main-cifar10.toml")
    seeds = [study.cell(id).config.train.seed for id in begun(root, "studies")]
    assert seeds == [0] * 12 + [1] * 12 + [2] * 12


def test_reproduce__an_equal_run_of_another_study_is_not_run_again(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN, MAIN.replace("main-cifar10", "stacked-cifar10"))
    store(root, "main-cifar10", 30)
    assert reproduce(root, ["stacked-*"], missing=True, runner=runner) == {"stacked-cifar10": Standing(36, 0, 36)}
    assert len(begun(root, "studies")) == 6
    assert reproduce(root, ["main-*"], missing=True, runner=runner) == {"main-cifar10": Standing(36, 0, 36)}
    assert len(begun(root, "studies")) == 6
    main, stacked = read_studies(root, read_settings(root))
    assert [each.study for each in stacked.finished] == ["main-cifar10"] * 30 + ["stacked-cifar10"] * 6
    assert [each.study for each in main.finished] == [each.study for each in stacked.finished]
    assert {each.cell.id for each in stacked.finished} == {cell.id for cell in stacked.study.cells}


def test_reproduce__a_run_that_two_studies_miss_is_run_once(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN, MAIN.replace("main-cifar10", "stacked-cifar10"))
    store(root, "main-cifar10", 30)
    ended = reproduce(root, missing=True, runner=runner)
    assert ended == {name: Standing(36, 0, 36) for name in ("main-cifar10", "stacked-cifar10")}
    assert len(begun(root, "studies")) == 6
    assert not (root / "results/studies/stacked-cifar10").exists()


def test_reproduce__failed_cells_are_told_of_their_study(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN, SECOND)
    store(root, "main-cifar10", 35)

    def faces_fail(cell: Cell, place: CellPlace) -> dict[str, Any]:
        if cell.config.data.name == "lfw158" and cell.config.train.seed == 1:
            raise RuntimeError("out of memory")
        return runner(cell, place)

    ended = reproduce(root, missing=True, runner=faces_fail)
    assert ended == {"main-cifar10": Standing(36, 0, 36), "data-lfw158": Standing(24, 12, 36)}


def test_reproduce__an_equal_run_under_another_budget_is_no_equal_run(tmp_path: Path) -> None:
    other = MAIN.replace("main-cifar10", "stacked-cifar10").replace('budget = "standard"', 'budget = "quick"')
    root = repository(tmp_path, MAIN, other)
    assert other.count("quick") == 1
    store(root, "main-cifar10", 30)
    assert [len(each.finished) for each in read_studies(root, read_settings(root))] == [30, 0]


def test_reproduce__everything_anew_is_held_against_the_stored_results_and_leaves_them_alone(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    ids = store(root, "main-cifar10", 30)
    told: list[str] = []
    assert reproduce(root, runner=runner, tell=told.append) == {"main-cifar10": Standing(36, 0, 36)}
    assert sorted(begun(root, "reproduced")) == sorted(ids)
    assert "main-cifar10: noise: 9 cells, accuracy 0.00 points away, MSE 2.000 of the stored" in told
    assert "main-cifar10: sound: 3 cells, accuracy 0.00 points away, MSE 2.000 of the stored" in told
    stored = sorted((root / "results/studies/main-cifar10").iterdir())
    assert len(stored) == 30 and read_result(stored[0])["mse"] < 2


def test_reproduce__what_was_finished_before_it_was_stopped_is_stored(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)

    def stopped(cell: Cell, place: CellPlace) -> dict[str, Any]:
        if len(list((root / "runs/studies/main-cifar10/results").glob("*.json"))) == 5:
            raise KeyboardInterrupt
        return runner(cell, place)

    with pytest.raises(KeyboardInterrupt):
        reproduce(root, missing=True, runner=stopped)
    assert len(list((root / "results/studies/main-cifar10").iterdir())) == 5
    assert reproduce(root, missing=True, runner=runner) == {"main-cifar10": Standing(36, 0, 36)}
    assert len(begun(root, "studies")) == 36


def test_reproduce__begins_no_study_after_the_time_given(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN, SECOND)
    store(root, "data-lfw158", 2)
    ended = reproduce(root, missing=True, seconds=1e-9, runner=runner)
    assert ended == {"main-cifar10": Standing(0, 0, 36), "data-lfw158": Standing(2, 0, 36)}


def test_reproduce__only_the_methods_named(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    of_method = [cell.id for cell in load_study(root / "studies/main-cifar10.toml").cells if cell.method == "noise"]
    ended = reproduce(root, missing=True, only=["noise"], runner=runner)
    assert ended == {"main-cifar10": Standing(len(of_method), 0, len(of_method))}
    assert sorted(begun(root, "studies")) == sorted(of_method)
    assert sorted(file.stem for file in (root / "results/studies/main-cifar10").iterdir()) == sorted(of_method)
    assert reproduce(root, missing=True, only=["noise"], runner=runner) == ended
    with pytest.raises(ValueError, match="none of these studies has a method 'noize'; there are: .*noise"):
        reproduce(root, missing=True, only=["noize"], runner=runner)


def test_chosen_studies__come_in_the_order_of_the_patterns_else_of_the_pages(tmp_path: Path) -> None:
    root = repository(tmp_path, SECOND, MAIN)
    assert [file.stem for file in chosen_studies(root, [])] == ["main-cifar10", "data-lfw158"]
    assert [file.stem for file in chosen_studies(root, ["data-*"])] == ["data-lfw158"]
    assert [file.stem for file in chosen_studies(root, ["data-*", "*"])] == ["data-lfw158", "main-cifar10"]
    with pytest.raises(ValueError, match="no study of the results pages is called 'dta-x'; there are: main-cifar10"):
        chosen_studies(root, ["main-*", "dta-x"])


def test_main__an_unknown_study_is_named_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing-like-this"]) == 2
    assert "reproduce: no study of the results pages is called 'nothing-like-this'" in capsys.readouterr().err


def test_reproduce__a_cell_attacked_with_another_budget_is_run_again_and_its_result_kept_aside(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    assert reproduce(root, missing=True, runner=runner) == {"main-cifar10": Standing(36, 0, 36)}
    file = root / "studies" / "main-cifar10.toml"
    file.write_text(MAIN.replace('budget = "standard"', 'budget = "thorough"'))
    shutil.rmtree(root / "results/studies/main-cifar10")

    def thorough(cell: Cell, place: CellPlace) -> dict[str, Any]:
        return {**runner(cell, place), "budget": "thorough"}

    assert reproduce(root, missing=True, runner=thorough) == {"main-cifar10": Standing(36, 0, 36)}
    (stored,) = read_studies(root, read_settings(root))
    assert len(stored.finished) == 36 and not stored.missing
    assert len(list((root / "runs/studies/main-cifar10/results").glob("*.standard.json"))) == 36
