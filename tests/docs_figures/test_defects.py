"""The page on defects: complete studies, tables made from them, and outcomes that are what the page says."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from attention_cem.studies import load_study
from docs.figures.defects import CHINESE, ROOT, STUDIES, results_of, table
from docs.figures.drawing import ASSETS
from docs.figures.worked_example import PRINTED, computed
from docs.figures.worked_example import table as worked_table


def mean(study: str, method: str, figure: str) -> float:
    results: list[dict[str, Any]] = results_of(load_study(ROOT / "studies" / f"{study}.toml"))
    return fmean(result[figure] for result in results if result["method"] == method)


@pytest.mark.parametrize("name", STUDIES)
def test_studies__are_complete_with_three_seeds_and_a_known_program(name: str) -> None:
    study = load_study(ROOT / "studies" / f"{name}.toml")
    results = results_of(study)
    assert {result["cell"] for result in results} == {cell.id for cell in study.cells}
    assert {result["seed"] for result in results} == {0, 1, 2}
    assert all(result["commit"] and not result["commit"].endswith("+changes") for result in results)
    assert {cell.method for cell in study.cells} <= set(CHINESE)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", STUDIES)
def test_tables__are_made_from_the_stored_results(name: str, language: str) -> None:
    assert (ASSETS / f"{name}.{language}.md").read_text(encoding="utf-8") == table(name, language)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_worked_example__table_is_computed(language: str) -> None:
    assert (ASSETS / f"worked_example.{language}.md").read_text(encoding="utf-8") == worked_table(language)


def test_worked_example__first_class_is_roughly_as_printed_and_the_second_is_not() -> None:
    exact = computed()
    assert exact["v, y = 1"][0] == pytest.approx(float(PRINTED["v, y = 1"]), rel=0.1)
    assert exact["v, y = 2"][0] > 1.3 * float(PRINTED["v, y = 2"])
    assert exact["rob_loss"][0] > 5 * float(PRINTED["rob_loss"])


def test_shut_off__documents_train_without_a_defence() -> None:
    plain = mean("defect-shut-off", "noise only", "mse")
    assert mean("defect-shut-off", "slots (documents)", "shutoff_share") == 1
    for method in ("slots (documents)", "slots, shut-off removed"):
        assert mean("defect-shut-off", method, "mse") == pytest.approx(plain, rel=0.05)
    assert mean("defect-shut-off", "slot mixture", "mse") > 1.3 * plain


def test_pooling__documents_defend_a_little_and_not_more_than_the_adversary() -> None:
    plain, adversary = (mean("defect-pooling", method, "mse") for method in ("noise only", "pooling as adversary"))
    documents = ("pooling per dimension (documents)", "pooling, trace (documents)")
    assert all(1.2 * plain < mean("defect-pooling", method, "mse") < adversary for method in documents)
    assert adversary > 1.3 * plain


def test_few_samples__only_the_memory_still_defends() -> None:
    plain = mean("defect-few-samples", "noise only", "mse")
    for method in ("slots, shut-off removed", "pooling per dimension (documents)"):
        assert mean("defect-few-samples", method, "mse") < 1.1 * plain
    assert mean("defect-few-samples", "slot mixture", "mse") > 1.3 * plain


@pytest.mark.parametrize("page", ["docs/en/wrong.md", "docs/zh/wrong.md"])
def test_page__includes_every_table(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    language = Path(page).parts[1]
    for name in (*STUDIES, "worked_example"):
        assert f"{{include}} ../assets/understand/{name}.{language}.md" in text
