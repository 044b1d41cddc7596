"""Train an inverter on the attacker's data: shuffled, fresh noise at every visit, judged on images of its own.

Reference setting (arXiv 2503.00383): Adam, learning rate 1e-3, weight decay 1e-4, cosine, 50 epochs, batches of 256.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention_cem.attacks.attacker_data import AttackerData
from attention_cem.attacks.receipts import CONVERGENCE_TOLERANCE, CurvePoint, probe_verdict
from attention_cem.attacks.repeated_step import (
    adam,
    fast_convolutions,
    mixed_precision,
    repeated_step,
    set_learning_rate,
)
from attention_cem.data import mse_per_image, to_float
from attention_cem.data.layout import prefers_channels_last

_PROBE_RATE = 0.5  # of the learning rate: high enough to move on, low enough not to forget
_SMALLEST_BATCH = 8
_CALIBRATION_EPOCHS = 50  # the reference schedule; whoever works after fewer epochs works after more
EpochDone = Callable[[int, int, float], None]


@dataclass(frozen=True)
class TrainingPlan:
    """How long and how fast to train.

    Args:
        epochs: passes over the attacker's images in the main schedule.
        batch_size: images a step, for sets large enough; see ``least_steps``.
        least_steps: steps an epoch has at least. Small sets are cut into smaller batches (of 8 at least): two steps
            an epoch would leave any inverter under-trained.
        lr: the learning rate the cosine starts from.
        weight_decay: L2 penalty, as Adam takes it.
        probe: after the schedule, train on for half as many epochs from a restarted learning rate to see whether
            that helps. What the probe gains is kept.
    """

    epochs: int = 50
    batch_size: int = 256
    lr: float = 1e-3
    weight_decay: float = 1e-4
    probe: bool = True
    least_steps: int = 50

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch_size, self.least_steps) < 1 or self.lr <= 0 or self.weight_decay < 0:
            raise ValueError(f"a training plan needs positive epochs, batch_size, least_steps and lr, got {self}")

    def batch_for(self, images: int) -> int:
        """Images a step when the attacker has so many to train on.

        >>> TrainingPlan().batch_for(45_000), TrainingPlan().batch_for(1000), TrainingPlan().batch_for(100)
        (256, 20, 8)
        """
        return min(self.batch_size, images, max(_SMALLEST_BATCH, images // self.least_steps))

    def for_calibration(self) -> TrainingPlan:
        """The same without a probe, and no longer than the reference: it is asked whether the attack works.

        >>> TrainingPlan(epochs=150).for_calibration()
        TrainingPlan(epochs=50, batch_size=256, lr=0.001, weight_decay=0.0001, probe=False, least_steps=50)
        """
        return replace(self, epochs=min(self.epochs, _CALIBRATION_EPOCHS), probe=False)

    @property
    def probe_epochs(self) -> int:
        """Epochs of extra training that decide on convergence."""
        return max(2, self.epochs // 2) if self.probe else 0


@dataclass(frozen=True, eq=False)
class TrainedInverter:
    """The network at the epoch with the lowest validation MSE (it carries those weights), and how it got there."""

    network: nn.Module
    curve: tuple[CurvePoint, ...]
    converged: bool
    reason: str
    train_mse: float
    validation_mse: float


def train_inverter(
    network: nn.Module,
    data: AttackerData,
    plan: TrainingPlan,
    *,
    compiled: bool = False,
    epoch_done: EpochDone = lambda *_: None,
) -> TrainedInverter:
    """Train ``network`` z → x for the plan's schedule, probe for convergence, and keep the best epoch.

    Randomness comes from torch's global generators; seed them around the call. ``compiled``: the training step calls
    the network's compiled form; scoring, in batches of several sizes, does not.
    """
    rebuild = torch.compile(network, dynamic=False) if compiled else network
    total = plan.epochs + plan.probe_epochs
    visits = len(data) * sum(parameter.numel() for parameter in network.parameters())
    curve: list[CurvePoint] = []
    best = _Best(network)

    def record(validation_mse: float) -> None:
        curve.append(CurvePoint(float(visits * (len(curve) + 1)), len(curve) + 1, validation_mse))
        best.offer(validation_mse)
        epoch_done(len(curve), total, best.mse)

    with fast_convolutions(data.device):
        _train(network, rebuild, data, plan, plan.lr, plan.epochs, record)
        best.restore()
        converged, reason = False, "not probed: whether more training would help is not known"
        if plan.probe:
            before = best.mse
            _train(network, rebuild, data, plan, plan.lr * _PROBE_RATE, plan.probe_epochs, record)
            best.restore()
            converged, reason = probe_verdict(before, best.mse, plan.probe_epochs)
    # A flat curve above the blind guess is a network that has not begun to learn, not one that has finished.
    blind = float(mse_per_image(data.mean_image().expand_as(data.validation_images), data.validation_images).mean())
    if best.mse > blind * (1 + CONVERGENCE_TOLERANCE):
        converged, reason = False, f"stuck: validation MSE {best.mse:.5f}, the mean image alone gives {blind:.5f}"
    network.eval()
    return TrainedInverter(network, tuple(curve), converged, reason, _train_mse(network, data), best.mse)


def validation_mse(network: nn.Module, features: Tensor, images: Tensor) -> Tensor:
    """Mean of the per-image MSE in evaluation mode, a scalar tensor; the mode is put back."""
    was_training = network.training
    network.eval()
    with torch.no_grad():
        pairs = zip(features.split(1024), images.split(1024), strict=True)
        errors = torch.cat([mse_per_image(network(z).float(), x) for z, x in pairs])
    network.train(was_training)
    return errors.mean()


class _Best:
    """Weights at the lowest validation MSE so far, on the device."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self.mse = math.inf
        self._state: dict[str, Tensor] = {}

    def offer(self, mse: float) -> None:
        if mse < self.mse or not self._state:
            self.mse = mse
            self._state = {name: tensor.detach().clone() for name, tensor in self._network.state_dict().items()}

    def restore(self) -> None:
        self._network.load_state_dict(self._state)


def _train(
    network: nn.Module,
    rebuild: Callable[[Tensor], Tensor],
    data: AttackerData,
    plan: TrainingPlan,
    lr: float,
    epochs: int,
    record: Callable[[float], None],
) -> None:
    batch = plan.batch_for(len(data))
    steps = len(data) // batch
    network.train()
    parameters = list(network.parameters())
    optimizer = adam(parameters, lr, plan.weight_decay)

    def step(index: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            z, x = data.batch(index)
        with mixed_precision(data.device):
            guess = rebuild(_channels_last(z))
        F.mse_loss(guess.float(), x).backward()
        optimizer.step()

    run = repeated_step(step, torch.randperm(len(data), device=data.device)[:batch])
    for epoch in range(epochs):
        order = torch.randperm(len(data), device=data.device)
        for number in range(steps):
            done = (epoch * steps + number) / (epochs * steps)
            set_learning_rate(optimizer, lr * 0.5 * (1 + math.cos(math.pi * done)))
            run(order[number * batch : (number + 1) * batch])
        record(float(validation_mse(network, data.validation_features, data.validation_images)))


def _channels_last(z: Tensor) -> Tensor:
    if z.ndim == 4 and prefers_channels_last(z.device):
        return z.contiguous(memory_format=torch.channels_last)
    return z


def _train_mse(network: nn.Module, data: AttackerData) -> float:
    """MSE on as many training images as there are validation images, with a fresh reading of each."""
    index = torch.arange(min(len(data), len(data.validation_images)), device=data.device)
    with torch.no_grad():
        features = data.read(index)
    return float(validation_mse(network, features, to_float(data.images[index])))
