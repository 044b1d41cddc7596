import json
from pathlib import Path

import pytest
from studies.publish import publish
from studies.publish_stamps import AUGMENTED_FIGURES, stale_files

from attention_cem.studies import Cell, load_study
from tests.studies.publishing import MAIN, STACKED, figures, fill, page, repository, summary

SHORT = MAIN.replace("main-cifar10", "main-short-cifar10").replace("= 60", "= 30")


def _weak(cell: Cell) -> tuple[float, float]:
    accuracy, mse = figures(cell)
    return accuracy, mse / (3 if cell.method == "sound" else 1)


@pytest.mark.parametrize(
    ("mse", "budget", "receipts", "seeds", "met", "why"),
    [
        (0.036, "thorough", True, 3, True, "0.0360 at 90.00 %"),
        (0.034, "thorough", True, 3, False, "0.0340 at 90.00 %"),
        (0.034, "standard", True, 3, False, "0.0340 at 90.00 %"),
        (0.036, "standard", True, 3, None, "attacked with budget standard, not thorough"),
        (0.036, "thorough", False, 3, None, "3 without a passing receipt"),
        (0.036, "thorough", True, 2, None, "a target is decided by 3 seeds or more"),
    ],
)
def test_publish__the_worst_case_target_asks_for_thorough_attacks_with_receipts(
    tmp_path: Path, mse: float, budget: str, receipts: bool, seeds: int, met: bool | None, why: str
) -> None:
    study = STACKED.replace('budget = "thorough"', f'budget = "{budget}"')
    root = repository(tmp_path, study.replace("seed = [0, 1]", f"seed = {list(range(seeds))}"))
    more = {"budget": budget, "receipt_ok": receipts}
    fill(root, "stacked-cifar10", make=lambda cell: (0.9, mse), more=more)
    publish(root)
    target = next(each for each in summary(root)["targets"] if "ARL" in each["name"])
    assert target["met"] is met and why in target["why"]


def test_publish__of_one_configuration_the_hardest_attacks_count_though_they_find_more(tmp_path: Path) -> None:
    """With the highest MSE chosen, what screening had not found would have stood for what a standard audit found."""
    screened = STACKED.replace('budget = "thorough"', 'budget = "screening"').replace("[0, 1]", "[0, 1, 2]")
    again = screened.replace('"screening"', '"standard"').replace("stacked-cifar10", "finalists-cifar10")
    root = repository(tmp_path, screened, again)
    fill(root, "stacked-cifar10", make=lambda cell: (0.9, 0.041), more={"budget": "screening", "receipt_ok": False})
    publish(root)
    assert next(each for each in summary(root)["targets"] if "ARL" in each["name"])["figure"] == pytest.approx(0.041)
    fill(root, "finalists-cifar10", make=lambda cell: (0.9, 0.037), more={"budget": "standard"})
    publish(root)
    target = next(each for each in summary(root)["targets"] if "ARL" in each["name"])
    assert target["figure"] == pytest.approx(0.037) and target["met"] is None
    assert "study finalists-cifar10; attacked with budget standard, not thorough" in target["why"]


def test_publish__a_target_tells_what_the_recipe_before_reached(tmp_path: Path) -> None:
    def with_one_at_chance(cell: Cell) -> tuple[float, float]:
        if cell.method != "sound_abrupt":
            return figures(cell)
        level = 1.0 if cell.config.train.seed == 1 else 4.0
        accuracy = 0.1 if level == 1.0 and cell.lambd == 1.0 else 0.89 - 0.02 * [0.1, 0.3, 1.0].index(cell.lambd)
        return accuracy, 0.01 * level

    old = MAIN.replace('name = "sound"', 'name = "sound_abrupt"')
    root = repository(tmp_path, old)
    fill(
        root,
        "main-cifar10",
        with_one_at_chance,
    )
    publish(root)
    first = summary(root)["targets"][0]
    assert first["met"] is None and first["missed_before"] is True
    assert "with `sound_abrupt` in main-cifar10, which does not decide: " in first["why"] and ", missed" in first["why"]
    assert "of its runs never learned" in first["why"] and "the recipe was named when the figures" in first["why"]
    assert "of them missed with an earlier recipe)" in (root / "README.md").read_text()


@pytest.mark.parametrize(
    ("budget", "passing", "told"),
    [("screening", 0, "yes, by screening"), ("thorough", 30, "yes, not every receipt passes"), ("thorough", 36, "yes")],
)
def test_publish__a_goal_is_met_by_screening_only_where_screening_was_the_attack(
    tmp_path: Path, budget: str, passing: int, told: str
) -> None:
    root = repository(tmp_path, MAIN.replace('budget = "standard"', f'budget = "{budget}"'))
    fill(root, "main-cifar10", more={"budget": budget, "receipt_ok": False})
    first = [cell.id for cell in load_study(root / "studies/main-cifar10.toml").cells][:passing]
    fill(root, "main-cifar10", keep=lambda c: c.id in first, more={"budget": budget, "receipt_ok": True})
    publish(root)
    assert f"| MSE ≥ 1.5×, interval above 1.25 | 2.02 | {told} |" in (root / "results/README.md").read_text()


def measure(root: Path, name: str, mode: str, seconds: dict[str, float], batches: tuple[int, ...] = (128,)) -> None:
    """Store a measurement of trainings that ran alone; ninefold at batch 512."""
    rows = [
        {"method": method, "mode": mode, "batch": batch, "classes": 10, "images_per_s": 45_000 / s, "epoch_s": s}
        for batch in batches
        for method, s in ((method, s if batch == 128 else 9 * s) for method, s in seconds.items())
    ]
    content = {"machine": {"gpu": "A GPU", "torch": "2.11"}, "commit": name * 40, "images": 50_000, "rows": rows}
    (root / "results" / "benchmarks").mkdir(exist_ok=True)
    (root / "results" / "benchmarks" / f"throughput-{name}.json").write_text(json.dumps(content))


def test_publish__cost_compares_only_runs_that_were_alone(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    fill(root, "main-cifar10")
    publish(root)
    assert summary(root)["cost"] == {"settings": []} and "Not measured yet" in page(root, "cost")
    # No compiled step was measured: the first setting counts.
    measure(root, "a", "graph", {"none": 1.0, "k-means": 1.5, "sound": 1.08}, batches=(128, 512))
    publish(root)
    over_none, over_kmeans = summary(root)["targets"][-2:]
    assert over_none["figure"] == pytest.approx(1.08) and over_none["met"] is True
    assert over_kmeans["figure"] == pytest.approx(0.72) and over_kmeans["met"] is True
    assert "| 512 | 10 | graph | sound | 9.720 | 1.08× | 4,630 |" in page(root, "cost")
    assert "How far they scatter" not in page(root, "cost")


def test_publish__cost_is_decided_by_the_compiled_step_and_tells_every_other_way(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    measure(root, "a", "graph", {"none": 1.0, "k-means": 1.5, "sound": 1.3})
    measure(root, "b", "compiled", {"none": 2.0, "k-means": 1.6, "sound": 2.1})
    publish(root)
    over_none, over_kmeans = summary(root)["targets"][-2:]
    assert (over_none["figure"], over_none["met"]) == (pytest.approx(1.05), True)
    assert "compiled: 1.050×" in over_none["why"] and "graph: 1.300×" in over_none["why"]
    assert "throughput-a.json" in over_none["why"] and "throughput-b.json" in over_none["why"]
    assert (over_kmeans["figure"], over_kmeans["met"]) == (pytest.approx(2.1 / 1.6), False)
    fill(root, "main-cifar10")
    publish(root)
    told = "An epoch of training with `sound` takes 1.05× that of no surrogate, 1.31× that of k-means CEM (compiled); ["
    assert told in (root / "README.md").read_text()
    lines = [line for line in page(root, "cost").splitlines() if "`throughput-" in line]
    assert len(lines) == 6 and sum("`throughput-b.json` `bbbbbbbbb`" in line for line in lines) == 3
    assert "How far they scatter: k-means (compiled, batch 128) does more than `none`" in page(root, "cost")


def test_publish__cost_of_two_machines_is_never_divided(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    measure(root, "a", "compiled", {"none": 1.0})
    measure(root, "b", "compiled", {"sound": 0.5})
    publish(root)
    over_none = summary(root)["targets"][-2]
    assert over_none["figure"] is None and "no measurement of sound and none" in over_none["why"]


@pytest.mark.parametrize(("mse", "met"), [(0.03, True), (0.013, None)])
def test_publish__a_lower_bound_meets_a_target_or_leaves_it_open(tmp_path: Path, mse: float, met: bool | None) -> None:
    """Sound is more accurate than k-means CEM ever is: at least so many times its MSE, which may be too few to tell."""
    root = repository(tmp_path, MAIN)

    def made(cell: Cell) -> tuple[float, float]:
        if cell.method == "sound":
            return 0.95, mse * (1 + cell.config.train.seed / 1000)
        accuracy = 0.80 + 0.01 * (cell.sigma or 4.0 / (cell.lambd or 4.0))
        return accuracy, 0.01 + (0.82 - accuracy) / 100

    fill(root, "main-cifar10", make=made)
    publish(root)
    target = next(each for each in summary(root)["targets"] if "as published" in each["name"])
    assert target["met"] is met and "at least" in target["why"]
    assert "≥ " in page(root, "main") and "the ratio is a lower bound" in page(root, "main")


@pytest.mark.parametrize(("study", "speaks"), [("main-cifar10", "main-cifar10"), ("main-short-cifar10", "main-short")])
def test_publish__of_the_study_that_decides_and_the_one_preferred_the_lower_figure_speaks(
    tmp_path: Path, study: str, speaks: str
) -> None:
    """In one of both sound has a third of its MSE."""
    root = repository(tmp_path, MAIN, SHORT)
    for name in ("main-cifar10", "main-short-cifar10"):
        fill(root, name, _weak if name == study else figures)
    publish(root)
    assert summary(root)["comparisons"]["cifar10"]["sound_vs_kmeans_best"]["study"].startswith(speaks)


def test_publish__a_target_that_names_a_study_is_decided_by_it_though_another_speaks_for_the_data(
    tmp_path: Path,
) -> None:
    """In main-cifar10 sound has a third of its MSE elsewhere; targets of the other study are met all the same."""
    root = repository(tmp_path, MAIN, SHORT)
    fill(root, "main-cifar10", _weak)
    fill(root, "main-short-cifar10")
    publish(root)
    assert summary(root)["comparisons"]["cifar10"]["sound_vs_kmeans_best"]["study"] == "main-cifar10"
    published, best, hoped, *_ = summary(root)["targets"]
    assert [each["met"] for each in (published, best, hoped)] == [False, True, True]
    assert "study main-cifar10" in published["why"]
    assert "in main-short-cifar10, which does not decide" in published["why"]
    assert "study main-short-cifar10" in best["why"]
    assert "in main-cifar10, which does not decide: 0.505×, worse" in best["why"]


@pytest.mark.parametrize(
    ("study", "why"), [("main-other", "there is no such study"), ("data-a", "no results of these methods")]
)
def test_publish__a_target_is_open_where_its_study_says_nothing(tmp_path: Path, study: str, why: str) -> None:
    other = 'name = "data-a"\n[settings]\n"data.name" = "lfw158"\n[matrix]\nseed = [0]\n'
    root = repository(tmp_path, MAIN, other)
    settings = root / "results" / "comparisons.toml"
    settings.write_text(settings.read_text().replace('study = "main-cifar10"', f'study = "{study}"'))
    fill(root, "main-cifar10")
    publish(root)
    target = summary(root)["targets"][0]
    assert target["figure"] is None and target["met"] is None
    assert f"decided by {study} alone" in target["why"] and why in target["why"]


def test_publish__the_front_page_says_it_in_chinese_and_the_index_marks_where_it_was_read(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN.replace("accuracies", "# accuracies"))
    fill(root, "main-cifar10")
    publish(root)
    front = (root / "README.zh.md").read_text(encoding="utf-8")
    assert "| 裁剪边缘填黑，同原文：对最好的 k-means CEM | **" in front and " | 更好" in front
    assert " (lowest) |" in page(root, "README")


def write_augmented(root: Path, ours: float) -> None:
    """What attackers with augmented images took: of ours this share, of the other nothing."""
    runs = [
        {"method": method, "attacks": {"plain": {"mse": 0.02}, "augmented": {"mse": 0.02 * (1 - share)}}}
        for method, share in (("sound_mirrored", ours), ("kmeans_constant_mirrored", 0.0))
    ]
    file = root / AUGMENTED_FIGURES
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"study": "a-study", "runs": runs}), encoding="utf-8")


@pytest.mark.parametrize(("share", "met"), [(0.1, True), (0.6, None)])
def test_publish__a_target_met_without_augmented_images_must_hold_with_what_they_take(
    tmp_path: Path, share: float, met: bool | None
) -> None:
    root = repository(tmp_path, MAIN)
    plain = {"attacks": {"inverter": {"mse": 0.9, "status": "passed"}}}
    fill(root, "main-cifar10", more=plain)
    publish(root)
    before = summary(root)["targets"][0]
    write_augmented(root, share)
    assert stale_files(root), "pages made from it are stale"
    publish(root)
    target = summary(root)["targets"][0]
    runs = next(iter(summary(root)["comparisons"]["cifar10"].values()))["receipts"]
    assert before["met"] is True and target["met"] is met and target["figure"] == before["figure"]
    assert runs["passed"] == 0, "what augmented images find, no other receipt shows"
    assert f"without augmented images, which took up to {100 * share:.0f} % from ours elsewhere: " in target["why"]
    assert ("which would miss it" in target["why"]) is (met is None)
    front = (root / "README.md").read_text(encoding="utf-8")
    assert f"In `a-study` that takes {100 * share:.0f} to {100 * share:.0f} % from the MSE of ours" in front
    assert "audit, without augmented images" in front
    fill(root, "main-cifar10")
    publish(root)
    assert "augmented" not in (root / "README.md").read_text(encoding="utf-8")
    assert "augmented" not in summary(root)["targets"][0]["why"]
