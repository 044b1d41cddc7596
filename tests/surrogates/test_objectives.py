import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention_cem import GatedAttentionCEM, HybridCEM, SlotCrossAttentionCEM, SlotMixtureCEM
from attention_cem.surrogates import StudyOnlyWarning
from attention_cem.surrogates.objectives import OBJECTIVES, ReverseGradient, assigned_nats, slot_statistics
from attention_cem.surrogates.segments import segment_classes
from attention_cem.testing import SurrogateContract

NOISE, WIDTH = 0.09, 6
SOUND = [objective for objective in OBJECTIVES if objective != "penalty"]
Attention = GatedAttentionCEM | SlotCrossAttentionCEM


def gated(objective: str) -> GatedAttentionCEM:
    return GatedAttentionCEM(WIDTH, reg_strength=NOISE**0.5, objective=objective)


def slot_cross(objective: str) -> SlotCrossAttentionCEM:
    # enriched features are the ones every part of the estimator has a say in
    return SlotCrossAttentionCEM(
        WIDTH, num_slots=3, num_heads=2, reg_strength=NOISE**0.5, objective=objective, assign_on="enriched",
        early_shut_steps=0, early_hard_thresh=1, early_gate_thresh=1,
    )  # fmt: skip


MAKERS = [gated, slot_cross]
Maker = Callable[[str], Attention]


class WithoutWeightGradient(SurrogateContract):
    """Weights carry no gradient of z, so the numerical gradient is another one; fixed weights are checked below."""

    test_contract__gradcheck = None  # type: ignore[assignment]


class TestGatedAdversaryContract(WithoutWeightGradient):
    def make(self) -> GatedAttentionCEM:
        return gated("adversary")


class TestGatedLikelihoodContract(WithoutWeightGradient):
    def make(self) -> GatedAttentionCEM:
        return gated("likelihood")


class TestSlotCrossLikelihoodContract(WithoutWeightGradient):
    def make(self) -> SlotCrossAttentionCEM:
        return slot_cross("likelihood")


class TestSlotCrossAdversaryContract(WithoutWeightGradient):
    def make(self) -> SlotCrossAttentionCEM:
        return slot_cross("adversary")


def batch(size: int = 24, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.3, 2, WIDTH, dtype=torch.float64)
    return scale * torch.randn(size, WIDTH, dtype=torch.float64, generator=generator), torch.arange(size) % 3


def prepared(maker: Maker, objective: str) -> Attention:
    torch.manual_seed(0)
    return maker(objective).double().eval()


def nats_loop(z: Tensor, assigned: Tensor, y: Tensor, label: int) -> float:
    """Nats per dimension above the noise of one class, slot by slot and dimension by dimension."""
    mine, weights = z[y == label], assigned[y == label]
    total = 0.0
    for s in range(assigned.shape[1]):
        mass = weights[:, s].sum()
        for d in range(z.shape[1]):
            mean = (weights[:, s] * mine[:, d]).sum() / mass
            variance = (weights[:, s] * (mine[:, d] - mean) ** 2).sum() / mass
            total += (mass / weights.sum() * 0.5 * math.log(1 + variance / NOISE)).item() / z.shape[1]
    return total


def fit_loop(z: Tensor, assigned: Tensor, y: Tensor) -> float:
    """Mean negative log-likelihood of the noisy samples under the mixtures that assignments give."""
    total = 0.0
    for n in range(len(z)):
        mine, weights = z[y == y[n]], assigned[y == y[n]]
        terms = []
        for s in range(assigned.shape[1]):
            share = weights[:, s] / weights[:, s].sum()
            mean = share @ mine
            variance = share @ (mine - mean) ** 2 + NOISE
            quadratic = ((z[n] - mean) ** 2 + NOISE) / variance + (2 * math.pi * variance).log()
            terms.append((weights[:, s].sum() / weights.sum()).log() - 0.5 * quadratic.sum())
        total -= torch.stack(terms).logsumexp(0).item()
    return total / len(z)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 3), st.integers(0, 99))
def test_assigned_nats__equal_the_loop_under_every_objective(labels: list[int], slots: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(len(labels), 3, dtype=torch.float64, generator=generator)
    assigned = torch.rand(len(labels), slots, dtype=torch.float64, generator=generator) + 0.01
    y = torch.tensor(labels)
    segments = segment_classes(y)
    for objective in SOUND:
        nats = assigned_nats(z, assigned, segments, NOISE, objective)
        for row, label in enumerate(segments.label[:-1].tolist()):
            assert nats[row].item() == pytest.approx(nats_loop(z, assigned, y, label), rel=1e-9, abs=1e-12)


def test_slot_statistics__of_a_class_far_from_the_origin_keep_their_precision() -> None:
    z, y = batch()
    assigned = torch.rand(24, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    segments = segment_classes(y)
    exact = slot_statistics(assigned, z, segments)[2][:3]
    far = slot_statistics(assigned.float(), (z + 1000).float(), segments)[2][:3]
    torch.testing.assert_close(far.double(), exact, rtol=2e-3, atol=1e-3)


def test_assigned_nats__gradient_of_z_is_that_of_fixed_assignments() -> None:
    z, y = batch(12)
    segments = segment_classes(y)
    assigned = torch.rand(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for objective in SOUND:
        assert torch.autograd.gradcheck(
            lambda z, objective=objective: assigned_nats(z, assigned, segments, NOISE, objective)[:3],
            z.requires_grad_(),
        )


def test_reverse_gradient__is_the_identity_with_the_negative_gradient() -> None:
    x = torch.randn(4, requires_grad=True)
    out = ReverseGradient.apply(x)
    assert torch.equal(out, x)
    out.square().sum().backward()
    assert x.grad is not None and torch.equal(x.grad, -2 * x.detach())


@pytest.mark.parametrize("maker", MAKERS)
def test_objectives__agree_on_the_loss_and_on_the_gradient_of_the_client(maker: Maker) -> None:
    z, y = batch()
    results = []
    for objective in SOUND:
        for estimator_learns in (True, False):
            surrogate = prepared(maker, objective).requires_grad_(estimator_learns)
            leaf = z.clone().requires_grad_()
            loss = surrogate(leaf, y).rob_loss
            results.append((loss.detach(), torch.autograd.grad(loss, leaf)[0]))
    for loss, gradient in results[1:]:
        torch.testing.assert_close(loss, results[0][0])
        torch.testing.assert_close(gradient, results[0][1])
    assert results[0][1].norm() > 0


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("objective", SOUND)
def test_objectives__a_step_of_the_client_lowers_loss_and_spread(maker: Maker, objective: str) -> None:
    z, y = batch()
    surrogate = prepared(maker, objective)
    leaf = z.clone().requires_grad_()
    output = surrogate(leaf, y)
    (gradient,) = torch.autograd.grad(output.rob_loss, leaf)
    moved = surrogate(z - 1e-2 * gradient / gradient.norm(dim=1).max(), y)
    assert moved.rob_loss < output.rob_loss and moved.intra_mse < output.intra_mse


def estimator_step(surrogate: Attention, z: Tensor, y: Tensor, length: float = 1e-3) -> tuple[Tensor, Tensor]:
    """The loss before and after one small descent step of the estimator's parameters on its own gradient."""
    parameters = list(surrogate.parameters())
    before = surrogate(z, y).rob_loss
    gradients = torch.autograd.grad(before, parameters, allow_unused=True)
    size = math.sqrt(sum(g.square().sum().item() for g in gradients if g is not None))
    assert size > 0
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter -= length / size * gradient
    return before.detach(), surrogate(z, y).rob_loss.detach()


@pytest.mark.parametrize("maker", MAKERS)
def test_adversary__raises_the_loss_where_penalty_lowers_it(maker: Maker) -> None:
    z, y = batch()
    before, after = estimator_step(prepared(maker, "adversary"), z, y)
    assert after > before
    before, after = estimator_step(prepared(maker, "penalty"), z, y)
    assert after < before


@pytest.mark.parametrize("maker", MAKERS)
def test_likelihood__a_step_of_the_estimator_lowers_the_negative_log_likelihood(maker: Maker) -> None:
    z, y = batch()
    surrogate = prepared(maker, "likelihood")
    fits = [fit_loop(z, assignments(surrogate, z, y), y)]
    for _ in range(3):
        estimator_step(surrogate, z, y)
        fits.append(fit_loop(z, assignments(surrogate, z, y), y))
    assert fits[0] > fits[1] > fits[2] > fits[3]


def assignments(surrogate: Attention, z: Tensor, y: Tensor) -> Tensor:
    """The assignments (N, S) that the surrogate measures with, caught on their way."""
    if isinstance(surrogate, GatedAttentionCEM):
        return surrogate(z, y).diagnostics["attention"].unsqueeze(1)
    caught: list[Tensor] = []
    original = surrogate.responsibilities

    def catch(*arguments: Any) -> Tensor:
        caught.append(original(*arguments))
        return caught[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surrogate, "responsibilities", catch)
        surrogate(z, y)
    return caught[0].detach()


@pytest.mark.parametrize("maker", MAKERS)
def test_frozen__leaves_the_estimator_without_a_gradient(maker: Maker) -> None:
    z, y = batch()
    surrogate = prepared(maker, "frozen")
    surrogate(z.requires_grad_(), y).rob_loss.backward()
    assert all(p.grad is None or p.grad.eq(0).all() for p in surrogate.parameters())
    assert z.grad is not None and z.grad.norm() > 0


def test_adversary__no_sample_can_carry_everything() -> None:
    z, y = batch(30)
    surrogate = prepared(gated, "adversary")
    optimiser = torch.optim.Adam(surrogate.parameters(), 0.05)
    for _ in range(100):
        optimiser.zero_grad()
        surrogate(z, y).rob_loss.backward()
        optimiser.step()
    weight = surrogate(z, y).diagnostics["attention"]
    assert weight.min() >= 0.5 / 10 - 1e-9 and weight.max() <= 0.5 + 0.5 / 10 + 1e-9


def test_adversary__finds_more_spread_than_uniform_weights() -> None:
    z, y = batch(60)
    uniform = GatedAttentionCEM(WIDTH, reg_strength=NOISE**0.5, objective="frozen", mix_uniform=1.0).double()
    surrogate = prepared(gated, "adversary")
    optimiser = torch.optim.Adam(surrogate.parameters(), 0.02)
    for _ in range(100):
        optimiser.zero_grad()
        surrogate(z, y).rob_loss.backward()
        optimiser.step()
    assert surrogate(z, y).rob_loss > uniform(z, y).rob_loss


@pytest.mark.parametrize("maker", MAKERS)
def test_penalty__warns_that_it_is_for_study_and_the_others_do_not(maker: Maker) -> None:
    with pytest.warns(StudyOnlyWarning, match="objective='penalty'"):
        maker("penalty")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for objective in SOUND:
            maker(objective)


def test_sound_surrogates__do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SlotMixtureCEM(WIDTH, 3)
        HybridCEM(WIDTH, 3)


@pytest.mark.parametrize("maker", MAKERS)
def test_objectives__unknown_ones_are_refused_with_the_known(maker: Maker) -> None:
    with pytest.raises(ValueError, match="'likelihood', 'adversary', 'frozen', got 'cheat'"):
        maker("cheat")
