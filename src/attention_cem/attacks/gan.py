"""GAN inverter: a trained inverter refined with a critic that tells rebuilt from real images.

The pixel loss keeps the image the right one; the critic makes it look real. The inverter it starts from was trained
on the attacker's images only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention_cem.attacks.attacker_data import AttackerData, load_attacker_data
from attention_cem.attacks.base import Attack, AttackResult, Progress, no_progress, rebuilt, seeded
from attention_cem.attacks.challenge import Challenge
from attention_cem.attacks.inverter import InverterAttack, inverter_from
from attention_cem.attacks.inverter_training import TrainingPlan, validation_mse
from attention_cem.attacks.receipts import CurvePoint, Receipt, kept_start_reason, tail_verdict
from attention_cem.attacks.repeated_step import adam, fast_convolutions, mixed_precision, repeated_step
from attention_cem.data import to_float
from attention_cem.splitting import ResidualInverter


class Critic(nn.Module):
    """Real or rebuilt: strided 4×4 convolutions down to a map of scores (Isola et al., arXiv 1611.07004).

    Args:
        image_shape: (C, H, W).
        width: channels of the first layer, doubled at every step.
        steps: halvings.

    >>> Critic((3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 1, 4, 4])
    """

    def __init__(self, image_shape: tuple[int, int, int], width: int = 64, steps: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = image_shape[0]
        for step in range(min(steps, max(1, min(image_shape[1:]).bit_length() - 2))):
            layers.append(nn.Conv2d(channels, width * 2**step, 4, stride=2, padding=1))
            channels = width * 2**step
            # A batch norm would let a score depend on the other images of the batch.
            layers += [nn.GroupNorm(min(8, channels), channels), nn.LeakyReLU(0.2)]
        self.body = nn.Sequential(*layers, nn.Conv2d(channels, 1, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Scores ``(B, 1, h, w)``; high means real."""
        return self.body(x)


@dataclass(frozen=True)
class GanInverterAttack(Attack):
    r"""Minimise :math:`\text{MSE} + w\,(-\text{critic}(\hat x))` against a critic trained with the hinge loss.

    The epoch with the lowest validation MSE is used, so that the attack is never worse there than the inverter it
    starts from. Where that epoch is the start, the receipt says so.

    Args:
        plan: schedule of the inverter, when no finished one is given.
        epochs: adversarial epochs.
        width: channels of the inverter.
        blocks: its residual blocks.
        adversarial_weight: w.
        lr: learning rate of both networks.
        start_from: name of the earlier attack whose inverter is refined; it is trained here if there is none.
        augment: train on random crops and mirrors (white-box only).
    """

    plan: TrainingPlan = field(default_factory=TrainingPlan)
    epochs: int = 20
    width: int = 64
    blocks: int = 8
    adversarial_weight: float = 1e-3
    lr: float = 2e-4
    start_from: str = "inverter"
    augment: bool = False

    kind: ClassVar[str] = "gan_inverter"

    def settings(self) -> dict[str, Any]:
        """All fields."""
        return {"kind": self.kind, **asdict(self)}

    def for_calibration(self) -> Attack:
        """See :class:`Attack`."""
        return replace(self, plan=self.plan.for_calibration())

    def run(
        self,
        challenge: Challenge,
        *,
        device: torch.device,
        seed: int = 0,
        progress: Progress = no_progress,
        starts: Mapping[str, AttackResult] | None = None,
    ) -> AttackResult:
        """Refine, keep the best epoch, rebuild the test images."""
        began = time.perf_counter()
        start = (starts or {}).get(self.start_from)
        earlier = self.start_from
        if start is None or not start.state:
            earlier = ""  # trained here: what is kept of it is this attack's own
            first_try = InverterAttack(self.plan, self.width, self.blocks, augment=self.augment)
            start = first_try.run(challenge, device=device, seed=seed, progress=progress)
        data = load_attacker_data(challenge, device, augment=self.augment)
        network = inverter_from(start, challenge, device).requires_grad_(True)
        first = float(validation_mse(network, data.validation_features, data.validation_images))
        parameters = sum(parameter.numel() for parameter in network.parameters())
        curve = [CurvePoint(0.0, 0, first)]
        best = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        with seeded(device, self.kind, seed), fast_convolutions(device):
            critic = Critic(challenge.image_shape).to(device)
            run, steps, batch = self._step(network, critic, data)
            for epoch in range(1, self.epochs + 1):
                network.train()
                order = torch.randperm(len(data), device=device)
                for number in range(steps):
                    run(order[number * batch : (number + 1) * batch])
                mse = float(validation_mse(network, data.validation_features, data.validation_images))
                if mse < min(point.mse for point in curve):
                    best = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
                curve.append(CurvePoint(float(len(data) * parameters * epoch), epoch, mse))
                progress(self.kind, epoch, self.epochs, min(point.mse for point in curve))
        network.load_state_dict(best)
        network.eval()
        converged, reason = tail_verdict([point.mse for point in curve])
        converged = converged and start.receipt.converged
        if not start.receipt.converged:
            reason = f"the inverter it starts from had not converged: {start.receipt.reason}"
        kept = earlier if min(point.mse for point in curve) == first else ""
        if kept:
            reason = f"{kept_start_reason(kept)}; {reason}"
        few = min(len(data), len(data.validation_images))
        receipt = Receipt(
            curve=tuple(curve),
            converged=converged,
            reason=reason,
            train_mse=float(validation_mse(network, data.training_features()[:few], to_float(data.images[:few]))),
            validation_mse=min(point.mse for point in curve),
            epochs=self.epochs,
            parameters=parameters,
            seconds=time.perf_counter() - began,
            kept_start=kept,
        )
        return AttackResult(rebuilt(network, challenge, device), receipt)

    def _step(self, network: ResidualInverter, critic: Critic, data: AttackerData) -> Any:
        batch = self.plan.batch_for(len(data))
        of_inverter = adam(list(network.parameters()), self.lr)
        of_critic = adam(list(critic.parameters()), self.lr)
        network.train()

        def step(index: Tensor) -> None:
            with torch.no_grad():
                z, x = data.batch(index)
            of_critic.zero_grad(set_to_none=True)
            of_inverter.zero_grad(set_to_none=True)
            with mixed_precision(data.device):
                guess = network(z)
                real, fake = critic(x), critic(guess.detach())
            (F.relu(1 - real.float()).mean() + F.relu(1 + fake.float()).mean()).backward()
            of_critic.step()
            with mixed_precision(data.device):
                score = critic(guess)
            (F.mse_loss(guess.float(), x) - self.adversarial_weight * score.float().mean()).backward()
            of_inverter.step()

        example = torch.randperm(len(data), device=data.device)[:batch]
        return repeated_step(step, example), len(data) // batch, batch
