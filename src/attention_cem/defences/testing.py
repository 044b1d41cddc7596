"""The test case every defence inherits, ours and yours: what the rest of the library relies on.

Subclass it in a test file, name the subclass ``Test...``, return your defence from ``make``::

    class TestMyDefence(DefenceContract):
        stochastic = True

        def make(self):
            return MyDefence(strength=0.5)
"""

from __future__ import annotations

import json
from typing import ClassVar

import torch
from torch import Tensor

from .base import Defence, FeatureDefence, PenaltyDefence
from .registry import build_defence
from .stack import DefenceStack, build_stack


class DefenceContract:
    """Checks that hold for every defence; ``make`` gives a fresh one with the same parameters every time."""

    z_shape: ClassVar[tuple[int, ...]] = (8, 4, 4)
    image_shape: ClassVar[tuple[int, ...]] = (3, 16, 16)
    stochastic: ClassVar[bool] = False

    def make(self) -> Defence:
        """Return the defence under test."""
        raise NotImplementedError("a subclass of DefenceContract returns its defence from make()")

    def batch(self, size: int = 6) -> tuple[Tensor, Tensor, Tensor]:
        """Images in [0, 1], features that require gradients, and labels: the same ones at every call."""
        generator = torch.Generator().manual_seed(size)
        x = torch.rand((size, *self.image_shape), generator=generator)
        z = torch.randn((size, *self.z_shape), generator=generator).requires_grad_()
        return x, z, torch.arange(size) % 3

    def test_contract__train_and_eval_mode_apply_the_same(self) -> None:
        """The trainer (train mode) and the validator (eval mode) release the same thing, bit for bit."""
        _, z, _ = self.batch()
        stack = DefenceStack([self.make()])
        released = []
        for mode in (True, False):
            torch.manual_seed(0)
            released.append(stack.train(mode)(z))
        assert torch.equal(*released)

    def test_contract__released_feature_keeps_its_form(self) -> None:
        """Shape, dtype and finiteness survive, also for one sample and for none."""
        stack = DefenceStack([self.make()])
        for size in (6, 1, 0):
            _, z, _ = self.batch(size)
            released = stack(z)
            assert released.shape == z.shape
            assert released.dtype == z.dtype
            assert bool(torch.isfinite(released).all())

    def test_contract__randomness_is_fresh_or_absent(self) -> None:
        """A stochastic defence draws anew at every call; any other repeats itself."""
        _, z, _ = self.batch()
        stack = DefenceStack([self.make()]).eval()
        assert torch.equal(stack(z), stack(z)) != self.stochastic

    def test_contract__own_generator_repeats_and_leaves_the_global_one_alone(self) -> None:
        """With ``stack.generator`` the noise is a function of its seed alone."""
        _, z, _ = self.batch()
        stack = DefenceStack([self.make()])
        before = torch.get_rng_state()
        released = []
        for _ in range(2):
            stack.generator = torch.Generator().manual_seed(7)
            released.append(stack(z))
        assert torch.equal(*released)
        assert torch.equal(before, torch.get_rng_state())

    def test_contract__supplied_noise_replaces_the_generator(self) -> None:
        """``draws`` lists what is drawn: the same numbers handed in release the same feature."""
        _, z, _ = self.batch()
        stack = DefenceStack([self.make()])
        stack.generator = torch.Generator().manual_seed(7)
        same = torch.Generator().manual_seed(7)
        drawers = {"normal": torch.randn, "uniform": torch.rand}
        noise = [drawers[kind](z.shape, generator=same) for kind in stack.draws()]
        assert bool(noise) == self.stochastic
        assert torch.equal(stack(z), stack.release(z, noise))

    def test_contract__input_is_not_written_to(self) -> None:
        """z is the caller's."""
        _, z, _ = self.batch()
        before = z.detach().clone()
        DefenceStack([self.make()])(z)
        assert torch.equal(before, z.detach())

    def test_contract__gradients_are_finite(self) -> None:
        """The client can train through the released feature and through the penalties."""
        x, z, y = self.batch()
        stack = DefenceStack([self.make()])
        total = stack(z).square().sum() + sum(stack.penalties(x, z, y).values())
        (gradient,) = torch.autograd.grad(total, z)
        assert bool(torch.isfinite(gradient).all())
        assert bool((gradient != 0).any())

    def test_contract__penalties_are_attached_scalars(self) -> None:
        """Each term is a finite scalar with a graph, for any batch size, in both modes the same."""
        stack = DefenceStack([self.make()])
        for size in (6, 1, 0):
            x, z, y = self.batch(size)
            values = []
            for mode in (True, False):
                torch.manual_seed(0)
                values.append(stack.train(mode).penalties(x, z, y))
            assert set(values[0]) == {d.name for d in stack.defences.values() if isinstance(d, PenaltyDefence)}
            for name, value in values[0].items():
                assert value.shape == ()
                assert value.requires_grad
                assert bool(torch.isfinite(value))
                assert torch.equal(value, values[1][name])

    def test_contract__description_is_plain_and_rebuilds_the_defence(self) -> None:
        """Description through JSON, plus state_dict, gives a defence that releases the same."""
        defence = self.make()
        description = json.loads(json.dumps(defence.describe()))
        assert len(description["guarantee"].split()) > 5
        rebuilt = build_defence(description)
        assert type(rebuilt) is type(defence)
        assert rebuilt.describe() == defence.describe()
        stack, again = DefenceStack([defence]), build_stack([description])
        again.load_state_dict(stack.state_dict(), strict=True)
        _, z, _ = self.batch()
        released = []
        for each in (stack, again):
            torch.manual_seed(0)
            released.append(each(z))
        assert torch.equal(*released)

    def test_contract__state_is_tensors(self) -> None:
        """Checkpoints hold tensors and JSON, never pickles."""
        assert all(isinstance(value, Tensor) for value in DefenceStack([self.make()]).state_dict().values())

    def test_contract__noise_variance_is_measured(self) -> None:
        """A defence that states the variance of its noise adds noise of that variance."""
        defence = self.make()
        if not isinstance(defence, FeatureDefence):
            return
        stated = defence.noise_variance()
        if not stated:
            return
        z = torch.zeros(4000, *self.z_shape)
        torch.manual_seed(0)
        noise = defence(z).double()
        # 4000 · 128 draws: the standard error of a variance is below 0.4 % even for Laplace noise.
        assert abs(float(noise.var()) / stated - 1) < 0.02
        assert abs(float(noise.mean())) < 0.01 * stated**0.5
