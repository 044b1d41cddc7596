import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attention_cem.defences import DefenceStack, DistanceCorrelation, build_stack
from attention_cem.splitting import SplitModel
from attention_cem.surrogates import GatedAttentionCEM, build_surrogate
from attention_cem.surrogates.base import ConditionalEntropySurrogate, SurrogateOutput
from attention_cem.training.activation import SurrogateMode
from attention_cem.training.config import SurrogateConfig, TrainConfig
from attention_cem.training.nonfinite import NonFiniteMonitor, TrainingFailedError
from attention_cem.training.optimisers import ESTIMATOR, TASK, build_optimiser, set_lr
from attention_cem.training.step import StepSettings, TrainingStep

from .helpers import SURROGATES

LAMBDA, SCALE = 16.0, 0.25


def halves() -> SplitModel:
    torch.manual_seed(0)
    client = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6), nn.Conv2d(6, 2, 3, padding=1))
    server = nn.Sequential(nn.Flatten(), nn.Linear(2 * 4 * 4, 16), nn.ReLU(), nn.Linear(16, 3))
    return SplitModel(client, server).double()


def batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(18, 3, 8, 8, generator=generator, dtype=torch.float64), torch.arange(18) % 3


def make_surrogate(name: str) -> ConditionalEntropySurrogate:
    torch.manual_seed(1)
    arguments = {**SURROGATES.get(name, {}), **({"slot_dim": None} if name == "slot_cross" else {})}
    surrogate = build_surrogate(name, feature_dim=32, num_classes=3, reg_strength=0.1, **arguments).double()
    if surrogate.needs_fit:
        surrogate.fit(torch.randn(60, 32, dtype=torch.float64), torch.arange(60) % 3)
    return surrogate


def make_step(
    model: SplitModel,
    surrogate: ConditionalEntropySurrogate | None,
    stack: DefenceStack | None = None,
    *,
    limit: int = 5,
    **settings: Any,
) -> TrainingStep:
    stack = stack or DefenceStack()
    task = [*model.parameters(), *stack.trainable_parameters()]
    optimiser = build_optimiser(
        task,
        [] if surrogate is None else surrogate.parameters(),
        TrainConfig(lr=0.01, weight_decay=0.0),
        SurrogateConfig(lr=0.003),
    )
    return TrainingStep(
        model, stack, surrogate, optimiser, StepSettings(**settings), monitor=NonFiniteMonitor(limit=limit)
    )


def two_backward_training(
    model: SplitModel, surrogate: ConditionalEntropySurrogate, stack: DefenceStack, steps: int
) -> None:
    """The procedure as its source states it: two passes through the client, gradients added afterwards."""
    groups = [
        {"params": [*model.parameters()], "lr": 0.01},
        {"params": [*surrogate.parameters()], "lr": 0.003},
    ]
    optimiser = torch.optim.SGD(groups, momentum=0.9)
    for number in range(steps):
        images, labels = batch(number)
        z = model.client(images)
        optimiser.zero_grad()
        (SCALE * surrogate(z, labels).rob_loss).backward(retain_graph=True)
        of_client = [parameter.grad.clone() for parameter in model.client.parameters()]
        model.zero_grad()
        task_loss = nn.functional.cross_entropy(model.server(z), labels)
        for penalty in stack.penalties(images, z, labels).values():
            task_loss = task_loss + penalty
        task_loss_gradients = torch.autograd.grad(task_loss, [*model.parameters()])
        for parameter, gradient in zip(model.parameters(), task_loss_gradients, strict=True):
            parameter.grad = gradient
        for parameter, gradient in zip(model.client.parameters(), of_client, strict=True):
            parameter.grad += LAMBDA * gradient
        optimiser.step()


@pytest.mark.parametrize("name", sorted(SURROGATES))
def test_training_step__equals_two_backward_training_over_20_steps(name: str) -> None:
    model, surrogate = halves(), make_surrogate(name)
    plain_model, plain_surrogate = copy.deepcopy((model, surrogate))
    stack = DefenceStack([DistanceCorrelation(weight=0.3)])
    two_backward_training(plain_model, plain_surrogate, stack, steps=20)

    step = make_step(model, surrogate, stack, attention_loss_scale=SCALE)
    step.lambd.fill_(LAMBDA)
    before = copy.deepcopy(model.state_dict())
    for number in range(20):
        step(*batch(number), SurrogateMode.ACTIVE)
    for ours, theirs in ((model, plain_model), (surrogate, plain_surrogate)):
        for (key, value), other in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
            torch.testing.assert_close(value, other, rtol=1e-9, atol=1e-9, msg=lambda m, k=key: f"{k}: {m}")
    assert not torch.equal(before["client.0.weight"], model.state_dict()["client.0.weight"])


@pytest.mark.parametrize("mode", [SurrogateMode.OBSERVE, SurrogateMode.OFF])
def test_training_step__an_inactive_surrogate_changes_neither_model_nor_estimator(mode: SurrogateMode) -> None:
    model, surrogate = halves(), make_surrogate("gated")
    alone = copy.deepcopy(model)
    estimator = copy.deepcopy(list(surrogate.parameters()))
    step, plain = make_step(model, surrogate), make_step(alone, None)
    step.lambd.fill_(LAMBDA)
    for number in range(5):
        step(*batch(number), mode)
        plain(*batch(number), SurrogateMode.OFF)
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(surrogate.parameters(), estimator, strict=True):
        assert torch.equal(ours, theirs)
    assert int(surrogate.calls) == (5 if mode is SurrogateMode.OBSERVE else 0), "a memory must be fed in the warm-up"


def test_training_step__penalties_reach_the_client_through_the_cut() -> None:
    stack = DefenceStack([DistanceCorrelation(weight=100.0)])
    model, alone = halves(), halves()
    make_step(model, None, stack).gradients(*batch(0), SurrogateMode.OFF)
    images, labels = batch(0)
    z = alone.client(images)
    penalty = stack.penalties(images, z, labels)["distance_correlation"]
    (nn.functional.cross_entropy(alone.server(z), labels) + penalty).backward()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


def test_training_step__meter_holds_the_means_of_the_steps() -> None:
    model, surrogate = halves(), make_surrogate("gated")
    step = make_step(model, surrogate)
    losses = []
    for number in range(4):
        values = step.gradients(*batch(number), SurrogateMode.OBSERVE)
        step.meter.add(values)
        losses.append(float(values["train_loss"]))
    means = step.meter.means()
    assert means["train_loss"] == pytest.approx(sum(losses) / 4, rel=1e-6)
    assert {"rob_loss", "intra_mse", "train_accuracy", "surrogate.active_classes"} <= means.keys()
    assert "attention" in step.last_vectors


def test_training_step__intra_mse_without_a_surrogate_is_that_of_one() -> None:
    with_one = make_step(halves(), make_surrogate("gated")).gradients(*batch(0), SurrogateMode.OBSERVE)
    without = make_step(halves(), None).gradients(*batch(0), SurrogateMode.OFF)
    torch.testing.assert_close(without["intra_mse"], with_one["intra_mse"])
    assert "rob_loss" not in without


class Scripted(GatedAttentionCEM):
    """A surrogate whose loss is not finite at the calls named in ``bad``."""

    bad: frozenset[int] = frozenset()

    def forward(self, z: Tensor, y: Tensor, *rest: Any) -> SurrogateOutput:
        output = super().forward(z, y, *rest)
        factor = torch.nan if int(self.calls) in self.bad else 1.0
        return output._replace(rob_loss=output.rob_loss * factor)


def scripted(bad: set[int]) -> Scripted:
    torch.manual_seed(1)
    surrogate = Scripted(32).double()
    surrogate.bad = frozenset(bad)
    return surrogate


def test_nonfinite__the_step_trains_without_the_surrogate_and_is_counted() -> None:
    model, alone = halves(), halves()
    step, plain = make_step(model, scripted({1})), make_step(alone, None)
    step.lambd.fill_(LAMBDA)
    step(*batch(0), SurrogateMode.ACTIVE)
    plain(*batch(0), SurrogateMode.OFF)
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert step.monitor.check("now") == 1
    assert step.meter.means().get("rob_loss") is None, "a value that is no number must not enter a mean"


@pytest.mark.parametrize(("bad", "stops"), [({1, 2, 4, 5, 7}, False), ({2, 3, 4}, True)])
def test_nonfinite__only_many_in_a_row_stop_training(bad: set[int], stops: bool) -> None:
    step = make_step(halves(), scripted(bad), limit=3)
    for number in range(8):
        step(*batch(number), SurrogateMode.ACTIVE)
    if stops:
        with pytest.raises(TrainingFailedError, match=r"epoch 2: .* not finite on 3 steps in a row"):
            step.monitor.check("epoch 2")
    else:
        assert step.monitor.check("epoch 2") == 5


def test_nonfinite__a_spoilt_task_loss_stops_training() -> None:
    step = make_step(halves(), None)
    images, labels = batch(0)
    step(images * torch.inf, labels, SurrogateMode.OFF)
    with pytest.raises(TrainingFailedError, match="task loss was not finite.*start again in another run.folder"):
        step.monitor.check("epoch 1")


def test_build_optimiser__the_estimator_has_its_own_group_from_the_start() -> None:
    model, surrogate = halves(), make_surrogate("gated")
    optimiser = build_optimiser(
        model.parameters(), surrogate.parameters(), TrainConfig(lr=0.1), SurrogateConfig(lr=0.003, weight_decay=0.5)
    )
    assert [group["lr"] for group in optimiser.param_groups] == [0.1, 0.003]
    assert [group["weight_decay"] for group in optimiser.param_groups] == [5e-4, 0.5]
    set_lr(optimiser, TASK, 0.2)
    assert [group["lr"] for group in optimiser.param_groups] == [0.2, 0.003]
    assert len(optimiser.param_groups[ESTIMATOR]["params"]) == len(list(surrogate.parameters()))


@pytest.mark.parametrize("limit", [0.01, None])
def test_training_step__clip_norm_bounds_the_gradient(limit: float | None) -> None:
    model = halves()
    make_step(model, None, clip_norm=limit)(*batch(0), SurrogateMode.OFF)
    norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    assert bool(norm <= 0.01 + 1e-6) is (limit is not None)


def test_training_step__defences_with_their_own_layers_are_trained() -> None:
    stack = build_stack([{"name": "information_bottleneck", "weight": 0.1, "z_shape": [2, 4, 4]}]).double()
    before = copy.deepcopy(stack.state_dict())
    step = make_step(halves(), make_surrogate("gated"), stack)
    step.lambd.fill_(1.0)
    step(*batch(0), SurrogateMode.ACTIVE)
    changed = [not torch.equal(value, stack.state_dict()[key]) for key, value in before.items()]
    assert all(changed)


def test_training_step__the_surrogate_trains_the_layers_of_a_defence_in_front_of_it() -> None:
    """λ times the gradient that rob_loss has in them: they belong to the client."""
    gradients = []
    for lambd in (0.0, 3.0, 6.0):
        stack = build_stack([{"name": "information_bottleneck", "weight": 0.1, "z_shape": [2, 4, 4]}]).double()
        step = make_step(halves(), make_surrogate("gated"), stack)
        step.lambd.fill_(lambd)
        torch.manual_seed(7)
        step.gradients(*batch(0), SurrogateMode.ACTIVE)
        gradients.append([parameter.grad.clone() for parameter in stack.trainable_parameters()])
    none, once, twice = gradients
    parts = [(b - a, c - a) for a, b, c in zip(none, once, twice, strict=True)]
    assert any(bool(part.any()) for part, _ in parts)
    for part, double in parts:
        torch.testing.assert_close(double, 2 * part)
