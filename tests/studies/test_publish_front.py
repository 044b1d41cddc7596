"""Sentences of the front page and the index that depend on the figures: they say what these bear and nothing else."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from studies.publish import publish
from studies.publish_settings import read_settings

from attention_cem.studies import Cell
from tests.studies.publishing import MAIN, figures, fill, page, repository

SLOTS = f"""{MAIN}
[[method]]
name = "slots"
settings = {{ "surrogate.name" = "slot_mixture", "surrogate.arguments.num_slots" = 3 }}
matrix = {{ lambda = [0.1, 0.3, 1.0] }}
"""


def front(root: Path) -> str:
    publish(root)
    return (root / "README.md").read_text(encoding="utf-8")


def with_slots(cell: Cell, level: float) -> tuple[float, float]:
    """As k-means with a constant λ, which is the best, times a level; not the same in every seed."""
    if cell.method not in ("slots", "sound_slots", "attention"):
        return figures(cell)
    seed = cell.config.train.seed
    accuracy = 0.89 - 0.02 * {0.1: 0, 0.3: 1, 1.0: 2}[cell.lambd] + 0.001 * seed
    return accuracy, 0.02 * level * (1 + 0.02 * (seed - 1)) * (1 + (0.87 - accuracy) / 0.04)


@pytest.mark.parametrize(
    ("level", "told"),
    [
        (1.0, "shows no gain over k-means CEM at its best (1.00× at equal accuracy on cifar10, no difference shown)"),
        (0.5, "shows no gain over k-means CEM at its best (0.50× at equal accuracy on cifar10, worse)"),
        (1.5, "shows a gain over k-means CEM at its best (1.50× at equal accuracy on cifar10, better)"),
    ],
)
def test_front__says_what_attention_gains_as_the_figures_have_it(tmp_path: Path, level: float, told: str) -> None:
    root = repository(tmp_path, SLOTS)
    fill(root, "main-cifar10", lambda cell: with_slots(cell, level))
    assert f"`sound` contains no attention; attention (`slots`) {told}" in front(root)


@pytest.mark.parametrize(
    ("level", "figure", "told", "chinese"),
    [(1.5, "0.99", "no difference shown", "未见差别"), (3.0, "1.98", "better", "更好")],
)
def test_front__says_what_attention_adds_to_sound(
    tmp_path: Path, level: float, figure: str, told: str, chinese: str
) -> None:
    beside = SLOTS.split("[[method]]")[-1].replace('"slots"', '"sound_slots"').replace("= 3 }", "= 4 }")
    root = repository(tmp_path, f"{SLOTS}[[method]]{beside}")
    fill(root, "main-cifar10", lambda cell: with_slots(cell, level))
    assert f"; `sound` with it has {figure}× the MSE of `sound` ({told}).\n" in front(root)
    assert re.search(
        rf"`slots` 与 `sound` 并用，为单用 `sound` 的 {figure} 倍（[0-9.]+ 至 [0-9.]+，{chinese}", front(root)
    )


def test_front__says_what_an_attacker_gains_by_attention(tmp_path: Path) -> None:
    beside = SLOTS.split("[[method]]")[-1].replace('"slots"', '"attention"').replace("= 3 }", "= 4 }")
    root = repository(tmp_path, f"{SLOTS}[[method]]{beside}")
    fill(root, "main-cifar10", lambda cell: with_slots(cell, 1.5))
    told = "attends to slots: MSE on `attention` 1.50× that of k-means CEM at its best (better)."
    assert told in front(root) and re.search("`attention`（闭式攻击者用注意力读槽）1.50 倍（.*，更好", front(root))


MIRRORED = f"""{MAIN.replace('cifar10"', 'mirrored-cifar10"', 1)}
[[method]]
name = "noise_mirrored"
settings = {{ "surrogate.name" = "none", "data.edges" = "mirrored" }}
matrix = {{ sigma = [0.05, 0.1, 0.2] }}
[[method]]
name = "kmeans_constant_mirrored"
settings = {{ "surrogate.name" = "kmeans", "data.edges" = "mirrored" }}
matrix = {{ lambda = [4.0, 16.0, 64.0] }}
[[method]]
name = "sound_mirrored"
settings = {{ "surrogate.name" = "slot_mixture", "data.edges" = "mirrored" }}
matrix = {{ lambda = [0.1, 0.3, 1.0] }}
"""


def test_front__begins_with_methods_that_are_trained_alike(tmp_path: Path) -> None:
    """A curve of a method with mirrored edges ends at noise with mirrored edges, and k-means CEM has them too."""
    root = repository(tmp_path, MIRRORED)

    def level(cell: Cell) -> tuple[float, float]:
        plain = replace(cell, method=cell.method.removesuffix("_mirrored"))
        accuracy, mse = figures(plain)
        return accuracy, mse * (2 if cell.method == "sound_mirrored" else 1)

    fill(root, "main-mirrored-cifar10", level)
    text = front(root)
    answer = "the attack's MSE on `sound_mirrored`, the recipe of the preset, is 3.03× that of "
    only = "`kmeans_constant_mirrored`, the one form of k-means CEM trained alike ("
    assert f"{answer}{only}" in text and "With black edges, as published, that on `sound` is 1.51×" in text
    rows = [line for line in text.splitlines() if line.startswith("| `") and " against `" in line]
    assert rows[0].startswith("| `sound_mirrored` against `kmeans_best_mirrored` |")
    assert re.search("`sound_mirrored`（预设的做法，不含注意力，双方都用镜像边缘）3.03 倍（.*，更好", text)
    made = json.loads((root / "results/summary.json").read_text())["comparisons"]["cifar10"]
    assert made["sound_mirrored_vs_noise_mirrored"]["mse_gain"] == pytest.approx(6.06, abs=0.01)


def test_front__claims_nothing_of_attention_without_results_or_with_few_seeds(tmp_path: Path) -> None:
    root = repository(tmp_path, SLOTS)
    fill(root, "main-cifar10", keep=lambda cell: cell.method != "slots")
    text = front(root)
    assert "`sound` contains no attention.\n" in text and "attention (`slots`)" not in text
    fill(root, "main-cifar10", lambda c: with_slots(c, 1.5), lambda c: c.method == "slots" and c.config.train.seed < 2)
    assert "whether attention (`slots`) gains over k-means CEM at its best is undecided" in front(root)


def test_front__names_runs_that_never_learned_also_those_in_no_comparison(tmp_path: Path) -> None:
    root = repository(tmp_path, SLOTS.replace('name = "slots"', 'name = "another"'))
    fill(root, "main-cifar10", keep=lambda cell: cell.method != "another")
    assert "never learned" not in front(root)
    fill(root, "main-cifar10", lambda cell: (0.1, 0.06), lambda c: (c.method, c.config.train.seed) == ("another", 1))
    told = "1 of 1 runs of `another` (`main-cifar10`) never learned: accuracy at chance."
    assert front(root).count(told) == 3


def test_index__counts_results_that_do_not_say_from_which_epoch_they_are(tmp_path: Path) -> None:
    """Of the twelve with seed 0, three are of a method that prunes."""
    slots = '"surrogate.name" = "slot_mixture"'
    root = repository(tmp_path, MAIN.replace(slots, f'{slots}, "defence.channel_pruning.share" = 0.3'))
    fill(root, "main-cifar10", more={"best_epoch": 7})
    publish(root)
    assert "do not say from which epoch" not in page(root, "README")
    fill(root, "main-cifar10", keep=lambda cell: cell.config.train.seed == 0)
    publish(root)
    assert "12 of 36 results in use are older and do not say" in page(root, "README")
    assert "0 of them have the closed-form attacker, 3 pruning without it" in page(root, "README")


def test_front__a_target_of_which_something_was_named_afterwards_says_so(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    assert "1 are met (0 of them by attacks that prove nothing yet, 1 by a recipe, a study or a mode" in front(root)
    assert "; the recipe was named when the figures were known |" in page(root, "README")
    settings = root / "results" / "comparisons.toml"
    settings.write_text(settings.read_text().replace('named_afterwards = "the recipe"\n', ""))
    assert "1 are met (0 of them by attacks that prove nothing yet, 0 by a recipe, a study or a mode" in front(root)


def test_front__a_run_whose_training_said_so_never_learned_whatever_its_accuracy(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    said = {"warnings": ["training: nothing is learned: balanced accuracy 10.0 % after 3 epochs"]}
    fill(root, "main-cifar10", keep=lambda c: c.method == "noise" and c.config.train.seed == 2, more=said)
    assert "1 of 3 runs of `noise` (`main-cifar10`) never learned" in front(root)


def test_front__without_a_comparison_says_so_and_names_the_runs_at_chance(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    assert "The studies are not run yet" in front(root)
    fill(root, "main-cifar10", lambda cell: (0.1, 0.06), lambda cell: cell.method == "sound")
    text = front(root)
    assert "No comparison that is asked for can be made on cifar10 yet" in text and "not run yet" not in text
    assert "3 of 3 runs of `sound` (`main-cifar10`) never learned" in text and "什么也没学到" in text


def test_front__answers_before_the_table_and_shows_only_what_is_asked_for(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN.replace("[settings]", 'baseline = "kmeans_constant"\n[settings]', 1))
    fill(root, "main-cifar10")
    text = front(root)
    asked = json.loads((root / "results/summary.json").read_text())["comparisons"]["cifar10"]
    best = asked["sound_vs_kmeans_best"]
    answer = f"the attack's MSE on `sound` is {best['mse_gain']:.2f}× that of k-means CEM at its best"
    assert 0 < text.index(answer) < text.index("| comparison |")
    declared = {f"| `{a}` against `{b}` " for a, b in read_settings(root).comparisons}
    shown = [line for line in text.splitlines() if " against `" in line and line.startswith("| `")]
    assert shown and all(any(line.startswith(pair) for pair in declared) for line in shown)
    assert "sound_vs_kmeans_constant" in asked and "| `sound` against `kmeans_constant`" not in text


def test_figure__names_runs_at_chance_and_does_not_draw_them(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    picture = root / "results/figures/main-cifar10.svg"
    publish(root)
    assert "at chance" not in picture.read_text()
    fill(root, "main-cifar10", lambda cell: (0.1, 0.06), lambda c: c.method == "sound" and c.config.train.seed == 1)
    publish(root)
    text = picture.read_text()
    assert "sound (3 seeds; 3 runs at chance, not shown)" in text
    ticks = [int(tick) for tick in re.findall(r">(\d\d)(?:\.\d)?</text>", text)]
    assert "noise (3 seeds)" in text and ticks and min(ticks) > 80, "the axis does not reach down to chance"
