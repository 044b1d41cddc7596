"""What every attack is: challenge in, reconstructions and receipt out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from attention_cem.attacks.challenge import Challenge
from attention_cem.attacks.receipts import Receipt
from attention_cem.data.random_streams import stream_seed

Progress = Callable[[str, int, int, float], None]
"""Called as ``progress(what, done, total, validation_mse)``; raising from it stops the attack."""


def no_progress(what: str, done: int, total: int, value: float) -> None:
    """Show nothing."""


@dataclass(frozen=True, eq=False)
class AttackResult:
    """What an attack hands back.

    Args:
        reconstructions: float32 in [0, 1], ``(n, C, H, W)``: of the test images at ``positions``.
        receipt: how the attack went.
        state: weights of the attacking network, for later attacks to start from; empty if it has none.
        state_config: constructor arguments of that network.
        positions: ``(n,)`` int64, which test images were rebuilt, each once; None for the first n.
    """

    reconstructions: Tensor
    receipt: Receipt
    state: Mapping[str, Tensor] = field(default_factory=dict)
    state_config: Mapping[str, Any] = field(default_factory=dict)
    positions: Tensor | None = None

    def __post_init__(self) -> None:
        if self.positions is not None and self.positions.shape != self.reconstructions.shape[:1]:
            raise ValueError(
                f"expected one position for each of {len(self.reconstructions)} reconstructions, got shape "
                f"{tuple(self.positions.shape)}"
            )

    def rebuilt_of(self, test: Tensor) -> Tensor:
        """Of something of every test image ``(N, ...)``, that of the rebuilt ones ``(n, ...)``, in their order."""
        return test[: len(self.reconstructions)] if self.positions is None else test[self.positions]


class Attack(ABC):
    """Rebuild images from released features. Subclasses are frozen dataclasses: their fields are the settings.

    ``rebuilds_unseen``: whether the method can rebuild an image it never saw when z shows everything. Baselines
    that answer from the attacker's own images cannot, and are calibrated accordingly.
    """

    kind: ClassVar[str]
    rebuilds_unseen: ClassVar[bool] = True
    needs_white_box: ClassVar[bool] = False

    @abstractmethod
    def run(
        self,
        challenge: Challenge,
        *,
        device: torch.device,
        seed: int = 0,
        progress: Progress = no_progress,
        starts: Mapping[str, AttackResult] | None = None,
    ) -> AttackResult:
        """Attack.

        Args:
            challenge: all the attack may know.
            device: where to compute.
            seed: of everything random.
            progress: told about every epoch.
            starts: results of earlier attacks on the same challenge by name, for attacks that build on them.
        """

    def for_calibration(self) -> Attack:
        """The same attack without what calibration clients do not have: earlier results, an adversary, a probe."""
        return self

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Settings as plain data; two attacks with equal settings, seed and challenge give equal results."""


@contextmanager
def seeded(device: torch.device, purpose: str, *keys: int) -> Iterator[None]:
    """Seed torch's global generators inside the block and put them back afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(stream_seed(purpose, *keys))
        yield


def release_in_chunks(network: Callable[[Tensor], Tensor], features: Tensor, device: torch.device) -> Tensor:
    """Run a network over ``(N, ...)`` in chunks under no_grad; float32 on the CPU."""
    with torch.no_grad():
        return torch.cat([network(chunk.to(device)).float().cpu() for chunk in features.split(1024)])


def rebuilt(network: Callable[[Tensor], Tensor], challenge: Challenge, device: torch.device) -> Tensor:
    """Run a network over what the challenge shows of every test image; float32 on the CPU."""
    return release_in_chunks(network, challenge.test_reading(), device)
