from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attention_cem.attacks import AttackResult, ClassMeanAttack, InverterAttack, OptimisationAttack, TrainingPlan
from attention_cem.attacks.subset import spread_positions
from attention_cem.auditing import Budget, audit
from attention_cem.auditing.audit_files import SAMPLES
from attention_cem.auditing.evidence import evidence_of
from attention_cem.data import ImageData
from tests.attacks.helpers import CPU, challenge_for, identity_client, noise, small_data, test_mse


def by_class(test: int = 200) -> ImageData:
    """Test images listed class by class, as a folder of images lists them."""
    data = small_data(train=100, test=test)
    return ImageData("by class", data.train, data.test.subset(data.test.labels.argsort(stable=True)))


@pytest.mark.parametrize(("total", "count", "classes"), [(10_000, 1000, 10), (10_000, 1000, 100), (4000, 1000, 7)])
def test_spread_positions__every_class_has_its_share_in_blocks_and_in_turns(
    total: int, count: int, classes: int
) -> None:
    positions = spread_positions(total, count)
    assert len(positions.unique()) == count and torch.equal(positions, positions.sort().values)
    in_blocks = (positions * classes // total).bincount(minlength=classes) - count / classes
    in_turns = (positions % classes).bincount(minlength=classes) - count / classes
    assert float(in_blocks[1:].abs().max()) <= 3 and 0 <= float(in_blocks[0]) <= SAMPLES
    assert float(in_turns.abs().max()) <= 3


def test_spread_positions__few_images_are_all_taken_and_the_pictured_ones_always() -> None:
    assert torch.equal(spread_positions(700, 1000), torch.arange(700))
    assert torch.equal(spread_positions(10_000, 1000)[:SAMPLES], torch.arange(SAMPLES))
    assert spread_positions(5, 0).tolist() == []


def test_optimisation__sees_every_class_of_images_listed_by_class(tmp_path: Path) -> None:
    data = by_class()
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.05), data)
    result = OptimisationAttack(steps=60, images=40, tv_weights=(0.0,)).run(challenge, device=CPU)
    assert sorted(result.rebuilt_of(data.test.labels).bincount().tolist())[0] >= 8
    assert test_mse(result, data) < 5e-3  # of the images it says it rebuilt


def test_audit__scores_and_evidence_are_of_the_images_that_were_rebuilt(tmp_path: Path) -> None:
    data = by_class()
    challenge_for(tmp_path / "c", identity_client(), noise(0.05), data)
    budget = Budget(
        "two",
        (
            ("class_mean", ClassMeanAttack()),
            ("inverter", InverterAttack(TrainingPlan(epochs=1, probe=False), width=4, blocks=0)),
            ("search", OptimisationAttack(steps=60, images=40, tv_weights=(0.0,))),
        ),
        bound_images=0,
        membership_epochs=0,
    )
    first = audit(tmp_path / "c", tmp_path / "out", budget=budget, device="cpu", identity=True)
    record = audit(tmp_path / "c", tmp_path / "out", budget=budget, device="cpu", identity=True)
    assert record == first  # kept attacks know their images
    images = {each["name"]: each["images"] for each in record["attacks"]}
    assert images == {"class_mean": 200, "inverter": 200, "search": 40}
    worst = record["headline"]
    assert worst["attack"] == "search" and worst["mse"] == worst["compared_mse"] < 5e-3
    assert record["attacks"][2]["identity"]["on_reconstructions"] > 0.6
    found = evidence_of(record, tmp_path / "out", tmp_path / "c", "search")
    assert found is not None and len(found.class_mse) == 4 and max(found.class_mse.values()) < 5e-3
    assert len(found.mse) == 4 and torch.equal(found.originals, data.test.images[:4])
    pictured = (found.reconstructions.float() - found.originals.float()) / 255
    assert float(pictured.square().mean()) < 5e-3


def test_result__needs_a_position_for_each_reconstruction(tmp_path: Path) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.05), small_data(train=60, test=10))
    receipt = ClassMeanAttack().run(challenge, device=CPU).receipt
    with pytest.raises(ValueError, match="one position for each of 2 reconstructions"):
        AttackResult(torch.zeros(2, 3, 4, 4), receipt, positions=torch.arange(3))
