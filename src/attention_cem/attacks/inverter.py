"""The attack everybody quotes: a network trained to rebuild the image from the released feature."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attention_cem.attacks.attacker_data import load_attacker_data
from attention_cem.attacks.base import Attack, AttackResult, Progress, no_progress, rebuilt, seeded
from attention_cem.attacks.challenge import Challenge
from attention_cem.attacks.inverter_training import TrainedInverter, TrainingPlan, train_inverter
from attention_cem.attacks.receipts import CurvePoint, Receipt
from attention_cem.attacks.scale import Scale
from attention_cem.data.layout import prefers_channels_last
from attention_cem.splitting import ResidualInverter


@dataclass(frozen=True)
class InverterAttack(Attack):
    """Train a residual inverter on the attacker's images and apply it to the test features.

    Args:
        plan: schedule of the training.
        width: channels of the inverter; 64 with 8 blocks is the reference (711,539 parameters for z 8×8×8).
        blocks: its residual blocks.
        restarts: independent trainings; the one with the lowest validation MSE is used.
        augment: train on random crops and mirrors (white-box only).
        start: ``random``, or ``adversary`` to fine-tune the inverter the defender trained against.
        aware: False trains on undefended features: a careless attacker, for comparison only.
        compile: compile the training step's network (CUDA alone; worth the wait for long trainings).
    """

    plan: TrainingPlan = field(default_factory=TrainingPlan)
    width: int = 64
    blocks: int = 8
    restarts: int = 1
    augment: bool = False
    start: str = "random"
    aware: bool = True
    compile: bool = False

    kind: ClassVar[str] = "inverter"

    def __post_init__(self) -> None:
        if self.restarts < 1:
            raise ValueError(f"restarts must be at least 1, got {self.restarts}")
        if self.start not in ("random", "adversary"):
            raise ValueError(f"start must be 'random' or 'adversary', got {self.start!r}")

    def settings(self) -> dict[str, Any]:
        """All fields."""
        return {"kind": self.kind, **asdict(self)}

    def for_calibration(self) -> Attack:
        """See :class:`Attack`. One start is as good as several, and it is too short to be worth compiling."""
        plan = self.plan.for_calibration()
        return replace(self, plan=plan, restarts=1, start="random", aware=True, compile=False)

    def run(
        self,
        challenge: Challenge,
        *,
        device: torch.device,
        seed: int = 0,
        progress: Progress = no_progress,
        starts: Mapping[str, AttackResult] | None = None,
    ) -> AttackResult:
        """Train, keep the best restart, rebuild the test images."""
        began = time.perf_counter()
        data = load_attacker_data(challenge, device, augment=self.augment, aware=self.aware)
        best: TrainedInverter | None = None
        curve: list[CurvePoint] = []
        for restart in range(self.restarts):
            with seeded(device, "inverter", seed, restart):
                network = self._network(challenge, device)
                show = _Shown(progress, self.kind, restart, self.restarts)
                compiled = self.compile and device.type == "cuda"
                trained = train_inverter(network, data, self.plan, compiled=compiled, epoch_done=show)
            curve += _after(curve, trained.curve)
            if best is None or trained.validation_mse < best.validation_mse:
                best = trained
        if best is None:
            raise ValueError("no restart was run")
        receipt = Receipt(
            curve=tuple(curve),
            converged=best.converged,
            reason=best.reason,
            train_mse=best.train_mse,
            validation_mse=best.validation_mse,
            epochs=len(curve),
            parameters=sum(parameter.numel() for parameter in best.network.parameters()),
            seconds=time.perf_counter() - began,
        )
        state = {name: tensor.cpu().clone() for name, tensor in best.network.state_dict().items()}
        return AttackResult(
            reconstructions=rebuilt(best.network, challenge, device),
            receipt=receipt,
            state=state if self.start == "random" else {},
            state_config={"width": self.width, "blocks": self.blocks} if self.start == "random" else {},
        )

    def _network(self, challenge: Challenge, device: torch.device) -> nn.Module:
        if self.start == "adversary":
            adversary = challenge.defender_adversary()
            if adversary is None:
                raise ValueError("start='adversary' needs a challenge whose defence has an adversarial inverter")
            network = copy.deepcopy(adversary.inverter).requires_grad_(True)
            if challenge.scale is not None:  # it was trained on features as they are released
                network = nn.Sequential(_Restored(challenge.scale), network)
        else:
            network = ResidualInverter(challenge.z_shape, challenge.image_shape, width=self.width, blocks=self.blocks)
        network = network.to(device)
        if prefers_channels_last(device):
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network


class _Restored(nn.Module):
    """Features as they are released, of those on the challenge's scale."""

    origin: Tensor
    unit: Tensor
    unmixing: Tensor | None

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.register_buffer("origin", scale.origin)
        self.register_buffer("unit", scale.unit)
        self.register_buffer("unmixing", scale.unmixing)

    def forward(self, z: Tensor) -> Tensor:
        return Scale(self.origin, self.unit, unmixing=self.unmixing).restored(z)


@dataclass(frozen=True)
class _Shown:
    """Turns the epochs of one restart into progress of them all."""

    progress: Progress
    what: str
    restart: int
    restarts: int

    def __call__(self, done: int, total: int, mse: float) -> None:
        self.progress(self.what, self.restart * total + done, self.restarts * total, mse)


def inverter_from(result: AttackResult, challenge: Challenge, device: torch.device) -> ResidualInverter:
    """The trained inverter of an earlier attack on the same challenge, frozen, in evaluation mode."""
    if not result.state:
        raise ValueError("this attack left no inverter to start from")
    network = ResidualInverter(challenge.z_shape, challenge.image_shape, **dict(result.state_config))
    network.load_state_dict(dict(result.state))
    return network.to(device).eval().requires_grad_(False)


def _after(earlier: list[CurvePoint], later: tuple[CurvePoint, ...]) -> list[CurvePoint]:
    """Shift a curve so that it continues an earlier one: effort spent on other restarts counts too."""
    effort = earlier[-1].effort if earlier else 0.0
    epoch = earlier[-1].epoch if earlier else 0
    return [CurvePoint(effort + point.effort, epoch + point.epoch, point.mse) for point in later]
