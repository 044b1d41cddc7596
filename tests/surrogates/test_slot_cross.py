import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_cem import SlotCrossAttentionCEM
from attention_cem.testing import SurrogateContract
from attention_cem.testing.plain_loops import slot_cross_loop
from tests.surrogates.helpers import LABELS, assert_equals_loop, features

ALWAYS_ON = {"early_shut_steps": 0, "early_hard_thresh": 1.0, "early_gate_thresh": 1.0}


def make(width: int = 6, **kwargs) -> SlotCrossAttentionCEM:
    torch.manual_seed(0)
    settings = {"num_slots": 3, "num_heads": 2, **ALWAYS_ON, **kwargs}
    return SlotCrossAttentionCEM(width, **settings)


class TestSlotCrossContract(SurrogateContract):
    def make(self) -> SlotCrossAttentionCEM:
        return make()


@settings(deadline=None, max_examples=40)
@given(LABELS, st.integers(0, 5), st.sampled_from(["input", "enriched"]), st.sampled_from([None, 4]))
def test_slot_cross__equals_the_plain_loop(labels: list[int], seed: int, assign_on: str, slot_dim: int | None) -> None:
    surrogate = make(assign_on=assign_on, slot_dim=slot_dim).double().eval()
    assert_equals_loop(surrogate, slot_cross_loop, *features(labels, 6, seed))


@pytest.mark.parametrize("labels", [[], [4], [4] * 5, list(range(9)), [1, 1, 2, 2, 3, 3]])
def test_slot_cross__equals_the_plain_loop_at_the_edges(labels: list[int]) -> None:
    surrogate = make().double().eval()
    z, y = features(labels, 6, 0)
    assert_equals_loop(surrogate, slot_cross_loop, z, y)


def test_slot_cross__static_rows_equal_exact_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    surrogate = make().double().eval()
    z, y = features([1, 1, 1, 2, 2, 2, 2, 3, 4, 5, 5, 5], 6, 0)
    exact = surrogate(z, y)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    bound = surrogate(z, y)
    assert len(bound.diagnostics["class_loss"]) > len(exact.diagnostics["class_loss"])
    torch.testing.assert_close(bound.rob_loss, exact.rob_loss, rtol=1e-12, atol=1e-14)


def test_slot_cross__shut_off_while_the_first_calls_last() -> None:
    surrogate = make(early_shut_steps=3)
    z, y = torch.randn(12, 6, requires_grad=True), torch.arange(12) % 2
    losses = []
    for _ in range(5):
        output = surrogate(z, y)
        losses.append(output.rob_loss.item())
        assert output.rob_loss.requires_grad
    assert losses[:3] == [0, 0, 0] and losses[3] > 0 and losses[4] > 0
    assert output.diagnostics["shutoff_share"].item() == pytest.approx(3 / 5)
    assert int(surrogate.shut_calls) == 3 and int(surrogate.calls) == 5


def test_slot_cross__shut_off_gives_an_exactly_zero_gradient() -> None:
    surrogate = make(early_hard_thresh=-1)
    z, y = torch.randn(12, 6, requires_grad=True), torch.arange(12) % 2
    output = surrogate(z, y)
    output.rob_loss.backward()
    assert output.rob_loss.item() == 0 and bool(output.diagnostics["shut_off"])
    assert z.grad is not None and (z.grad == 0).all()


def test_slot_cross__documents_defaults_shut_off_on_every_call() -> None:
    # The defect of the design as written: layer-normed features have means near zero, the "SNR" gate stays open.
    torch.manual_seed(0)
    surrogate = SlotCrossAttentionCEM(64)
    y = torch.arange(64) % 4
    for _ in range(130):
        output = surrogate(torch.randn(64, 64), y)
    assert output.diagnostics["shutoff_share"].item() == 1
    assert output.diagnostics["running_snr_gate"].item() > 0.5


def test_slot_cross__running_gates_follow_their_momentum() -> None:
    surrogate = make(gate_momentum=0.75)
    y = torch.arange(12) % 2
    seen = [surrogate(torch.randn(12, 6), y).diagnostics["snr_gate_mean"] for _ in range(3)]
    expected = 0.75 * (0.75 * seen[0] + 0.25 * seen[1]) + 0.25 * seen[2]
    torch.testing.assert_close(surrogate.running_snr_gate, expected)


def test_slot_cross__batches_without_active_classes_leave_the_running_gates_alone() -> None:
    surrogate = make()
    surrogate(torch.randn(12, 6), torch.arange(12) % 2)
    before = surrogate.running_snr_gate.clone()
    output = surrogate(torch.randn(5, 6), torch.arange(5))
    assert torch.equal(before, surrogate.running_snr_gate)
    assert int(output.diagnostics["active_classes"]) == 0 and int(output.diagnostics["skipped_classes"]) == 5


def test_slot_cross__evaluation_does_not_move_the_state() -> None:
    surrogate = make().eval()
    before = {k: v.clone() for k, v in surrogate.state_dict().items()}
    surrogate(torch.randn(12, 6), torch.arange(12) % 2)
    assert all(torch.equal(before[k], v) for k, v in surrogate.state_dict().items())


def test_slot_cross__gate_line_is_logged_once_in_n_calls(caplog: pytest.LogCaptureFixture) -> None:
    surrogate = make(log_every=4)
    with caplog.at_level(logging.INFO, logger="attention_cem"):
        for _ in range(9):
            surrogate(torch.randn(12, 6), torch.arange(12) % 2)
    assert len([r for r in caplog.records if "[CEM-GATE]" in r.message]) == 3


def test_slot_cross__scalars_are_learned_or_frozen_by_name() -> None:
    learned = {n for n, _ in make(learnable=["assign_temp"]).named_parameters() if "." not in n}
    assert learned == {"assign_temp"}
    assert "assign_temp" in dict(make(learnable=False).named_buffers())
    with pytest.raises(ValueError, match="no such scalar.*nonsense"):
        make(learnable=["nonsense"])


def test_slot_cross__gate_does_not_grow_with_the_square_of_the_width() -> None:
    sizes = []
    for width in (4096, 32768):
        with torch.device("meta"):
            from attention_cem.surrogates.gates import DimensionGate

            sizes.append(sum(p.numel() for p in DimensionGate(width).parameters()))
    assert sizes[1] / sizes[0] < 8.1


def test_slot_cross__wide_features_work_through_slot_dim() -> None:
    surrogate = SlotCrossAttentionCEM(32768, slot_dim=32, **ALWAYS_ON)
    z = torch.randn(8, 32, 32, 32, requires_grad=True)
    surrogate(z, torch.arange(8) % 2).rob_loss.backward()
    assert torch.isfinite(z.grad).all() and z.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"feature_dim": 6, "num_slots": -1}, "num_slots.*-1"),
        ({"feature_dim": 6, "num_slots": 2.5}, "num_slots.*2.5"),
        ({"feature_dim": 6, "num_heads": 4}, "divisible.*6 and 4"),
        ({"feature_dim": 0}, "feature_dim.*0"),
        ({"feature_dim": 8, "reg_strength": 0.0}, "reg_strength.*0.0"),
        ({"feature_dim": 8, "reg_strength": float("nan")}, "reg_strength.*nan"),
        ({"feature_dim": 8, "assign_on": "both"}, "assign_on.*'both'"),
        ({"feature_dim": 8, "gate_momentum": 1.0}, "gate_momentum.*1.0"),
        ({"feature_dim": 8, "early_shut_steps": -2}, "early_shut_steps.*-2"),
        ({"feature_dim": 32768}, "slot_dim"),
    ],
)
def test_slot_cross__bad_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SlotCrossAttentionCEM(**arguments)
