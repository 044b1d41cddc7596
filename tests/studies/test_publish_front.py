"""Sentences of the front page and the index that depend on the figures: they say what these bear and nothing else."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from studies.publish import publish
from studies.publish_questions import QUESTIONS, USUAL
from studies.publish_settings import Stack, read_settings

from attention_cem.studies import Cell
from tests.studies.publishing import MAIN, ROOT, figures, fill, page, repository

BAR = "\\|"
SCALE = "vgg11_bn, all images, 60 epochs, 3 seeds, standard audit"
SLOTS = f"""{MAIN}
[[method]]
name = "slots"
settings = {{ "surrogate.name" = "slot_mixture", "surrogate.arguments.num_slots" = 3 }}
matrix = {{ lambda = [0.1, 0.3, 1.0] }}
"""


def front(root: Path) -> str:
    publish(root)
    return (root / "README.md").read_text(encoding="utf-8")


def answer_to(key: str, text: str, *, chinese: bool = False) -> list[str]:
    """Question, ratio, interval, accuracy, verdict and evidence as a page has them; empty where it does not ask."""
    question = next(each for each in QUESTIONS if each.key == key and not each.data)
    begins = f"| {(question.words_zh if chinese else question.words).replace('|', BAR)} |"
    row = next((split_row(line) for line in text.splitlines() if line.startswith(begins)), [])
    return [row[0], *re.split(r" ?[(（]", row[1].rstrip(")）")), *row[3:]] if row else []


def methods_of(key: str, root: Path) -> str:
    """Which methods the index says that the answer is of."""
    question = next(each for each in QUESTIONS if each.key == key and not each.data)
    begins = f"| {question.words.replace('|', BAR)}<br>"
    return next(split_row(line)[1] for line in page(root, "README").splitlines() if line.startswith(begins))


def split_row(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


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
        (1.0, ["1.00×", "no difference shown"]),
        (0.5, ["**0.50×**", "worse"]),
        (1.5, ["**1.50×**", "better"]),
    ],
)
def test_front__says_what_attention_gains_as_the_figures_have_it(tmp_path: Path, level: float, told: list[str]) -> None:
    root = repository(tmp_path, SLOTS)
    fill(root, "main-cifar10", lambda cell: with_slots(cell, level))
    answer = answer_to("slots_vs_kmeans_best", front(root))
    assert answer[1] == told[0] and answer[4].startswith(told[1])
    assert methods_of("slots_vs_kmeans_best", root) == "`slots` / `kmeans_best`"


@pytest.mark.parametrize(("level", "figure", "told"), [(1.5, "0.99", "no difference shown"), (3.0, "1.98", "better")])
def test_front__says_what_attention_adds_to_sound(tmp_path: Path, level: float, figure: str, told: str) -> None:
    beside = SLOTS.split("[[method]]")[-1].replace('"slots"', '"sound_slots"').replace("= 3 }", "= 4 }")
    root = repository(tmp_path, f"{SLOTS}[[method]]{beside}")
    fill(root, "main-cifar10", lambda cell: with_slots(cell, level))
    assert answer_to("sound_slots_vs_sound", front(root)) == [], "asked on the index alone"
    answer = answer_to("sound_slots_vs_sound", page(root, "README"))
    assert answer[1].strip("*") == f"{figure}×" and answer[4].startswith(told)


def test_front__says_what_an_attacker_gains_by_attention(tmp_path: Path) -> None:
    beside = SLOTS.split("[[method]]")[-1].replace('"slots"', '"attention"').replace("= 3 }", "= 4 }")
    root = repository(tmp_path, f"{SLOTS}[[method]]{beside}")
    fill(root, "main-cifar10", lambda cell: with_slots(cell, 1.5))
    publish(root)
    answer = answer_to("attention_vs_kmeans_best", page(root, "README"))
    assert answer[1] == "**1.50×**" and answer[4].startswith("better")


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
    alike = answer_to("sound_mirrored_vs_kmeans_best_mirrored", text)
    assert alike[1] == "**3.03×**" and alike[4].startswith("better")
    named = methods_of("sound_mirrored_vs_kmeans_best_mirrored", root)
    assert named == "`sound_mirrored` / `kmeans_constant_mirrored`", "the one form there is, by its own name"
    assert answer_to("sound_vs_kmeans_best", text)[1] == "**1.51×**"
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert split_row(rows[2])[0] == alike[0]
    made = json.loads((root / "results/summary.json").read_text())["comparisons"]["cifar10"]
    assert made["sound_mirrored_vs_noise_mirrored"]["mse_gain"] == pytest.approx(6.06, abs=0.01)


def test_front__claims_nothing_of_attention_without_results_or_with_few_seeds(tmp_path: Path) -> None:
    root = repository(tmp_path, SLOTS)
    fill(root, "main-cifar10", keep=lambda cell: cell.method != "slots")
    text = front(root)
    assert answer_to("slots_vs_kmeans_best", text) == [] and answer_to("sound_vs_kmeans_best", text)
    fill(root, "main-cifar10", lambda c: with_slots(c, 1.5), lambda c: c.method == "slots" and c.config.train.seed < 2)
    answer = answer_to("slots_vs_kmeans_best", front(root))
    assert answer[1] == "1.48×" and answer[4].startswith("undecided") and answer[5] == "`main-cifar10`: 2 seeds"
    assert "Fewer than 3 seeds are a lead and no claim." in front(root)


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
    assert "3 of 3 runs of `sound` (`main-cifar10`) never learned" in text
    assert "什么也没学到" in (root / "README.zh.md").read_text(encoding="utf-8")


def test_front__shows_only_what_is_asked_for_and_says_at_which_size(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN.replace("[settings]", 'baseline = "kmeans_constant"\n[settings]', 1))
    fill(root, "main-cifar10")
    text = front(root)
    asked = json.loads((root / "results/summary.json").read_text())["comparisons"]["cifar10"]
    best = asked["sound_vs_kmeans_best"]
    answer = answer_to("sound_vs_kmeans_best", text)
    assert answer[1] == f"**{best['mse_gain']:.2f}×**"
    assert answer[5] == "`main-cifar10`" and f"{USUAL[False].format(SCALE)}\n" in text
    whole = f"| `main-cifar10`: {SCALE}; λ 0.1 to 1 against λ 4 to 64 |"
    assert whole in page(root, "README") and whole not in text
    ends = [(read[0], read[-1]) for read in (best["read_from"][side] for side in "ab")]
    assert ends == [("λ 0.1", "λ 1"), ("λ 4", "λ 64")]
    shown = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(shown) == 2 + sum(each.key in asked for each in QUESTIONS if each.front and not each.data)
    assert "sound_vs_kmeans_constant" in asked and "kmeans_constant" not in text.split("![")[0]


def test_front__asks_nothing_that_is_not_compared() -> None:
    """A misspelt key would leave a question out without a word."""
    settings = read_settings(ROOT)
    stacks = [(stack.prefix, stack.suffix) for stack in (*settings.stacks, Stack("", "", ""))]
    made = {f"{p}{a}{s}_vs_{p}{b}{s}" for a, b in settings.comparisons for p, s in stacks}
    assert {question.key for question in QUESTIONS} <= made
    assert {question.data for question in QUESTIONS} <= {"", *settings.data}


def test_front__is_in_one_language_each(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    english, chinese = front(root), (root / "README.zh.md").read_text(encoding="utf-8")
    assert not re.search(r"[\u4e00-\u9fff]", english)
    same = [answer_to("sound_vs_kmeans_best", english), answer_to("sound_vs_kmeans_best", chinese, chinese=True)]
    assert same[0][1] == same[1][1] and same[0][3] == same[1][3] and same[1][4].startswith("更好")
    assert same[1][5] == "`main-cifar10`"
    assert "依据中未注明者为：vgg11_bn，全部图像，60 轮，3 个种子，standard 审计。" in chinese
    assert english.count("\n- **") == chinese.count("\n- **") and english.count("![") == chinese.count("![")


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


def test_figure__panels_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    """Black edges beside mirrored ones were called "no base defence", which both are."""
    mirrored = """
[[method]]
name = "noise_mirrored"
settings = { "surrogate.name" = "none", "data.edges" = "mirrored" }
matrix = { sigma = [0.05] }
"""
    root = repository(tmp_path, f"{MAIN}{mirrored}")
    fill(root, "main-cifar10", lambda cell: (0.9, 0.01) if cell.method == "noise_mirrored" else figures(cell))
    publish(root)
    picture = (root / "results/figures/main-cifar10.svg").read_text()
    assert "black edges" in picture and "mirrored edges" in picture and "no base defence" not in picture


def test_front__a_study_of_some_and_of_all_images_says_both(tmp_path: Path) -> None:
    limited = """
[[method]]
name = "noise_few"
settings = { "surrogate.name" = "none", "data.limit" = 6000 }
matrix = { sigma = [0.05] }
"""
    root = repository(tmp_path, f"{MAIN}{limited}")
    fill(root, "main-cifar10", lambda cell: (0.9, 0.01) if cell.method == "noise_few" else figures(cell))
    publish(root)
    assert "vgg11_bn, all/6,000 images, 60 epochs" in page(root, "main")
    assert "vgg11_bn，全部/6,000 张图像，60 轮" in (root / "README.zh.md").read_text(encoding="utf-8")
