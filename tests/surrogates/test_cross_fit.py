"""Cross-fitting: samples that return every epoch are never measured against themselves."""

import copy

import pytest
import torch
from torch import Tensor

from attention_cem import ConditionalEntropySurrogate, GatedAttentionCEM, HybridCEM, SlotMixtureCEM
from attention_cem.surrogates.folds import sample_fold
from attention_cem.testing import SurrogateContract

COVARIANCES = ["diagonal", "isotropic", "low_rank", "full"]
SIGMA = 0.1


class CrossFitContract(SurrogateContract):
    covariance = "diagonal"

    def make(self) -> SlotMixtureCEM:
        return SlotMixtureCEM(6, 8, num_slots=2, bank_size=16, rank=2, covariance=self.covariance, cross_fit=True)

    def warm_up(self, surrogate: ConditionalEntropySurrogate) -> None:
        for seed in range(40, 43):
            self.call(surrogate, *self.batch(48, seed=seed))

    def renamed(self, surrogate: ConditionalEntropySurrogate, z: Tensor, y: Tensor, names: dict[int, int]) -> Tensor:
        assert isinstance(surrogate, SlotMixtureCEM)
        for place, label in enumerate(surrogate.memory.label.tolist()):
            surrogate.memory.label[place] = names.get(label, label)
        return super().renamed(surrogate, z, y, names)


class TestCrossFitContract(CrossFitContract):
    pass


class TestCrossFitFullContract(CrossFitContract):
    covariance = "full"


def small(**arguments: object) -> SlotMixtureCEM:
    return SlotMixtureCEM(6, 3, **{"num_slots": 2, "bank_size": 12, "rank": 2, "reg_strength": 0.2, **arguments})


@pytest.mark.parametrize("cross_fit", [True, False])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_cross_fit__the_past_of_a_sample_has_no_influence_on_its_own_measure(covariance: str, cross_fit: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    y, sample, now = torch.arange(24) % 3, torch.arange(24), torch.randn(24, 6, generator=generator)
    differ = 0
    for own in range(4):
        measures = []
        for past in (0.0, 5.0):
            stream = torch.Generator().manual_seed(1)
            surrogate = small(covariance=covariance, objective="frozen", cross_fit=cross_fit, reseed_every=3)
            for _ in range(8):
                z = torch.randn(24, 6, generator=stream)
                z[own] += past
                surrogate(z, y, sample=sample)
            one = slice(own, own + 1)
            measures.append(surrogate.eval()(now[one], y[one], sample=sample[one]).rob_loss)
        differ += not torch.equal(*measures)
    assert differ == (0 if cross_fit else 4)


def test_cross_fit__without_it_nothing_is_different() -> None:
    plain, told = small(), small(cross_fit=False)
    crossed = small(cross_fit=True).state_dict()
    y = torch.arange(24) % 3
    for seed in range(6):
        z = torch.randn(24, 6, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(plain(z, y).rob_loss, told(z, y, sample=torch.arange(24)).rob_loss)
    shapes = {name: tuple(value.shape) for name, value in plain.state_dict().items()}
    assert shapes.keys() == told.state_dict().keys() and "memory.sample" not in shapes
    assert shapes["memory.feature"] == (4, 12, 6) and crossed["memory.feature"].shape == (8, 6, 6)
    assert shapes["pooled_variance"] == (6,) and shapes["slot_mean"] == (4, 2, 6) and shapes["memory.cursor"] == (4,)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, told.state_dict()[name]), name


@pytest.mark.parametrize("stride", [1, 2, 3, 7, 10, 64, 1000])
def test_sample_fold__no_pattern_of_ids_puts_a_class_into_one_fold(stride: int) -> None:
    ids = torch.arange(4000) * stride + 5
    share = sample_fold(ids).double().mean().item()
    assert abs(share - 0.5) < 4 * 0.5 / 4000**0.5
    assert set(sample_fold(-ids).tolist()) == {0, 1}


def test_sample_fold__ids_in_a_row_are_cut_into_halves() -> None:
    for start in range(0, 200, 2):
        assert sample_fold(torch.arange(start, start + 10)).sum() == 5


def test_cross_fit__a_class_in_one_fold_is_skipped_and_said_so() -> None:
    surrogate, ids = small(cross_fit=True), torch.arange(40)
    first, second = ids[sample_fold(ids) == 0][:6], ids[sample_fold(ids) == 1][:2]
    y = torch.zeros(6, dtype=torch.int64)
    for _ in range(3):
        z = torch.randn(6, 6, requires_grad=True)
        output = surrogate(z, y, sample=first)
        (gradient,) = torch.autograd.grad(output.rob_loss, z)
        assert output.rob_loss == 0 and not gradient.any()
        assert [int(output.diagnostics[k]) for k in ("active_classes", "skipped_classes", "skipped_samples")] == [
            0,
            1,
            6,
        ]
    output = surrogate(torch.randn(4, 6), y[:4], sample=torch.cat([first[:2], second]))
    # the newcomers meet the others' memory; the others still meet nothing
    assert [int(output.diagnostics[k]) for k in ("active_classes", "skipped_classes", "skipped_samples")] == [1, 0, 2]
    output = surrogate(torch.randn(4, 6), y[:4], sample=torch.cat([first[:2], second]))
    assert int(output.diagnostics["skipped_samples"]) == 0


def test_cross_fit__a_sample_that_a_batch_repeats_is_remembered_once() -> None:
    # broke: each of its features counted as a sample, where a batch takes more of a class than it has
    surrogate, sample = small(cross_fit=True), torch.tensor([3, 0, 0, 1, 3, 2, 0])
    z = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        surrogate(z, torch.zeros(7, dtype=torch.int64), sample=sample)
        memory = surrogate.memory
        there = memory.written[:-2] >= 0  # the spare place holds what is not remembered
        held = dict(zip(memory.sample[:-2][there].tolist(), memory.feature[:-2][there], strict=True))
        assert int(there.sum()) == 4
        assert all(torch.equal(held[int(number)], z[place]) for place, number in enumerate(sample) if place > 2)


def test_cross_fit__one_sample_per_class_of_a_thousand_classes() -> None:
    surrogate = SlotMixtureCEM(16, 1000, num_slots=2, bank_size=4, reg_strength=SIGMA, cross_fit=True)
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(1000, 16, generator=generator)
    skipped = []
    for epoch in range(6):
        for y in torch.randperm(1000, generator=generator).split(125):
            z = (centre[y] + 0.1 * torch.randn(125, 16, generator=generator)).requires_grad_()
            output = surrogate(z, y, sample=1000 * (epoch % 4) + y)  # four samples a class
            (gradient,) = torch.autograd.grad(output.rob_loss, z)
            assert output.rob_loss.isfinite() and gradient.isfinite().all()
            assert int(output.diagnostics["active_classes"]) == 125 - int(output.diagnostics["skipped_samples"])
            assert (gradient.norm(dim=1) > 0).sum() == output.diagnostics["active_classes"]
            skipped.append(int(output.diagnostics["skipped_samples"]))
    epochs = [sum(skipped[start : start + 8]) for start in range(0, 48, 8)]
    print(f"of a thousand samples without a mixture, epoch after epoch: {epochs}")
    assert skipped[:8] == [125] * 8
    # four ids at random leave one fold of a class empty with probability 1/8
    assert epochs[-1] / 1000 < 1 / 8 + 4 * (1 / 8 * 7 / 8 / 1000) ** 0.5


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_cross_fit__compiles_to_one_graph_and_computes_the_same(covariance: str) -> None:
    eager = small(cross_fit=True, covariance=covariance, reseed_every=10_000, label_space=3)
    y, sample = torch.arange(24) % 3, torch.arange(24)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        eager(torch.randn(24, 6, generator=generator), y, sample=sample)
    twin = copy.deepcopy(eager)
    compiled = torch.compile(twin, fullgraph=True, backend="eager")
    for _ in range(5, 7):  # calls at which the eager one does not reseed
        z = torch.randn(24, 6, generator=generator)
        torch.testing.assert_close(compiled(z, y, sample=sample).rob_loss, eager(z, y, sample=sample).rob_loss)
        twin.maintain()
        eager.maintain()
    for name in ("slot_mean", "pooled_variance", "memory.feature", "memory.sample", "memory.written"):
        ours, theirs = twin.get_buffer(name), eager.get_buffer(name)
        torch.testing.assert_close(ours[:6], theirs[:6], msg=lambda m, n=name: f"{n}: {m}")


def test_cross_fit__a_promised_label_space_changes_nothing() -> None:
    free, promised = (small(cross_fit=True, label_space=space) for space in (None, 3))
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        z, sample = torch.randn(9, 6, generator=generator), torch.randint(0, 30, (9,), generator=generator)
        losses = [surrogate(z, sample % 3, sample=sample).rob_loss for surrogate in (free, promised)]
        torch.testing.assert_close(*losses)
    assert losses[0] > 0


def test_cross_fit__the_folds_of_a_class_come_and_go_together() -> None:
    surrogate = SlotMixtureCEM(4, 5, num_slots=1, bank_size=6, cross_fit=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        sample = torch.randperm(90, generator=generator)[:5]
        y = sample % 9
        surrogate(torch.randn(5, 4, generator=generator), y, sample=sample)
        written, label = surrogate.memory.written.view(6, -1)[:-1] >= 0, surrogate.memory.label[:-1]
        for held, ids, name in zip(written, surrogate.memory.sample.view(6, -1), label, strict=False):
            assert (ids[held] % 9 == name).all(), "a place holds samples of its class alone"
            assert len(ids[held].unique()) == held.sum(), "and each of them once"


def test_cross_fit__bank_size_counts_both_folds_and_memory_does_not_grow() -> None:
    plain, crossed = small(bank_size=12), small(bank_size=12, cross_fit=True)
    assert plain.memory.feature.numel() == crossed.memory.feature.numel()
    assert small(bank_size=7, cross_fit=True).memory.ring_size == 4
    with pytest.raises(ValueError, match="cross_fit.*'yes'"):
        small(cross_fit="yes")
    with pytest.raises(RuntimeError, match="size mismatch"):
        crossed.load_state_dict(plain.state_dict() | {"memory.sample": crossed.memory.sample})


def test_hybrid__hands_the_samples_to_a_cross_fitted_part() -> None:
    hybrid = HybridCEM(6, 3, quota=3, cross_fit=True, bank_size=12, reg_strength=0.2)
    alone = SlotMixtureCEM(6, 3, bank_size=12, reg_strength=0.2, cross_fit=True)
    y, sample = torch.arange(24) % 3, torch.arange(24)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        z = torch.randn(24, 6, generator=generator)
        both = hybrid(z, y, sample=sample), alone(z, y, sample=sample)
    torch.testing.assert_close(both[0].rob_loss, both[1].rob_loss)
    assert hybrid.uses_sample and both[1].rob_loss > 0
    with pytest.raises(ValueError, match="sample="):
        hybrid(z, y)
    assert not HybridCEM(6, 3).uses_sample and not GatedAttentionCEM(6).uses_sample
