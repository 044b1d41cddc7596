"""What the pages say about each figure, as checks on the numbers it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Numbers = dict[str, Any]


def leak(numbers: Numbers) -> None:
    errors = [run["mse"] for run in numbers.values()]
    assert list(numbers) == ["0", "1", "3"] and errors == sorted(errors)


def clouds(numbers: Numbers) -> None:
    without, with_surrogate = numbers["runs"]["0"], numbers["runs"]["1"]
    assert with_surrogate["intra_mse"] < 0.5 * without["intra_mse"]
    assert with_surrogate["nats_per_dim"] < 0.5 * without["nats_per_dim"]
    assert with_surrogate["accuracy"] > without["accuracy"] - 0.06


def waves(numbers: Numbers) -> None:
    assert 0.5 < numbers["share_taken_out"] < 0.95  # most, and yet not all
    assert numbers["frequencies"] == 4


def captains(numbers: Numbers) -> None:
    certainty = [state["mean_largest_r"] for state in numbers["rounds"].values()]
    assert certainty == sorted(certainty) and certainty[-1] > 0.9


def assignment(numbers: Numbers) -> None:
    before, after = (sum(max(row) for row in numbers[key]) / len(numbers[key]) for key in ("r_before", "r_after"))
    assert after > 1.3 * before
    assert numbers["change"][0] == 0 and numbers["change"] == sorted(numbers["change"])
    assert numbers["change"][numbers["alpha"].index(0.1)] < 0.1  # almost the identity at the start


def gates(numbers: Numbers) -> None:
    low, *_ = runs = list(numbers["runs"].values())
    limit = numbers["early_hard_thresh"]
    assert low["snr_gate_mean"][-1] < limit and low["shutoff_share"][-1] == 0
    wide = runs[2:]
    assert all(value > limit for run in wide for value in run["snr_gate_mean"])
    assert all(share == 1 for run in wide for share in run["shutoff_share"])


def roll_call(numbers: Numbers) -> None:
    first, collapsed = numbers["weights"]["penalty"]
    adversary = numbers["weights"]["adversary"][-1]
    assert first["effective_samples"] > 10 and collapsed["effective_samples"] < 1.2
    assert adversary["effective_samples"] > 3
    assert collapsed["rob_loss"] < first["rob_loss"] and adversary["rob_loss"] > 0


def talk_down(numbers: Numbers) -> None:
    runs = numbers["runs"]
    for name in ("slot_cross", "gated, per_dim", "gated, trace"):
        assert runs[name]["rob_loss"][-1] < 0.25 * runs[name]["rob_loss"][0]
        assert runs[name]["intra_mse"][-1] > 0.9 * runs[name]["intra_mse"][0]
    assert runs["slot_cross"]["soft_gate_mean"][-1] < 0.01
    assert runs["gated, per_dim"]["largest_weight"][-1] > 0.95
    truth = numbers["true_nats_per_dim"]
    assert all(0.99 * truth < value < 1.1 * truth for value in runs["slot_mixture"]["rob_loss"][2:])


def scale(numbers: Numbers) -> None:
    losses = numbers["rob_loss"]
    for name in ("slot_cross", "gated, per_dim"):
        assert max(losses[name]) < 1.02 * min(losses[name])
    for name in ("gated, trace", "slot_mixture"):
        assert losses[name] == sorted(losses[name])
    assert losses["slot_mixture"][0] < 0.02


def few_samples(numbers: Numbers) -> None:
    share = numbers["active_share"]
    assert share["slot_cross"][-1] < 0.05 and share["gated"][-1] < 0.2
    assert min(share["slot_mixture"]) > 0.95


def curves(numbers: Numbers) -> None:
    plain = numbers["none"]
    for name in ("slot_cross", "slot_cross, shut-off removed"):
        assert numbers[name]["intra_mse"][-1] > 0.9 * plain["intra_mse"][-1]
        assert numbers[name]["rob_loss"][-1] < 0.01
    assert all(share == 1 for share in numbers["slot_cross"]["shutoff_share"])
    assert numbers["gated"]["effective_samples"][-1] < 2
    assert numbers["slot_mixture"]["intra_mse"][-1] < 0.4 * plain["intra_mse"][-1]
    assert numbers["slot_mixture"]["accuracy"][-1] > plain["accuracy"][-1] - 0.06


def hiding(numbers: Numbers) -> None:
    short, long = numbers["attacks"].values()
    assert min(short["mse"]) > 5 * min(long["mse"])
    assert short["test_mse"] > 5 * long["test_mse"]


def worked_example(numbers: Numbers) -> None:
    assert abs(numbers["computed"]["rob_loss"][0] - 0.2192096) < 5e-7
    assert abs(numbers["computed"]["v, y = 2"][0] - 0.03100565) < 5e-7
    assert numbers["computed"].keys() == numbers["printed"].keys()


CLAIMS: dict[str, Callable[[Numbers], None]] = {
    each.__name__: each
    for each in (
        leak,
        clouds,
        waves,
        captains,
        assignment,
        gates,
        roll_call,
        talk_down,
        scale,
        few_samples,
        curves,
        hiding,
        worked_example,
    )
}
