"""Each sentence above a study, held against the stored results."""

import json
import tomllib
from collections.abc import Iterable
from functools import cache
from statistics import fmean, stdev

import pytest
from studies.publish_augmented import Found, augmented_gain
from studies.publish_finished import Finished
from studies.publish_reading import read_studies, read_study
from studies.publish_settings import read_settings
from studies.publish_stamps import AUGMENTED_FIGURES

from attention_cem.attacks.receipts import SHORT_OF_IMAGES
from attention_cem.data import lookup_data
from tests.studies.publishing import ROOT, summary

SETTINGS = read_settings(ROOT)
MIRRORED = "main-mirrored-cifar10"
STACKED = "stacked-cifar10"
SMALL, SMALL_COARSE, FACES = "small-cifar10", "small-cifar100-coarse", "small-lfw158"
FINALISTS = "finalists-mirrored-cifar10"
FINE, COARSE = "data-cifar100", "data-cifar100-coarse"
ACCURATE, ADVERSARY = "stacked-accurate-cifar10", "stacked-adversary-cifar10"
ONE_STRENGTH = ("kmeans_constant_mirrored", "sound_mirrored", "slots")
T95_OF_THREE = 4.303  # Student's t, two degrees of freedom, 95 % two-sided


@cache
def finished(study: str) -> tuple[Finished, ...]:
    return read_study(ROOT, ROOT / "studies" / f"{study}.toml").finished


def mean(study: str, method: str, figure: str = "mse", lambd: float | None = None) -> float:
    mine = [each for each in finished(study) if each.method == method and lambd in (None, each.cell.lambd)]
    assert len({each.seed for each in mine}) >= 3
    return fmean(each.result[figure] for each in mine)


def gains(study: str, a: str, b: str, figure: str = "mse") -> list[float]:
    """Seed by seed, how much higher a figure of a is, the MSE if none is named."""
    of = {(each.method, each.seed): each.result[figure] for each in finished(study)}
    return [of[a, seed] - of[b, seed] for method, seed in of if method == a]


def outcomes(study: str) -> set[str]:
    """Of all its comparisons, at every accuracy that was read."""
    records = [record for by_key in summary(ROOT)["comparisons_by_study"][study].values() for record in by_key.values()]
    return {at["outcome"] for record in records for at in record["across"]}


def test_conclusions__every_sensitivity_study_has_one_and_no_typed_figure() -> None:
    page = next(page for page in SETTINGS.pages if page.name == "sensitivity")
    studies = {file.stem for file in (ROOT / "studies").glob("*.toml") if SETTINGS.page_of(file.stem) == page}
    elsewhere = {MIRRORED, SMALL, SMALL_COARSE, FACES, STACKED, FINALISTS, FINE, COARSE, ACCURATE, ADVERSARY}
    assert set(SETTINGS.conclusions) == studies | elsewhere and any(name.startswith("defect-") for name in studies)
    assert not any(sign.isdigit() for both in SETTINGS.conclusions.values() for words in both for sign in words)
    for study, (words, words_zh) in SETTINGS.conclusions.items():
        shown = SETTINGS.page_of(study)
        assert shown is not None
        assert f"**{words}.** {words_zh}。" in (ROOT / shown.file).read_text(encoding="utf-8")


@pytest.mark.parametrize("study", ["class-gate-synthetic", "early-shutoff-synthetic"])
def test_conclusions__the_documents_slots_hide_no_more_than_noise_whatever_their_settings(study: str) -> None:
    noise = mean("class-gate-synthetic", "noise")
    methods = {each.method for each in finished(study)} - {"noise"}
    assert len(methods) > 3
    assert all(mean(study, method) == pytest.approx(noise, rel=0.05) for method in methods)


def test_conclusions__early_shutoff_has_settings_that_are_shut_off_and_some_that_are_not() -> None:
    assert {each.result["shutoff_share"] for each in finished("early-shutoff-synthetic")} >= {0.0, 1.0}


def test_conclusions__noise_beside_the_gates_met_the_same_attacks() -> None:
    assert len({frozenset(each.attacks) for each in finished("class-gate-synthetic")}) == 1


def test_conclusions__var_threshold() -> None:
    study, low, high = "var-threshold-synthetic", "var_threshold 0.03", "var_threshold 0.5"
    assert mean(study, low, lambd=16.0) == pytest.approx(mean(study, high, lambd=16.0))
    assert mean(study, high, "accuracy", 64.0) > mean(study, low, "accuracy", 64.0) + 0.05
    assert mean(study, high, lambd=64.0) < 0.6 * mean(study, low, lambd=64.0)
    assert outcomes(study) <= {"no difference shown", "undecided"}


@pytest.mark.parametrize("study", ["slots-synthetic", "modes-synthetic"])
def test_conclusions__no_difference_between_numbers_of_slots_is_shown(study: str) -> None:
    assert outcomes(study) == {"no difference shown"}


def test_conclusions__warm_up() -> None:
    study = "warm-up-synthetic"
    for lambd in (0.3, 3.0):
        early, middle, late = (mean(study, f"attention_warmup_epochs {n}", lambd=lambd) for n in (0, 3, 5))
        assert early > middle > late
    assert outcomes(study) <= {"no difference shown", "undecided"}


def test_conclusions__defects() -> None:
    """What tests/docs_figures/test_defects.py does not already hold against the results."""
    shut_off, few = "defect-shut-off", "defect-few-samples"
    for study in (shut_off, few):
        more = gains(study, "slot mixture", "noise only")
        assert len(more) == 3 and fmean(more) > T95_OF_THREE * stdev(more) / 3**0.5, (
            "above by the interval of the seeds"
        )


def mirrored_over_black(results: Iterable[Finished], method: str, figure: str) -> list[float]:
    """Seed by seed and setting by setting."""
    of = {
        (
            each.method,
            each.seed,
            each.cell.lambd,
            each.cell.config.defence.get("linear_leakage", {}).get("weight"),
        ): each
        for each in results
    }
    settings = [setting for name, *setting in of if name == method]
    return [of[f"{method}_mirrored", *each].result[figure] / of[method, *each].result[figure] for each in settings]


def test_conclusions__edges() -> None:
    results = finished("edges-cifar10")
    for method, pairs in (("noise", 3), ("blindness", 3), ("sound", 6)):
        assert len(mirrored_over_black(results, method, "mse")) == pairs
    noise, blindness, sound = (
        mirrored_over_black(results, name, "accuracy") for name in ("noise", "blindness", "sound")
    )
    assert min(*noise, *blindness, *sound) > 1 and min(fmean(blindness), fmean(sound)) > fmean(noise)
    assert min(mirrored_over_black(results, "sound", "mse")) > 1
    for method in ("noise", "blindness"):
        assert fmean(mirrored_over_black(results, method, "mse")) == pytest.approx(1, abs=0.05)


def test_conclusions__attention_and_a_blind_client_on_a_small_network() -> None:
    ours, theirs, blind = "sound_attention_mirrored", "kmeans_constant_mirrored", "blind_kmeans_constant_mirrored"
    results = finished(SMALL)
    assert {each.budget for each in results} == {"compact"} and {each.seed for each in results} == {0, 1, 2}
    for seed in (0, 1, 2):
        mine, baseline = ([r for r in results if (r.method, r.seed) == (of, seed)] for of in (ours, theirs))
        most = min(mine, key=lambda each: each.cell.config.defence["linear_leakage"]["weight"])
        assert len(mine) == 3
        assert all(most.result["accuracy"] > each.result["accuracy"] for each in baseline)
        assert all(most.result["mse"] > each.result["mse"] for each in baseline)
    records = summary(ROOT)["comparisons_by_study"][SMALL]["cifar10"]
    behind_one = records[f"{ours}_vs_{blind}"]
    assert {at["outcome"] for at in behind_one["across"]} == {"better"}
    assert all(each.augmented for each in results) and behind_one["augmented"] == behind_one["receipts"]["runs"]
    elsewhere = [each for study in read_studies(ROOT, SETTINGS) if study.name != SMALL for each in study.finished]
    assert not any(each.augmented for each in elsewhere), "which the other studies did not have"
    gain_of_blindness = records[f"{blind}_vs_{theirs}"]["mse_gain"]
    assert gain_of_blindness > 1.5 > 1.3 > behind_one["mse_gain"] > 1, "most of the difference is the blind client"


def test_conclusions__mirrored_edges_on_a_large_network() -> None:
    """Those with black edges were run for another study, and are taken from it."""
    stored = next(each for each in read_studies(ROOT, SETTINGS) if each.name == MIRRORED)
    noise, kmeans, sound = (
        mirrored_over_black(stored.finished, method, "accuracy") for method in ("noise", "kmeans_constant", "sound")
    )
    assert (len(noise), len(kmeans), len(sound)) == (3, 9, 6)
    assert min(*noise, *sound) > 1 and fmean(kmeans) > 1 and fmean(sound) > max(fmean(noise), fmean(kmeans))
    found = summary(ROOT)["comparisons_by_study"][MIRRORED]["cifar10"]
    for ours in ("sound_mirrored", "sound_attention_mirrored"):
        assert found[f"{ours}_vs_kmeans_best_mirrored"]["outcome"] == "better"
    assert found["sound_attention_mirrored_vs_sound_mirrored"]["outcome"] == "no difference shown"


def test_conclusions__attention_at_the_lowest_accuracy_alone() -> None:
    found = summary(ROOT)["comparisons_by_study"][FINALISTS]["cifar10"]
    record = found["sound_attention_mirrored_vs_kmeans_best_mirrored"]
    assert record["augmented"] == 0 and set(record["budgets"]) == {"standard"}
    lowest, *above = record["across"]
    assert lowest["outcome"] == record["outcome"] == "better" and lowest["accuracy"] == record["accuracy"]
    assert above and {at["outcome"] for at in above} == {"no difference shown"}
    assert record["accuracy"] > record["own_until"], "images go undefended where it is read"


@pytest.mark.parametrize("study", [FINE, COARSE])
def test_conclusions__edges_decide_on_cifar100(study: str) -> None:
    found = summary(ROOT)["comparisons_by_study"][study][study.removeprefix("data-").replace("-", "_")]
    alike = found["sound_mirrored_vs_kmeans_best_mirrored"]
    assert alike["outcome"] == "better" and alike["ssim_a"] < alike["ssim_b"]
    assert found["sound_vs_kmeans_best"]["outcome"] == "no difference shown"
    assert found["slots_vs_kmeans_best"]["outcome"] == "worse"

    def accuracy(method: str, sigma: float = 0.025, weight: float | None = None) -> float:
        configs = [(each, each.cell.config.defence) for each in finished(study) if each.method == method]
        chosen = [
            each.result["accuracy"]
            for each, defence in configs
            if defence["gaussian_noise"]["sigma"] == sigma
            and weight in (None, defence.get("linear_leakage", {}).get("weight"))
        ]
        assert len(chosen) == 3
        return fmean(chosen)

    lost_with_mirrored = accuracy("noise_mirrored") - accuracy("sound_mirrored", weight=0.03)
    lost_with_black = accuracy("noise") - accuracy("sound", weight=0.03)
    assert 0 < lost_with_mirrored < lost_with_black / 2
    strengths = {name: {each.cell.lambd for each in finished(study) if each.method == name} for name in ONE_STRENGTH}
    assert all(len(each) == 1 for each in strengths.values())
    slots = found["slots_vs_kmeans_best"]
    assert slots["accuracy"] > slots["own_until"], "beyond its own runs"
    if study == FINE:
        surrogates = {each.method for each in finished(study)} - {"noise", "noise_mirrored", "slots"}
        assert all(accuracy("slots") < mean(study, method, "accuracy") for method in surrogates)
        per_batch = {each.method: each.cell.config.data.classes_per_batch for each in finished(study)}
        assert per_batch.pop("slots") and not any(per_batch.values())
    if study == COARSE:
        assert accuracy("slots") == pytest.approx(accuracy("sound", weight=0.03), abs=0.01)
        assert min(gains(study, "sound_mirrored", "kmeans_constant_mirrored", "accuracy")) > 0
        assert min(gains(study, "sound_mirrored", "kmeans_constant_mirrored")) > 0


def test_conclusions__small_network_on_coarse_classes() -> None:
    found = summary(ROOT)["comparisons_by_study"][SMALL_COARSE]["cifar100_coarse"]
    for ours in ("sound_mirrored", "sound_attention_mirrored"):
        assert found[f"{ours}_vs_kmeans_best_mirrored"]["outcome"] == "better"
    blind = found["sound_attention_mirrored_vs_blind_kmeans_constant_mirrored"]
    assert blind["outcome"] == "better" and blind["at_least"]
    assert blind["augmented"] == 0 and blind["mse_gain"] * (1 + found_more().ours[0]) < 1
    for pair in (
        "sound_attention_mirrored_vs_sound_mirrored",
        "slots_mirrored_vs_kmeans_best_mirrored",
        "slots_mirrored_vs_gaussian_mirrored",
    ):
        assert found[pair]["outcome"] == "no difference shown" and found[pair]["seeds"] == 3


def test_conclusions__faces_on_a_small_network() -> None:
    ours, baselines = "sound_mirrored", ("noise_mirrored", "kmeans_constant_mirrored")
    results = [each for each in finished(FACES) if each.method in (ours, *baselines)]
    assert {each.seed for each in results} == {0, 1, 2} and {each.budget for each in results} == {"compact"}
    for seed in (0, 1, 2):
        mine = [each for each in results if (each.method, each.seed) == (ours, seed)]
        theirs = [each.result for each in results if each.method != ours and each.seed == seed]
        most = min(mine, key=lambda each: each.cell.config.defence["linear_leakage"]["weight"]).result
        assert len(mine) == 2 and len(theirs) == 3
        assert all(most["accuracy"] > each["accuracy"] and most["mse"] > each["mse"] for each in theirs)
    assert not any(each.augmented for each in results)
    record = summary(ROOT)["comparisons_by_study"][FACES]["lfw158"]["sound_mirrored_vs_kmeans_best_mirrored"]
    assert record["outcome"] == "better" and record["mse_gain"] > 2 * record["finer_gain"] > 2
    blind = "blind_kmeans_constant_mirrored"
    found = summary(ROOT)["comparisons_by_study"][FACES]["lfw158"]
    assert f"{ours}_vs_{blind}" not in found, "no accuracy is covered by all seeds of both"
    assert found[f"{blind}_vs_kmeans_constant_mirrored"]["mse_gain"] == pytest.approx(record["mse_gain"], rel=0.1)
    milder = [
        [each.result for each in finished(FACES) if each.method == method and strength(each) == 0.3]
        for method, strength in (
            (ours, lambda each: each.cell.config.defence["linear_leakage"]["weight"]),
            (blind, lambda each: each.cell.lambd),
        )
    ]
    for figure, apart in (("accuracy", 0.01), ("mse", 0.001)):
        mine, theirs = (fmean(each[figure] for each in results) for results in milder)
        assert mine == pytest.approx(theirs, abs=apart)
    assert [len(results) for results in milder] == [3, 3]


def test_handbook__most_of_what_ours_hides_more_are_the_slowest_waves() -> None:
    found = summary(ROOT)["comparisons"]
    alike = "sound_mirrored_vs_kmeans_best_mirrored"
    for data in ("cifar10", "cifar100", "cifar100_coarse", "lfw158"):
        record = found[data][alike]
        assert record["outcome"] == "better" and 1 < record["finer_gain"] < 1 + (record["mse_gain"] - 1) / 2
    tiny = found["tinyimagenet20"]["sound_vs_kmeans_best"]
    assert tiny["finer_gain"] < 1 < tiny["mse_gain"]


def test_conclusions__as_accurate_as_the_most_private_published_defence_of_such_accuracy() -> None:
    runs = finished(ACCURATE)
    assert not any(each.augmented for each in runs)
    assert {each.seed for each in runs} == {0, 1, 2} and {each.budget for each in runs} == {"screening"}
    rows = tomllib.loads((ROOT / "results" / "published-cifar10.toml").read_text(encoding="utf-8"))["row"]
    published = [figures for row in rows for name in ("without_cem", "with_cem") if (figures := row.get(name))]
    accuracy, mse, _ = max((each for each in published if each[0] >= 89.5), key=lambda each: float(each[1]))
    assert 100 * mean(ACCURATE, "adversary_sound", "accuracy") == pytest.approx(accuracy, abs=0.3)
    assert all(each.result["mse"] > mse for each in runs)
    target = next(each for each in summary(ROOT)["targets"] if "thorough" in each["name"])
    assert target["met"] is None


def found_more() -> Found:
    found = augmented_gain(ROOT)
    assert found is not None
    return found


def test_handbook__augmented_images_find_an_eighth_more_of_ours_and_no_more_of_kmeans_cem() -> None:
    """Words of the handbook, of comments and of the index; figures stand in benchmarks/RESULTS.md."""
    found = found_more()
    assert found.study == FINALISTS
    assert -0.15 < found.ours[0] <= found.ours[1] < -0.115 and max(map(abs, found.theirs)) < 0.005
    assert found.without > found.with_them > 1.5
    runs = json.loads((ROOT / AUGMENTED_FIGURES).read_text(encoding="utf-8"))["runs"]
    assert len(runs) == 6 and all(each["converged"] for run in runs for each in run["attacks"].values())
    by_heart = [1 - each["train_mse"] / each["validation_mse"] for each in (run["attacks"]["plain"] for run in runs)]
    with_them = [
        1 - each["train_mse"] / each["validation_mse"] for each in (run["attacks"]["augmented"] for run in runs)
    ]
    ours = ["sound" in run["method"] for run in runs]
    assert all((share > SHORT_OF_IMAGES) is mine for share, mine in zip(by_heart, ours, strict=True))
    assert max(with_them) < SHORT_OF_IMAGES, "the audit warns where it should, and not where it need not"


def test_conclusions__beside_an_adversary_too_few_seeds_decide() -> None:
    found = summary(ROOT)["comparisons_by_study"][ADVERSARY]["cifar10"]
    assert found and {record["outcome"] for record in found.values()} == {"undecided"}
    assert all(record["seeds"] < 3 for record in found.values())


def test_conclusions__stacked() -> None:
    found = summary(ROOT)["comparisons_by_study"][STACKED]["cifar10"]

    def outcome(base: str, a: str, b: str = "") -> str:
        return str(found[f"{base}_{a}_vs_{base}{b}"]["outcome"])

    open_still = {"no difference shown", "undecided"}
    assert {outcome(base, "sound") for base in ("distcorr", "dropout", "arl", "noisy_arl", "pruning")} == {"better"}
    assert outcome("patrol", "sound") in open_still
    assert {outcome(base, "sound", "_kmeans_best") for base in ("distcorr", "dropout", "pruning")} == {"better"}
    by_mse = found["noisy_arl_sound_vs_noisy_arl_kmeans_best"]
    assert by_mse["outcome"] == "better" and by_mse["mse_gain"] < 1.15 and by_mse["ssim_a"] >= by_mse["ssim_b"]
    assert {outcome(base, "kmeans_best") for base in ("dropout", "pruning", "noisy_arl")} == {"better"}
    assert {outcome(base, "kmeans_best") for base in ("distcorr", "arl", "patrol")} <= open_still


def test_conclusions__studies_had_as_many_training_images_as_the_pages_say() -> None:
    """A page once said "all images" of a data set of which the files hold half."""
    held = set()
    for study in read_studies(ROOT, SETTINGS):
        for each in study.finished:
            config, cost = each.cell.config, each.cost
            name = config.data.name
            if name.startswith("synthetic") or not cost.get("images_per_s"):
                continue
            told = config.data.limit or SETTINGS.training_images.get(name) or lookup_data(name).num_train
            trained = cost["images_per_s"] * cost["seconds_per_epoch"]
            assert 0.8 < trained / (told * (1 - config.data.validation_fraction)) < 1.15, (study.name, each.cell.id)
            held.add(name)
    assert set(SETTINGS.training_images) <= held and "cifar10" in held
