"""The captured, mixed-precision path of every trained attack; needs a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from attention_cem.attacks import GanInverterAttack, InverterAttack, OptimisationAttack, TrainingPlan
from attention_cem.attacks.repeated_step import adam, captured, repeated_step, set_learning_rate
from attention_cem.auditing import Budget, audit
from tests.attacks.helpers import CPU, challenge_for, identity_client, noise, small_data, small_inverter, test_mse

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
GPU = torch.device("cuda")


def test_repeated_step__replays_follow_new_indices_and_learning_rates() -> None:
    table = torch.arange(8.0, device=GPU)
    weight = nn.Parameter(torch.zeros(8, device=GPU))
    optimizer = adam([weight], lr=0.0)

    def step(index: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        (weight[index] * table[index]).sum().backward()
        optimizer.step()

    run = repeated_step(step, torch.tensor([1], device=GPU))
    set_learning_rate(optimizer, 0.1)
    run(torch.tensor([5], device=GPU))
    moved = weight.detach().cpu()
    assert moved[5] < 0 and moved[6] == 0


def test_captured__takes_its_warm_up_and_keeps_alive_what_it_reads() -> None:
    total = torch.zeros((), device=GPU)

    def adding(value: float) -> Callable[[], None]:
        summand = torch.full((1024,), value, device=GPU)

        def step() -> None:
            total.add_(summand.mean())

        return step

    run = captured(adding(1.0), warm_up=5)
    torch.cuda.empty_cache()
    _ = [torch.full((1024,), 7.0, device=GPU) for _ in range(8)]  # would take the place of a summand let go
    for _ in range(3):
        run()
    assert total.item() == 8


def test_inverter__gpu_reaches_what_the_cpu_reaches(tmp_path: Path) -> None:
    data = small_data(train=300)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), data)
    attack = small_inverter(epochs=5)
    on_gpu, on_cpu = (test_mse(attack.run(challenge, device=device), data) for device in (GPU, CPU))
    assert on_gpu == pytest.approx(on_cpu, rel=0.15)


def test_inverter__compiled_it_reaches_what_the_plain_one_reaches(tmp_path: Path) -> None:
    data = small_data(train=300)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), data)
    attacks = (replace(small_inverter(epochs=5), compile=compiled) for compiled in (False, True))
    plain, compiled = (test_mse(attack.run(challenge, device=GPU), data) for attack in attacks)
    assert compiled == pytest.approx(plain, rel=0.15)


def test_audit__every_kind_of_attack_runs_on_the_gpu(tmp_path: Path) -> None:
    data = small_data(train=200)
    challenge_for(tmp_path / "c", identity_client(), noise(0.05), data)
    plan = TrainingPlan(epochs=2, batch_size=32, lr=3e-3)
    budget = Budget(
        "gpu",
        (
            ("inverter", InverterAttack(plan, width=16, blocks=1, restarts=2)),
            ("augmented", InverterAttack(plan, width=16, blocks=1, augment=True)),
            ("gan_inverter", GanInverterAttack(plan, epochs=2, width=16, blocks=1)),
            ("optimisation", OptimisationAttack(steps=40)),
            ("optimisation_from_inverter", OptimisationAttack(steps=20, start_from="inverter", noise_draws=2)),
        ),
        fisher_images=8,
    )
    record = audit(tmp_path / "c", tmp_path / "out", budget=budget, device=GPU, identity=True)
    assert record["headline"]["psnr"] > 25
