import copy

import pytest
import torch
from torch import Tensor

from attention_cem import (
    ConditionalEntropySurrogate,
    GatedAttentionCEM,
    HybridCEM,
    SlotCrossAttentionCEM,
    SlotMixtureCEM,
)
from attention_cem.testing import SurrogateContract

WIDTH = 6


class TestHybridContract(SurrogateContract):
    def make(self) -> HybridCEM:
        # uniform screening weights: learned ones carry no gradient of z, which a numerical gradient would see
        screen = GatedAttentionCEM(WIDTH, objective="adversary", mix_uniform=1.0)
        return HybridCEM(WIDTH, 8, quota=2, screen=screen, refine=SlotMixtureCEM(WIDTH, 8, num_slots=2, bank_size=16))

    def warm_up(self, surrogate: ConditionalEntropySurrogate) -> None:
        for seed in range(40, 43):
            surrogate(*self.batch(seed=seed))

    def renamed(self, surrogate: ConditionalEntropySurrogate, z: Tensor, y: Tensor, names: dict[int, int]) -> Tensor:
        assert isinstance(surrogate, HybridCEM) and isinstance(surrogate.refine, SlotMixtureCEM)
        known = surrogate.refine.memory.label
        for place, label in enumerate(known.tolist()):
            known[place] = names.get(label, label)
        return super().renamed(surrogate, z, y, names)


class TestHybridOfTheDocumentsContract(SurrogateContract):
    def make(self) -> HybridCEM:
        return HybridCEM(
            WIDTH,
            8,
            quota=2,
            screen=GatedAttentionCEM(WIDTH),
            refine=SlotCrossAttentionCEM(
                WIDTH, num_heads=2, early_shut_steps=0, early_hard_thresh=1, early_gate_thresh=1
            ),
        )


def batch(seed: int = 0, size: int = 60) -> tuple[Tensor, Tensor]:
    """Four classes; the larger the label, the wider the class."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(size) % 4
    return 0.1 * (y + 1).unsqueeze(1) ** 2 * torch.randn(size, WIDTH, dtype=torch.float64, generator=generator), y


def prepared(**arguments: object) -> HybridCEM:
    torch.manual_seed(0)
    surrogate = HybridCEM(WIDTH, 4, **{"reg_strength": 0.1, **arguments}).double()
    for seed in range(1, 6):
        surrogate(*batch(seed))
    return surrogate.eval()


@pytest.mark.parametrize("quota", [1, 2, 3])
def test_hybrid__refines_the_classes_with_the_largest_screened_loss(quota: int) -> None:
    surrogate, (z, y) = prepared(quota=quota), batch()
    output = surrogate(z, y)
    screened = surrogate.screen(z, y).diagnostics
    risk = dict(zip(screened["class_label"].tolist()[:-1], screened["class_loss"].tolist(), strict=False))
    riskiest = sorted(risk, key=risk.__getitem__, reverse=True)[:quota]
    assert output.diagnostics["refined_label"].tolist() == riskiest == [3, 2, 1][:quota]
    assert int(output.diagnostics["refined_classes"]) == quota


@pytest.mark.parametrize("quota", [1, 2, 3, 4, 9])
def test_hybrid__loss_is_the_refined_loss_of_some_classes_and_the_screened_one_of_the_others(quota: int) -> None:
    surrogate, (z, y) = prepared(quota=quota), batch()
    output = surrogate(z, y)
    expected = torch.zeros((), dtype=torch.float64)
    for label in range(4):
        refined = label in output.diagnostics["refined_label"].tolist()
        expected = expected + (surrogate.refine if refined else surrogate.screen)(z, y, y == label).rob_loss
    torch.testing.assert_close(output.rob_loss, expected)


def test_hybrid__with_room_for_every_class_is_the_slot_surrogate() -> None:
    surrogate, (z, y) = prepared(quota=4), batch()
    leaves = [z.clone().requires_grad_() for _ in range(2)]
    losses = [part(leaf, y).rob_loss for part, leaf in zip((surrogate, surrogate.refine), leaves, strict=True)]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(loss, leaf)[0] for loss, leaf in zip(losses, leaves, strict=True)))


def test_hybrid__with_a_threshold_that_no_class_exceeds_is_the_gated_surrogate() -> None:
    surrogate, (z, y) = prepared(quota=4, threshold=1e9), batch()
    output = surrogate(z, y)
    torch.testing.assert_close(output.rob_loss, surrogate.screen(z, y).rob_loss)
    assert int(output.diagnostics["refined_classes"]) == 0
    assert output.diagnostics["refined_label"].tolist() == [-1] * 4


def test_hybrid__threshold_keeps_safe_classes_from_being_refined() -> None:
    (z, y) = batch()
    risk = prepared(quota=4).screen(z, y).diagnostics
    by_label = dict(zip(risk["class_label"].tolist()[:-1], risk["class_loss"].tolist(), strict=False))
    surrogate = prepared(quota=4, threshold=(by_label[1] + by_label[2]) / 2)
    assert set(surrogate(z, y).diagnostics["refined_label"].tolist()) == {2, 3, -1}


def test_hybrid__classes_the_slots_do_not_know_yet_keep_their_screened_loss() -> None:
    torch.manual_seed(0)
    surrogate, (z, y) = HybridCEM(WIDTH, 4, quota=4).double(), batch()
    first = surrogate(z, y)
    torch.testing.assert_close(first.rob_loss, surrogate.screen.eval()(z, y).rob_loss)
    assert first.rob_loss > 0


def test_hybrid__slots_of_classes_that_are_not_refined_keep_learning() -> None:
    surrogate = prepared(quota=1)
    alone = SlotMixtureCEM(WIDTH, 4, reg_strength=0.1).double()
    for seed in range(1, 6):
        alone(*batch(seed))
    assert isinstance(surrogate.refine, SlotMixtureCEM)
    torch.testing.assert_close(surrogate.refine.slot_mean[:4], alone.slot_mean[:4])
    torch.testing.assert_close(surrogate.refine.memory.feature[:4], alone.memory.feature[:4])


def test_hybrid__estimators_get_their_gradient_and_the_client_one_for_every_sample() -> None:
    surrogate, (z, y) = prepared(quota=2), batch()
    surrogate(z.requires_grad_(), y).rob_loss.backward()
    assert z.grad is not None and z.grad.norm(dim=1).gt(0).all()
    for part in (surrogate.screen, surrogate.refine):
        assert any(p.grad is not None and p.grad.norm() > 0 for p in part.parameters())


def test_hybrid__each_part_counts_a_call_once() -> None:
    surrogate = HybridCEM(WIDTH, 4)
    surrogate(*batch())
    assert [int(part.calls) for part in (surrogate, surrogate.screen, surrogate.refine)] == [1, 1, 1]


def test_hybrid__compiles_to_one_graph_and_computes_the_same() -> None:
    eager = prepared(quota=2).train()
    compiled = torch.compile(copy.deepcopy(eager), fullgraph=True, backend="eager")
    for seed in (7, 8):
        z, y = batch(seed)
        torch.testing.assert_close(compiled(z, y).rob_loss, eager(z, y).rob_loss)


def test_hybrid__maintain_reaches_the_slots() -> None:
    surrogate = prepared()
    assert isinstance(surrogate.refine, SlotMixtureCEM)
    surrogate.refine.slot_mean.zero_()
    surrogate.maintain()
    assert surrogate.refine.slot_mean[:4].abs().sum() > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quota": 0}, "quota.*0"),
        ({"screen": GatedAttentionCEM(5, objective="frozen")}, "screen.*5.*6"),
        ({"refine": SlotMixtureCEM(7, 2)}, "refine.*7.*6"),
    ],
)
def test_hybrid__bad_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HybridCEM(WIDTH, 4, **arguments)
