"""What every surrogate must do, as a base test case: inherit it to certify your own.

Use with pytest::

    class TestMySurrogate(SurrogateContract):
        def make(self):
            return MySurrogate(feature_dim=6)
"""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from attention_cem.surrogates.base import ConditionalEntropySurrogate, SurrogateOutput


def refusal(action: Callable[[], object]) -> str:
    """The text of the ValueError that ``action`` must raise."""
    try:
        action()
    except ValueError as error:
        return str(error)
    raise AssertionError("accepted what must be refused with a ValueError")


class SurrogateContract:
    """Properties that hold for every surrogate; subclasses implement :meth:`make`."""

    feature_dim = 6

    def make(self) -> ConditionalEntropySurrogate:
        """A surrogate of ``feature_dim`` features whose loss is active from its first call."""
        raise NotImplementedError("a subclass of SurrogateContract returns its surrogate from make()")

    def batch(self, size: int = 24, classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Random features in float64 and labels that are neither contiguous nor sorted."""
        generator = torch.Generator().manual_seed(seed)
        names = torch.tensor([-5, 0, 7, 1_000_003, 12, 99, 3, 8][:classes])
        y = names[torch.randint(0, classes, (size,), generator=generator)]
        return torch.randn(size, self.feature_dim, dtype=torch.float64, generator=generator), y

    def prepared(self) -> ConditionalEntropySurrogate:
        """The surrogate in float64 and evaluation mode (state does not move), ready for :meth:`batch`."""
        torch.manual_seed(0)
        surrogate = self.make().double()
        self.warm_up(surrogate)
        return surrogate.eval()

    def call(
        self, surrogate: ConditionalEntropySurrogate, z: Tensor, y: Tensor, sample: Tensor | None = None
    ) -> SurrogateOutput:
        """The surrogate's output; samples are numbered, in order unless told, where it ``uses_sample``."""
        if not surrogate.uses_sample:
            return surrogate(z, y)
        return surrogate(z, y, sample=torch.arange(len(y)) if sample is None else sample)

    def warm_up(self, surrogate: ConditionalEntropySurrogate) -> None:
        """Override where a surrogate needs data before its first batch (fitting, filling a bank)."""

    def test_contract__output_is_a_scalar_with_a_graph_and_detached_diagnostics(self) -> None:
        z, y = self.batch()
        z.requires_grad_()
        output = self.call(self.prepared(), z, y)
        assert output.rob_loss.shape == () and output.rob_loss.requires_grad
        assert output.rob_loss > 0, "make() must return a surrogate that is active"
        assert output.intra_mse.shape == () and not output.intra_mse.requires_grad
        assert all(not value.requires_grad for value in output.diagnostics.values())
        for name in ("active_classes", "skipped_classes"):
            assert name in output.diagnostics

    def test_contract__shapes_without_samples_or_partners_give_a_zero_gradient_not_an_error(self) -> None:
        surrogate = self.prepared()
        for size in (0, 1):
            z, y = self.batch(size)
            z.requires_grad_()
            output = self.call(surrogate, z, y)
            output.rob_loss.backward()
            assert torch.isfinite(output.rob_loss) and z.grad is not None and torch.isfinite(z.grad).all()

    def test_contract__order_and_names_of_classes_do_not_matter(self) -> None:
        surrogate = self.prepared()
        z, y = self.batch()
        loss, mse, _ = self.call(surrogate, z, y)
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
        permuted = self.call(surrogate, z[order], y[order], order)
        torch.testing.assert_close(permuted.rob_loss, loss, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(permuted.intra_mse, mse, rtol=1e-10, atol=1e-12)
        renamed = self.renamed(surrogate, z, y, {label: 1000 - 13 * label for label in y.unique().tolist()})
        torch.testing.assert_close(renamed, loss, rtol=1e-10, atol=1e-12)

    def renamed(self, surrogate: ConditionalEntropySurrogate, z: Tensor, y: Tensor, names: dict[int, int]) -> Tensor:
        """The loss after renaming labels; override where the state holds label names."""
        return self.call(surrogate, z, torch.tensor([names[label] for label in y.tolist()])).rob_loss

    def test_contract__image_shaped_features_equal_flat_ones(self) -> None:
        surrogate = self.prepared()
        z, y = self.batch()
        losses = [self.call(surrogate, shaped, y).rob_loss for shaped in (z.view(len(y), 3, 2, 1), z)]
        torch.testing.assert_close(*losses)

    def test_contract__any_float_dtype_is_taken(self) -> None:
        surrogate = self.prepared().float()
        z, y = self.batch()
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            leaf = z.to(dtype).requires_grad_()
            output = self.call(surrogate, leaf, y)
            output.rob_loss.backward()
            assert output.rob_loss.dtype == torch.float32 and leaf.grad is not None and leaf.grad.dtype == dtype

    def test_contract__gradcheck(self) -> None:
        surrogate = self.prepared()
        z, y = self.batch(12, 3)
        assert torch.autograd.gradcheck(lambda z: self.call(surrogate, z, y).rob_loss, z.requires_grad_(), atol=1e-6)

    def test_contract__nonfinite_features_reach_the_loss_and_are_counted(self) -> None:
        for bad in (float("nan"), float("inf")):
            surrogate = self.prepared().train()
            z, y = self.batch()
            z[3, 2] = bad
            output = self.call(surrogate, z, y)
            assert not torch.isfinite(output.rob_loss)
            assert int(output.diagnostics["nonfinite_calls"]) == 1

    def test_contract__save_load_continue_is_bit_identical(self) -> None:
        first = self.prepared().train()
        for seed in range(3):
            self.call(first, *self.batch(seed=seed))
        torch.manual_seed(99)
        second = self.make().double().train()
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        for seed in range(3, 6):
            z, y = self.batch(seed=seed)
            ours, theirs = self.call(first, z, y), self.call(second, z, y)
            assert torch.equal(ours.rob_loss, theirs.rob_loss) and torch.equal(ours.intra_mse, theirs.intra_mse)
            for name, value in ours.diagnostics.items():
                assert torch.equal(value, theirs.diagnostics[name]), name

    def test_contract__state_of_another_kind_is_refused(self) -> None:
        surrogate = self.make()
        state = copy.deepcopy(surrogate.state_dict())
        state["kind_tag"] = torch.zeros_like(state["kind_tag"])
        for broken in (state, {}):
            message = refusal(partial(surrogate.load_state_dict, broken))
            assert surrogate.kind in message or "kind_tag" in message

    def test_contract__bad_input_is_refused_with_what_was_received(self) -> None:
        surrogate = self.prepared()
        z, y = self.batch()
        for features, labels, received in (
            (z[:, :4], y, "(24, 4)"),
            (z[0], y, "(6,)"),
            (z, y.float(), "float32"),
            (z, y[:5], "(5,)"),
            (z, y[:, None], "(24, 1)"),
            (z.long(), y, "int64"),
        ):
            assert received in refusal(partial(self.call, surrogate, features, labels))

    def test_contract__sample_is_asked_for_where_it_is_used_and_ignored_elsewhere(self) -> None:
        surrogate = self.prepared()
        z, y = self.batch()
        if not surrogate.uses_sample:
            assert torch.equal(surrogate(z, y, sample=torch.arange(len(y))).rob_loss, surrogate(z, y).rob_loss)
            return
        assert "sample" in refusal(partial(surrogate, z, y))
        for wrong, received in ((torch.arange(5), "(5,)"), (torch.zeros(len(y)), "float32")):
            assert received in refusal(partial(surrogate, z, y, sample=wrong))
