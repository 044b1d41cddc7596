"""What every defence is: a small module with a name, plain-data parameters and an honest guarantee."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from .randomness import Draw, NoiseSource


class Stage(IntEnum):
    """Where in the chain client → noise → dropout → prune → local DP → server a feature defence acts.

    Local DP stands last: whatever was done before it is covered by its clipping, and nothing after it
    can spoil the guarantee.
    """

    EMISSION = 0
    NOISE = 1
    DROPOUT = 2
    PRUNE = 3
    LOCAL_DP = 4


class Defence(nn.Module, ABC):
    """A protection of the feature z, or of the client that computes it.

    A subclass is a `FeatureDefence` (acts on what leaves the device), a `PenaltyDefence` (adds a term to
    the client's loss), a `ClientDefence` (edits the client's weights while it trains), or several of them.
    """

    name: ClassVar[str]

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Constructor arguments as plain data (what TOML and JSON can hold)."""

    @abstractmethod
    def guarantee(self) -> str:
        """What is promised about the released feature, and what is not, in plain words."""

    def epochs_until_whole(self, steps_per_epoch: int) -> int:
        """Epochs that pass before the defence acts in full; their weights are never kept as the best."""
        return 0

    def describe(self) -> dict[str, Any]:
        """Name, parameters and guarantee as one flat mapping that `build_defence` accepts."""
        return {"name": self.name, **self.config(), "guarantee": self.guarantee()}

    def extra_repr(self) -> str:
        """The parameters, as `print` shows them."""
        return ", ".join(f"{key}={value!r}" for key, value in self.config().items())


class FeatureDefence(Defence):
    """z → z̃, applied whenever a feature leaves the device.

    ``forward`` never looks at ``self.training``: training, validation, attack and export see the same thing.
    """

    stage: ClassVar[Stage]

    @abstractmethod
    def forward(self, z: Tensor, source: NoiseSource = None) -> Tensor:
        """Defend a batch of features.

        Args:
            z: features ``(N, ...)``.
            source: where randomness comes from; torch's global generator when None.

        Returns:
            Defended features with the shape of ``z``.
        """

    def emission(self, z: Tensor) -> Tensor:
        """The noise-free, learned part that belongs to the client; the identity if there is none."""
        return z

    def draws(self) -> tuple[Draw, ...]:
        """Kinds of the random tensors, each shaped like z, that one call of ``forward`` draws, in order."""
        return ()

    def noise_variance(self) -> float | None:
        """Variance per coordinate of the added noise; 0 if none, None if it depends on the input."""
        return 0.0

    def gain(self) -> float:
        """Factor by which the coordinates that survive are scaled, e.g. 1/(1−p) for dropout."""
        return 1.0


class PenaltyDefence(Defence):
    """A term of the client's loss, used in training only and taken on the clean z.

    ``sees`` says which feature the term is given: the clean one, or the defended one that is released.
    """

    weight: float
    sees: Literal["clean", "defended"] = "clean"
    of_whole_batch: ClassVar[bool] = False
    """Whether the term is no mean over samples, so that several processes must compute it on their joined batch."""
    mixed_precision: bool = False
    """Whether networks of the defence run in bf16 autocast; the trainer sets it to what client and server do."""

    @abstractmethod
    def term(self, x: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """The unweighted term: a scalar attached to the graph of ``z``.

        Args:
            x: inputs ``(N, ...)``; images in [0, 1].
            z: features ``(N, ...)``.
            y: labels ``(N,)``.
        """

    def compile_term(self) -> None:
        """Compile what `term` calls, where that makes it faster; the trainer then calls `maintain`."""

    def maintain(self) -> None:
        """Rare work that a recorded or compiled call cannot do by itself; the trainer calls it regularly then."""

    def train_adversary(self, x: Tensor, z: Tensor) -> Tensor | None:
        """Train the defence's own adversary on one batch and return its loss; None if it has none."""
        return None


class ClientDefence(Defence):
    """A defence that edits the client's weights, and the optimiser's state for them, while training runs."""

    @abstractmethod
    def begin_epoch(self, epoch: int, client: nn.Module, optimizer: Optimizer) -> None:
        """Called before the first step of every epoch (counted from 0)."""

    @abstractmethod
    def after_step(self, client: nn.Module, optimizer: Optimizer) -> None:
        """Called after every optimiser step."""
