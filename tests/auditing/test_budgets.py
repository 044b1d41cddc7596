"""What each named budget runs, and on which challenges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from attention_cem.attacks import InverterAttack, RidgeAttack
from attention_cem.auditing import BUDGETS, Budget, audit, budgets, named_budget
from attention_cem.defences import AdversarialInverter, DefenceStack, GaussianNoise
from tests.attacks.helpers import challenge_for, identity_client, noise, small_data


def test_named_budget__fits_the_challenge(tmp_path: Path) -> None:
    data = small_data(train=60, test=20)
    closed = challenge_for(tmp_path / "closed", identity_client(), noise(0.1), data, white_box=False)
    adversary = AdversarialInverter(weight=1.0, z_shape=(12, 8, 8), image_shape=(3, 16, 16), width=4, blocks=0)
    fought = challenge_for(tmp_path / "fought", identity_client(), DefenceStack([GaussianNoise(0.1), adversary]), data)
    for name in BUDGETS:
        assert not any(attack.needs_white_box for _, attack in named_budget(name, closed).attacks)
    tuned = dict(named_budget("thorough", fought).attacks)["inverter_from_adversary"]
    assert isinstance(tuned, InverterAttack) and (tuned.width, tuned.blocks) == (4, 0)
    calibrating = tuned.for_calibration()  # the same network, from a random start
    assert isinstance(calibrating, InverterAttack) and (calibrating.width, calibrating.start) == (4, "random")
    thorough = dict(named_budget("thorough", fought).attacks)
    epochs = [each.plan.epochs for name, each in thorough.items() if isinstance(each, InverterAttack)]
    assert sorted(epochs)[1] >= 100  # all but the short one that stands for a quick audit
    assert len({each.width for each in thorough.values() if isinstance(each, InverterAttack)}) >= 3
    with pytest.raises(ValueError, match="unknown budget"):
        named_budget("huge", closed)


def test_thorough__shares_its_calibrations_with_a_standard_audit(tmp_path: Path) -> None:
    """Long trainings, started twice, took half of a thorough audit to say what short ones say: that they work."""
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data())
    asked = {
        name: {each: attack.for_calibration().settings() for each, attack in named_budget(name, challenge).attacks}
        for name in ("standard", "thorough")
    }
    for name in ("inverter", "inverter_augmented", "inverter_large_augmented"):
        assert asked["thorough"][name] == asked["standard"][name]
    for settings in asked["thorough"].values():
        plan = settings.get("plan")
        assert plan is None or (plan["epochs"] <= 50 and not plan["probe"] and settings.get("restarts", 1) == 1)


def test_compact__is_probed_and_trains_on_from_the_adversary_for_as_long(tmp_path: Path) -> None:
    """Unlike quick and screening its receipt can pass: results of small-cifar10 say how often it does."""
    data = small_data(train=60, test=20)
    adversary = AdversarialInverter(weight=1.0, z_shape=(12, 8, 8), image_shape=(3, 16, 16), width=4, blocks=0)
    fought = challenge_for(tmp_path / "fought", identity_client(), DefenceStack([GaussianNoise(0.1), adversary]), data)
    attacks = dict(named_budget("compact", fought).attacks)
    assert list(attacks)[-2:] == ["inverter_small_augmented", "inverter_from_adversary"]
    small, tuned = attacks["inverter_small_augmented"], attacks["inverter_from_adversary"]
    assert isinstance(small, InverterAttack) and isinstance(tuned, InverterAttack)
    assert small.plan.probe and small.plan == tuned.plan and (tuned.width, tuned.start) == (4, "adversary")


@pytest.mark.parametrize("name", ["compact", "standard", "thorough"])
def test_named_budget__whoever_has_the_client_trains_on_augmented_images_too(tmp_path: Path, name: str) -> None:
    """On VGG-11 an inverter that did not had a passing receipt at .034 where one that did found .029."""
    data = small_data(train=60, test=20)
    adversary = AdversarialInverter(weight=1.0, z_shape=(12, 8, 8), image_shape=(3, 16, 16), width=4, blocks=0)
    stack = DefenceStack([GaussianNoise(0.1), adversary])
    owned = dict(named_budget(name, challenge_for(tmp_path / "white", identity_client(), stack, data)).attacks)
    for each, attack in owned.items():
        assert getattr(attack, "augment", False) or not each.endswith("_augmented"), each
        start = getattr(attack, "start_from", None)
        assert start is None or start in owned, f"{each} starts from {start}, which is not run"
    widest = max(getattr(attack, "width", 0) for attack in owned.values())
    for each, attack in owned.items():
        strong = getattr(attack, "width", 0) == widest or each in ("gan_inverter", "inverter_from_adversary")
        assert not strong or getattr(attack, "augment", False), each

    black = challenge_for(tmp_path / "black", identity_client(), noise(0.1), data, white_box=False)
    stored_only = dict(named_budget(name, black).attacks)
    assert stored_only, "nothing left"
    for each, attack in stored_only.items():
        assert not each.endswith("_augmented") and not getattr(attack, "augment", False)
        start = getattr(attack, "start_from", None)
        assert start is None or start in stored_only
    starts = [
        max(getattr(a, "restarts", 1) for a in each.values() if a.kind == "inverter") for each in (owned, stored_only)
    ]
    assert starts[0] == starts[1], "no fewer of them without the client"
    assert len({each.settings()["kind"] + str(each.settings().get("width")) for each in stored_only.values()}) >= 4


def test_named_budget__compiled_is_every_inverter_and_no_calibration(tmp_path: Path) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data())
    inverters = [
        each for _, each in named_budget("thorough", challenge, compiled=True).attacks if hasattr(each, "compile")
    ]
    assert len(inverters) >= 5 and all(attack.compile for attack in inverters)
    assert not any(attack.for_calibration().compile for attack in inverters)
    assert not any(getattr(attack, "compile", False) for _, attack in named_budget("thorough", challenge).attacks)


def test_screening__is_one_reference_inverter_and_says_what_it_is(tmp_path: Path) -> None:
    data = small_data(train=60, test=20)
    adversary = AdversarialInverter(weight=1.0, z_shape=(12, 8, 8), image_shape=(3, 16, 16), width=4, blocks=0)
    stack = DefenceStack([GaussianNoise(0.1), adversary])
    server = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    challenge = challenge_for(
        tmp_path / "c", identity_client(), stack, data, server=server, members=data.train, non_members=data.test
    )
    budget = named_budget("screening", challenge)
    attacks = dict(budget.attacks)
    assert list(attacks) == ["class_mean", "nearest_neighbour", "ridge", "inverter"]
    reference = attacks["inverter"]
    assert isinstance(reference, InverterAttack)
    assert (reference.width, reference.blocks, reference.plan.epochs, reference.plan.batch_size) == (64, 8, 15, 512)

    quickened = replace(reference, plan=replace(reference.plan, epochs=1, batch_size=16, least_steps=1))
    shorter = replace(budget, attacks=(*budget.attacks[:2], ("inverter", quickened)))
    record = audit(tmp_path / "c", tmp_path / "out", budget=shorter, device="cpu")
    assert record["budget"] == "screening" and record["warnings"][0].startswith("a screening audit: ")
    assert record["settled"]["verdict"] != "settled" and record["headline"]["status"] == "under-trained"
    assert record["membership"] is None and record["bounds"]["available"] is False
    assert record["bounds"]["reason"] == "the screening budget computes no bounds"


def test_screening__its_share_of_the_standard_steps_is_the_one_it_names() -> None:
    plans = []
    for budget in (budgets._screening(), budgets._standard()):
        inverter = dict(budget.attacks)["inverter"]
        assert isinstance(inverter, InverterAttack)
        plans.append(inverter.plan)
    ours, reference = plans
    share = (ours.epochs / ours.batch_size) / (reference.epochs / reference.batch_size)
    assert f"{100 * share:.0f} % of the steps" in str(budgets._screening.__doc__)


@pytest.mark.parametrize("name", ["a/b", "../a", "a\\b", ".a", "", "a" * 51, "a\n"])
def test_budget__a_name_that_is_none_of_a_file_is_refused_before_the_attack(name: str) -> None:
    with pytest.raises(ValueError, match="names of attacks must be 1 to 50 characters without slashes"):
        Budget("one", ((name, RidgeAttack()),))
    Budget("one", (("反演器 (large)", RidgeAttack()),))


def test_budget__a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0 or more, got \(-1, 256, 200\)"):
        Budget("x", (("ridge", RidgeAttack()),), bound_images=-1)
