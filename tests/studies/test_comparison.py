import json
import math
import statistics
from typing import Any

import pytest

from attention_cem.studies.comparison import compare
from attention_cem.studies.intervals import t_quantile
from attention_cem.studies.verdicts import SeedCurves, compare_at

STRONG: SeedCurves = {seed: [(0.80, 0.040 + seed / 1000), (0.90, 0.020 + seed / 1000)] for seed in (0, 1, 2)}
WEAK: SeedCurves = {seed: [(0.80, 0.020 + seed / 1000), (0.90, 0.010 + seed / 1000)] for seed in (0, 1, 2)}
ELSEWHERE: SeedCurves = {seed: [(0.60, 0.050), (0.70, 0.040)] for seed in (0, 1, 2)}


def points(method: str, curves: SeedCurves, data: str = "d", **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "method": method,
            "data": data,
            "seed": seed,
            "accuracy": accuracy,
            "mse": mse,
            "lambda": float(number),
            "sigma": 0.025,
            "settings": {"train.seed": seed, "surrogate.lambd": float(number)},
            "receipt_ok": True,
            "cost": {"seconds_per_epoch": 2.0 if method == "strong" else 1.0},
            **more,
        }
        for seed, curve in curves.items()
        for number, (accuracy, mse) in enumerate(curve)
    ]


def test_compare_at__by_hand() -> None:
    # At 85 % the means are halfway: 0.030 + s/1000 against 0.015 + s/1000.
    logs = [math.log((0.030 + s / 1000) / (0.015 + s / 1000)) for s in (0, 1, 2)]
    half = t_quantile(0.975, 2) * statistics.stdev(logs) / math.sqrt(3)
    matched = compare_at(STRONG, WEAK, 0.85)
    assert matched.outcome == "better" and matched.paired
    assert matched.mse_first == pytest.approx((0.030, 0.031, 0.032))
    assert matched.change == pytest.approx(math.exp(statistics.fmean(logs)) - 1)
    assert matched.ci95 == pytest.approx(
        (math.exp(statistics.fmean(logs) - half) - 1, math.exp(statistics.fmean(logs) + half) - 1)
    )
    assert matched.text.startswith("better at 85.0 % accuracy: +93.9 % MSE, 95 % CI +")


def test_compare_at__the_other_way_round_is_worse_by_the_inverse() -> None:
    forth, back = compare_at(STRONG, WEAK, 0.85), compare_at(WEAK, STRONG, 0.85)
    assert back.outcome == "worse"
    assert back.change is not None and forth.change is not None
    assert (1 + back.change) * (1 + forth.change) == pytest.approx(1)


def test_compare_at__noise_between_seeds_is_no_difference() -> None:
    noisy = {0: [(0.8, 0.02), (0.9, 0.01)], 1: [(0.8, 0.03), (0.9, 0.02)], 2: [(0.8, 0.01), (0.9, 0.005)]}
    other = {0: [(0.8, 0.03), (0.9, 0.02)], 1: [(0.8, 0.01), (0.9, 0.005)], 2: [(0.8, 0.02), (0.9, 0.01)]}
    assert compare_at(noisy, other, 0.85).outcome == "no difference shown"
    assert compare_at(noisy, other, 0.85).text.startswith("no difference shown at 85.0 % accuracy: ")


def test_compare_at__a_difference_below_the_smallest_that_matters_is_none() -> None:
    assert compare_at(STRONG, WEAK, 0.85, smallest_difference=0.0149).outcome == "better"
    assert compare_at(STRONG, WEAK, 0.85, smallest_difference=0.0151).outcome == "no difference shown"


def test_compare_at__one_seed_decides_nothing() -> None:
    matched = compare_at({0: STRONG[0]}, {0: WEAK[0]}, 0.85)
    assert (matched.outcome, matched.ci95) == ("undecided", None)
    assert matched.text == "undecided at 85.0 % accuracy: +100.0 % MSE, but 1 seed gives no interval"


def test_compare_at__two_seeds_have_an_interval_and_decide_nothing() -> None:
    matched = compare_at({s: STRONG[s] for s in (0, 1)}, {s: WEAK[s] for s in (0, 1)}, 0.85)
    assert matched.outcome == "undecided" and matched.ci95 is not None and matched.ci95[0] > 0
    assert matched.text.startswith("undecided at 85.0 % accuracy: ")
    assert matched.text.endswith("(2 seeds, fewer than 3)")


def test_compare_at__different_seeds_use_welch() -> None:
    matched = compare_at(STRONG, {seed + 10: curve for seed, curve in WEAK.items()}, 0.85)
    assert matched.outcome == "better" and not matched.paired


def test_compare__curves_that_do_not_overlap_are_not_comparable() -> None:
    pair = compare(points("strong", STRONG) + points("far", ELSEWHERE))["pairs"][0]
    assert (pair["outcome"], pair["overlap"], pair["matched"]) == ("not comparable", None, [])
    assert pair["text"] == "not comparable: the curves do not overlap"
    asked = compare(points("strong", STRONG) + points("far", ELSEWHERE), accuracies=[0.85])["pairs"][0]
    assert asked["outcome"] == "not comparable"


def test_compare__a_named_accuracy_outside_the_overlap_is_said_to_be_so() -> None:
    pair = compare(points("strong", STRONG) + points("weak", WEAK), accuracies=[0.95, 0.85])["pairs"][0]
    assert [each["outcome"] for each in pair["matched"]] == ["not comparable", "better"]
    assert pair["outcome"] == "not comparable" and "95.0 %" in pair["text"]


def test_compare__methods_pairs_and_their_figures() -> None:
    content = compare(points("strong", STRONG) + points("weak", WEAK))
    json.dumps(content, allow_nan=False)
    strong, pair = content["methods"]["strong"], content["pairs"][0]
    assert strong["front"] == [pytest.approx([0.80, 0.041]), pytest.approx([0.90, 0.021])]
    assert strong["curve"][0]["seeds"] == 3 and strong["curve"][0]["mse_std"] == pytest.approx(0.001)
    assert strong["curve"][0]["settings"] == {"surrogate.lambd": 0.0}
    # Reference: the lowest accuracy and MSE of all, (0.8, 0.01); by hand for seed 0: 0.1 × (0.020 − 0.010).
    assert strong["hypervolume"]["reference"] == [0.80, 0.010]
    assert strong["hypervolume"]["per_seed"]["0"] == pytest.approx(0.001)
    assert pair["overlap"] == [0.80, 0.90] and len(pair["matched"]) == 5
    assert pair["outcome"] == "better" and pair["matched"][2]["accuracy"] == pytest.approx(0.85)
    assert pair["cost_ratio"] == 2.0 and pair["cautions"] == []


def test_compare__data_sets_are_never_mixed() -> None:
    content = compare(points("strong", STRONG, "a") + points("weak", WEAK, "a") + points("strong", STRONG, "b"))
    assert list(content["methods"]) == ["a: strong", "a: weak", "b: strong"]
    assert [(pair["a"], pair["b"]) for pair in content["pairs"]] == [("a: strong", "a: weak")]


def test_compare__with_a_baseline_every_other_method_meets_it() -> None:
    three = points("weak", WEAK) + points("strong", STRONG) + points("far", ELSEWHERE)
    pairs = compare(three, baseline="weak")["pairs"]
    assert [(pair["a"], pair["b"]) for pair in pairs] == [("strong", "weak"), ("far", "weak")]


def test_compare__what_weakens_a_verdict_is_said() -> None:
    doubtful = points("strong", {0: STRONG[0], 1: STRONG[1]}, receipt_ok=False) + points("weak", WEAK)
    cautions = compare(doubtful)["pairs"][0]["cautions"]
    assert cautions[0].startswith("4 of 10 runs have no passing receipt")
    assert cautions[1] == "2 seeds: at least 3 are needed for a claim" and "Welch" in cautions[2]


def test_compare__nothing_yet() -> None:
    assert compare([]) == {"methods": {}, "pairs": []}
