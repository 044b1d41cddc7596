r"""White-box attack without training: search the image whose feature is the one that was seen.

.. math:: \min_x\; \frac{1}{D}\Big\|\frac1K\sum_{k=1}^K \text{stack}_k(\text{client}(x)) - \bar z\Big\|^2
          + w\,\text{TV}(x)

where the stack is drawn anew K times at every step and z̄ is the mean of the releases seen, or the reading that
:mod:`attention_cem.attacks.readings` puts in its place, of both then. The weight w of the total variation and the
number of steps are chosen on the attack's own validation images: a search that runs on fits the noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attention_cem.attacks.attacker_data import AttackerData, load_attacker_data
from attention_cem.attacks.base import Attack, AttackResult, Progress, no_progress, release_in_chunks, seeded
from attention_cem.attacks.challenge import Challenge
from attention_cem.attacks.inverter import inverter_from
from attention_cem.attacks.readings import Reading, mean_of
from attention_cem.attacks.receipts import CurvePoint, Receipt, kept_start_reason, tail_verdict
from attention_cem.attacks.repeated_step import adam, fast_convolutions, repeated_step
from attention_cem.attacks.subset import spread_positions
from attention_cem.data import mse_per_image
from attention_cem.defences import DefenceStack

_START_SPREAD = 0.05
_Search = Callable[[Tensor, Tensor, float, int], tuple[list[Tensor], Tensor]]


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels, per image ``(N,)``.

    >>> total_variation(torch.ones(2, 3, 4, 4))
    tensor([0., 0.])
    """
    down = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(1).mean(1)
    across = (x[..., :, 1:] - x[..., :, :-1]).abs().flatten(1).mean(1)
    return down + across


@dataclass(frozen=True)
class OptimisationAttack(Attack):
    """Gradient search on the pixels, all images at once.

    Args:
        steps: steps of Adam.
        lr: step size on the pixels.
        tv_weights: weights of the total variation to choose from.
        noise_draws: fresh draws of the defence at every step, for each release seen: K in all.
        restarts: starting points; per image the one with the lowest objective is kept. The first is the mean image
            (or the inverter's guess), the others are disturbed.
        start_from: name of an earlier inverter attack whose guess is the start; None for the mean image.
        images: how many test images to rebuild, spread evenly over them all; None for all.
        checks: points along the way at which the number of steps is judged.
    """

    steps: int = 400
    lr: float = 0.02
    tv_weights: tuple[float, ...] = (0.0, 1e-4, 1e-3, 1e-2)
    noise_draws: int = 1
    restarts: int = 1
    start_from: str | None = None
    images: int | None = None
    checks: int = 20

    kind: ClassVar[str] = "optimisation"
    needs_white_box: ClassVar[bool] = True

    def settings(self) -> dict[str, Any]:
        """All fields, and how the images are chosen."""
        return {"kind": self.kind, **asdict(self), **({} if self.images is None else {"choice": "spread"})}

    def for_calibration(self) -> Attack:
        """See :class:`Attack`."""
        return replace(self, start_from=None, images=min(self.images or 256, 256))

    def run(
        self,
        challenge: Challenge,
        *,
        device: torch.device,
        seed: int = 0,
        progress: Progress = no_progress,
        starts: Mapping[str, AttackResult] | None = None,
    ) -> AttackResult:
        """Choose weight and steps on validation images, then search."""
        began = time.perf_counter()
        data = load_attacker_data(challenge, device)
        if data.client is None or data.stack is None:
            raise ValueError("the optimisation attack needs a white-box challenge: it follows gradients of the client")
        search = partial(self.search, data.client, data.stack, releases=data.releases, reading=data.reading)
        first_guess = self._start(challenge, data, starts)
        # Every image takes as many draws as there are releases: fewer images at a time need the same memory.
        together = max(1, 1000 // data.releases)
        limit = min(len(data.validation_images), 256, max(32, together))
        # Validation images are sorted as the data is, which may be class by class: some of all, not the first.
        some = spread_positions(len(data.validation_images), limit).to(device)
        known_z, known_x = data.validation_features[some], data.validation_images[some]
        with seeded(device, self.kind, seed):
            curves = {}
            for number, weight in enumerate(self.tv_weights, start=1):
                paths, _ = search(known_z, first_guess(known_z), weight, self.steps)
                curves[weight] = [float(mse_per_image(path, known_x).mean()) for path in paths]
                progress(f"{self.kind}: tuning", number, len(self.tv_weights), min(map(min, curves.values())))
            weight = min(curves, key=lambda each: min(curves[each]))
            curve = curves[weight]
            best_check = min(range(len(curve)), key=lambda check: curve[check])
            steps = best_check * self._stride
            positions = spread_positions(challenge.num_test, self.images or challenge.num_test)
            wanted = challenge.test_reading()[positions]
            parts = []
            for done in range(0, len(wanted), together):
                z = wanted[done : done + together].to(device)
                parts.append(self._best_of_restarts(search, z, first_guess(z), weight, steps).cpu())
                progress(self.kind, min(done + together, len(wanted)), len(wanted), curve[best_check])
        converged, reason = tail_verdict(curve)
        if steps == 0 and not self.start_from:
            converged, reason = False, "stuck: no step lowered the validation MSE of the mean image"
        kept = self.start_from if self.start_from and steps == 0 else ""
        if kept:
            reason = f"{kept_start_reason(kept)}; {reason}"
        effort = float(known_x[0].numel() * limit * self._stride)
        receipt = Receipt(
            curve=tuple(CurvePoint(effort * check, check * self._stride, mse) for check, mse in enumerate(curve)),
            converged=converged,
            reason=f"{reason}; weight of the total variation {weight:g}, {steps} steps",
            # Nothing is fitted to the attacker's images but two numbers: they are as good as unseen.
            train_mse=curve[best_check],
            validation_mse=curve[best_check],
            epochs=steps,
            seconds=time.perf_counter() - began,
            kept_start=kept,
        )
        return AttackResult(torch.cat(parts), receipt, positions=positions)

    @property
    def _stride(self) -> int:
        return max(1, self.steps // self.checks)

    def _start(self, challenge: Challenge, data: AttackerData, starts: Mapping[str, AttackResult] | None) -> Any:
        if self.start_from is None:
            mean = data.mean_image()
            return lambda z: mean.expand(len(z), *mean.shape)
        earlier = (starts or {}).get(self.start_from)
        if earlier is None or not earlier.state:
            raise ValueError(f"start_from={self.start_from!r} needs the result of an inverter attack of that name")
        network = inverter_from(earlier, challenge, data.device)
        return lambda z: release_in_chunks(network, z, data.device).to(data.device)

    def _best_of_restarts(self, search: _Search, z: Tensor, start: Tensor, weight: float, steps: int) -> Tensor:
        if steps == 0:
            return start.clamp(0, 1)
        best, best_value = start, torch.full((len(z),), torch.inf, device=z.device)
        for restart in range(self.restarts):
            disturbed = start if restart == 0 else start + _START_SPREAD * torch.randn_like(start)
            paths, value = search(z, disturbed, weight, steps)
            better = value < best_value
            best = torch.where(better[:, None, None, None], paths[-1], best)
            best_value = torch.where(better, value, best_value)
        return best

    def search(
        self,
        client: nn.Module,
        stack: DefenceStack,
        z: Tensor,
        start: Tensor,
        weight: float,
        steps: int,
        releases: int = 1,
        reading: Reading = mean_of,
    ) -> tuple[list[Tensor], Tensor]:
        """Search from ``start`` ``(N, C, H, W)`` for the images behind a reading ``z`` ``(N, *z)``.

        ``reading`` says what is made of several releases; every step draws as many as there were, ``releases``, times
        ``noise_draws``.

        Returns:
            Images at every check of the way, the start included, and the last objective ``(N,)``.
        """
        target, draws = z, self.noise_draws * releases
        x = start.detach().clamp(0, 1).contiguous().clone().requires_grad_(True)
        optimizer = adam([x], self.lr)

        def objective() -> Tensor:
            clean = client(x)
            seen = reading(torch.stack([stack(clean) for _ in range(draws)]))
            return (seen - target).square().flatten(1).mean(1) + weight * total_variation(x)

        def step(_: Tensor) -> None:
            optimizer.zero_grad(set_to_none=True)
            objective().sum().backward()  # a sum: images do not influence each other
            optimizer.step()
            with torch.no_grad():
                x.clamp_(0, 1)

        ticket = torch.zeros(1, dtype=torch.int64, device=x.device)
        with fast_convolutions(x.device):
            paths = [x.detach().clone()]
            run = repeated_step(step, ticket)
            for number in range(1, steps + 1):
                run(ticket)
                if number % self._stride == 0:
                    paths.append(x.detach().clone())
            with torch.no_grad():
                return paths, objective()
