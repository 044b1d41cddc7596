"""What every honest attack must show: everything where z shows all, nothing where it shows nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from attention_cem.attacks import (
    Attack,
    ClassMeanAttack,
    GanInverterAttack,
    InverterAttack,
    NearestNeighbourAttack,
    OptimisationAttack,
    RidgeAttack,
    TrainingPlan,
)
from attention_cem.attacks.attacker_data import load_attacker_data
from attention_cem.attacks.inverter_training import train_inverter
from attention_cem.auditing import score
from attention_cem.data import to_float
from attention_cem.defences import AdversarialInverter, DefenceStack, FeatureDropout, GaussianNoise
from attention_cem.splitting import ResidualInverter
from tests.attacks.helpers import (
    CPU,
    blind_client,
    challenge_for,
    floor_mse,
    identity_client,
    noise,
    small_data,
    small_inverter,
    test_mse,
)

PLAN = TrainingPlan(epochs=4, batch_size=16, lr=3e-3, weight_decay=0.0, probe=False)
EVERY_ATTACK: list[Attack] = [
    ClassMeanAttack(),
    NearestNeighbourAttack(),
    RidgeAttack(random_features=32),
    InverterAttack(PLAN, width=16, blocks=0),
    GanInverterAttack(PLAN, epochs=2, width=16, blocks=0),
    OptimisationAttack(steps=40),
]


def test_ladder__identity_like_client_is_inverted_above_30_db(tmp_path: Path) -> None:
    data = small_data(train=500)
    challenge = challenge_for(tmp_path / "c", identity_client(), DefenceStack([]), data)
    result = small_inverter(epochs=12, width=32).run(challenge, device=CPU)
    psnr = score(result.reconstructions, data.test.images).summary()["psnr"]
    assert isinstance(psnr, float) and psnr > 30
    searched = OptimisationAttack(steps=60, tv_weights=(0.0,)).run(challenge, device=CPU)
    assert float(score(searched.reconstructions, data.test.images).psnr.mean()) > 30


@pytest.mark.parametrize("attack", EVERY_ATTACK, ids=lambda attack: attack.kind)
def test_ladder__constant_client_gives_nobody_more_than_the_floor(attack: Attack, tmp_path: Path) -> None:
    data = small_data()
    challenge = challenge_for(tmp_path / "c", blind_client(), noise(0.1), data)
    assert test_mse(attack.run(challenge, device=CPU), data) >= 0.98 * floor_mse(data)


def test_ladder__more_noise_more_error(tmp_path: Path) -> None:
    data = small_data(train=300)
    errors = []
    for sigma in (0.01, 0.3, 1.0, 4.0):
        challenge = challenge_for(tmp_path / str(sigma), identity_client(), noise(sigma), data)
        errors.append(test_mse(small_inverter(epochs=5).run(challenge, device=CPU), data))
    assert errors == sorted(errors)
    assert errors[-1] > 2 * errors[0]


def test_ladder__an_unaware_attacker_is_weaker_and_the_aware_one_is_what_runs_by_default(tmp_path: Path) -> None:
    data = small_data(train=300)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.5), data)
    aware = small_inverter(epochs=5)
    assert aware.aware
    unaware = replace(aware, aware=False)
    assert test_mse(aware.run(challenge, device=CPU), data) < test_mse(unaware.run(challenge, device=CPU), data)


def test_ladder__several_releases_of_one_image_tell_more(tmp_path: Path) -> None:
    data = small_data(train=300)
    once = challenge_for(tmp_path / "once", identity_client(), noise(0.5), data)
    often = challenge_for(tmp_path / "often", identity_client(), noise(0.5), data, test_draws=8)
    attack = small_inverter(epochs=4)
    assert test_mse(attack.run(often, device=CPU), data) < 0.95 * test_mse(attack.run(once, device=CPU), data)


def test_ladder__black_box_pairs_are_enough_for_an_inverter_but_not_for_gradients(tmp_path: Path) -> None:
    data = small_data(train=300)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.05), data, white_box=False)
    assert challenge.attacker_features().shape[0] == 4
    assert test_mse(small_inverter(epochs=4).run(challenge, device=CPU), data) < 0.7 * floor_mse(data)
    with pytest.raises(ValueError, match="white-box"):
        OptimisationAttack().run(challenge, device=CPU)


def test_inverter__reference_geometry_has_711539_parameters() -> None:
    attack = InverterAttack()
    network = ResidualInverter((8, 8, 8), (3, 32, 32), width=attack.width, blocks=attack.blocks)
    assert sum(parameter.numel() for parameter in network.parameters()) == 711_539


def test_inverter__equal_seeds_give_equal_results_and_the_global_generator_is_left_alone(tmp_path: Path) -> None:
    data = small_data(train=100)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), data)
    before = torch.get_rng_state()
    first, again = (small_inverter(epochs=1).run(challenge, device=CPU, seed=3) for _ in range(2))
    other = small_inverter(epochs=1).run(challenge, device=CPU, seed=4)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.reconstructions, again.reconstructions)
    assert not torch.equal(first.reconstructions, other.reconstructions)


def test_inverter__a_short_training_does_not_call_itself_converged(tmp_path: Path) -> None:
    data = small_data(train=300)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.01), data)
    receipt = small_inverter(epochs=2, probe=True).run(challenge, device=CPU).receipt
    assert not receipt.converged and "restarted learning rate" in receipt.reason
    assert not small_inverter(epochs=2, probe=False).run(challenge, device=CPU).receipt.converged


def test_inverter__a_flat_curve_above_the_mean_image_is_called_stuck(tmp_path: Path) -> None:
    data = small_data(train=60)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.01), data)
    attack = InverterAttack(TrainingPlan(epochs=1, lr=1e-9), width=4, blocks=0)
    receipt = attack.run(challenge, device=CPU).receipt
    assert not receipt.converged and receipt.reason.startswith("stuck")


def test_inverter__fine_tunes_the_defenders_own_adversary(tmp_path: Path) -> None:
    data = small_data(train=100)
    adversary = AdversarialInverter(weight=1.0, z_shape=(12, 8, 8), image_shape=(3, 16, 16), width=4, blocks=0)
    defended = challenge_for(tmp_path / "a", identity_client(), DefenceStack([GaussianNoise(0.1), adversary]), data)
    result = small_inverter(epochs=1, start="adversary").run(defended, device=CPU)
    assert result.receipt.parameters == sum(parameter.numel() for parameter in adversary.inverter.parameters())
    bare = challenge_for(tmp_path / "b", identity_client(), noise(0.1), data)
    with pytest.raises(ValueError, match="adversarial inverter"):
        small_inverter(epochs=1, start="adversary").run(bare, device=CPU)


def test_inverter__augments_with_the_client_in_the_loop(tmp_path: Path) -> None:
    data = small_data(train=100)
    challenge = challenge_for(tmp_path / "c", identity_client(), DefenceStack([FeatureDropout(0.2)]), data)
    result = small_inverter(epochs=1, augment=True).run(challenge, device=CPU)
    assert result.reconstructions.shape == (40, 3, 16, 16)


def test_attacker_data__augmented_images_have_no_black_edges_which_test_images_have_not(tmp_path: Path) -> None:
    data = small_data(train=100)
    bright = replace(data, train=replace(data.train, images=data.train.images // 2 + 100))
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), bright)
    own = load_attacker_data(challenge, CPU, augment=True)
    _, images = own.batch(torch.arange(len(own)))
    assert not torch.equal(images, to_float(own.images)) and float(images.min()) > 0.35


def test_optimisation__with_an_inverter_start_is_no_worse_than_the_start_on_validation_images(tmp_path: Path) -> None:
    data = small_data(train=200)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.05), data)
    start = small_inverter(epochs=2).run(challenge, device=CPU)
    attack = OptimisationAttack(steps=40, start_from="inverter", noise_draws=2, restarts=2, images=10)
    result = attack.run(challenge, device=CPU, starts={"inverter": start})
    assert result.receipt.validation_mse <= start.receipt.validation_mse * (1 + 1e-6)
    assert len(result.reconstructions) == 10
    with pytest.raises(ValueError, match="start_from"):
        attack.run(challenge, device=CPU)


def test_gan__is_no_worse_than_the_inverter_it_starts_from_on_validation_images(tmp_path: Path) -> None:
    data = small_data(train=100)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.05), data)
    start = small_inverter(epochs=2).run(challenge, device=CPU)
    attack = GanInverterAttack(PLAN, epochs=1, start_from="inverter")
    result = attack.run(challenge, device=CPU, starts={"inverter": start})
    assert result.receipt.validation_mse <= start.receipt.validation_mse * (1 + 1e-6)
    assert not result.receipt.converged and "had not converged" in result.receipt.reason


@pytest.mark.parametrize(
    "attack",
    [
        GanInverterAttack(PLAN, epochs=1, adversarial_weight=1e3, lr=0.1),
        OptimisationAttack(steps=4, lr=1.0, start_from="inverter", tv_weights=(1e3,), checks=1),
    ],
    ids=lambda attack: attack.kind,
)
def test_refining__that_ends_where_it_began_is_no_evidence_of_its_own(attack: Attack, tmp_path: Path) -> None:
    data = small_data(train=100)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.05), data)
    start = small_inverter(epochs=8).run(challenge, device=CPU)
    start = replace(start, receipt=replace(start.receipt, converged=True))
    result = attack.run(challenge, device=CPU, starts={"inverter": start})
    told = replace(result.receipt, calibrated=True)
    torch.testing.assert_close(result.reconstructions, start.reconstructions)
    assert told.converged and told.kept_start == "inverter" and not told.passes
    assert told.reason.startswith("kept its start: ") and "no evidence beyond inverter" in told.reason


def test_refining__that_lowers_the_error_is_evidence_of_its_own(tmp_path: Path) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.05), small_data(train=100))
    start = small_inverter(epochs=1).run(challenge, device=CPU)
    for attack in (GanInverterAttack(PLAN, epochs=2, lr=3e-3), OptimisationAttack(steps=40, start_from="inverter")):
        receipt = attack.run(challenge, device=CPU, starts={"inverter": start}).receipt
        assert receipt.validation_mse < start.receipt.validation_mse and not receipt.kept_start
    own = GanInverterAttack(PLAN, epochs=1, width=8, blocks=0, adversarial_weight=1e3, lr=0.1)
    assert not own.run(challenge, device=CPU).receipt.kept_start  # its start was trained by itself


def test_train_inverter__compiled_it_learns_what_the_plain_one_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced and run without making machine code; a compiled audit asks it of every inverter, on a GPU alone."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    data = load_attacker_data(challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(100)), CPU)
    curves = []
    for compiled in (False, True):
        torch.manual_seed(0)
        network = ResidualInverter((12, 8, 8), (3, 16, 16), width=8, blocks=1)
        curves.append(train_inverter(network, data, PLAN, compiled=compiled).curve)
    assert [point.mse for point in curves[1]] == pytest.approx([point.mse for point in curves[0]], rel=1e-3)
