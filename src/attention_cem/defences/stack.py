"""All defences of a run as one object, called by training, validation, attack and export alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from .base import ClientDefence, Defence, FeatureDefence, PenaltyDefence
from .channel_pruning import prunable_filters
from .randomness import Draw, NoiseSource, SuppliedNoise
from .registry import build_defence

Join = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


class DefenceStack(nn.Module):
    """Applies feature defences in the order noise → dropout → prune → local DP, and holds the penalties.

    The order in which the defences are given does not matter. Each kind may occur once. ``forward`` does the
    same in training and evaluation mode.

    Randomness comes from torch's global generator, or from ``stack.generator`` when it is set; whoever sets
    it owns it (it is not part of ``state_dict``). It may live on another device than z.

    Args:
        defences: any number of defences; none gives the identity.

    >>> import torch
    >>> from attention_cem.defences import GaussianNoise
    >>> stack = DefenceStack([GaussianNoise(sigma=0.5)])
    >>> stack.generator = torch.Generator().manual_seed(0)
    >>> stack(torch.zeros(2, 3)).shape, stack.noise_variance()
    (torch.Size([2, 3]), 0.25)
    """

    def __init__(self, defences: Iterable[Defence] = ()) -> None:
        super().__init__()
        given = list(defences)
        for defence in given:
            if not isinstance(defence, Defence):
                raise ValueError(f"a DefenceStack holds Defence objects, received {type(defence).__name__}")
        names = [defence.name for defence in given]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"each kind of defence may occur once, received twice: {', '.join(twice)}")
        self.defences = nn.ModuleDict({defence.name: defence for defence in sorted(given, key=_place)})
        self.generator: Generator | None = None

    def forward(self, z: Tensor) -> Tensor:
        """What leaves the device for the clean feature ``z``: same shape, fresh randomness at every call."""
        return self._chain(z, self.generator)

    def draws(self) -> tuple[Draw, ...]:
        """Kinds of the random tensors, each shaped like z, that one release draws, in order."""
        return tuple(draw for defence in self._feature_defences() for draw in defence.draws())

    def release(self, z: Tensor, noise: Sequence[Tensor]) -> Tensor:
        """``forward`` with the randomness handed in: what an exported client calls; see `SuppliedNoise`.

        Args:
            z: features ``(N, ...)``.
            noise: one tensor shaped like ``z`` per entry of `draws`, standard normal or uniform on [0, 1).

        >>> import torch
        >>> from attention_cem.defences import GaussianNoise
        >>> stack = DefenceStack([GaussianNoise(sigma=0.5)])
        >>> stack.draws(), stack.release(torch.zeros(1, 2), [torch.ones(1, 2)])
        (('normal',), tensor([[0.5000, 0.5000]]))
        """
        source = SuppliedNoise(noise)
        released = self._chain(z, source)
        source.finish()
        return released

    def emission(self, z: Tensor) -> Tensor:
        """The clean feature: ``z`` after learned layers of the defences, before any noise or removal."""
        for defence in self._feature_defences():
            z = defence.emission(z)
        return z

    def penalties(self, x: Tensor, z: Tensor, y: Tensor, *, join: Join | None = None) -> dict[str, Tensor]:
        """Weighted terms of the client's loss, by the defence's name.

        Args:
            x: images ``(N, C, H, W)`` in [0, 1] (inputs of any shape for distance correlation).
            z: the client's output ``(N, ...)``, before this stack.
            y: labels ``(N,)``.
            join: of several processes, gives the three of all of them, z with its gradient; for terms that are no mean
                over samples.
        """
        terms = {}
        for defence in self._penalty_defences():
            batch = (x, self._seen_by(defence, z), y)
            batch = join(*batch) if join is not None and defence.of_whole_batch else batch
            terms[defence.name] = defence.weight * defence.term(*batch)
        return terms

    def train_adversaries(self, x: Tensor, z: Tensor) -> dict[str, Tensor]:
        """One round of training for every defence that has its own adversary; ``z`` is detached here.

        Call it before `penalties` in a step: the penalty's graph must hold the adversary's newest weights.

        Returns:
            The adversaries' losses, detached, by the defence's name.
        """
        losses = {}
        for defence in self._penalty_defences():
            loss = defence.train_adversary(x, self._seen_by(defence, z.detach()).detach())
            if loss is not None:
                losses[defence.name] = loss
        return losses

    def set_mixed_precision(self, enabled: bool) -> None:
        """Let networks of the penalties run in bf16 autocast, as client and server do, or not."""
        for defence in self._penalty_defences():
            defence.mixed_precision = enabled

    def compile_penalties(self) -> None:
        """Let the penalties compile what gains by it; from then on `maintain` must be called."""
        for defence in self._penalty_defences():
            defence.compile_term()

    def maintain(self) -> None:
        """Let the penalties do their rare work, where their calls are compiled or replayed and cannot."""
        for defence in self._penalty_defences():
            defence.maintain()

    def epochs_until_whole(self, steps_per_epoch: int) -> int:
        """Epochs that pass before every defence acts in full."""
        return max((defence.epochs_until_whole(steps_per_epoch) for defence in self._all()), default=0)

    def begin_epoch(self, epoch: int, client: nn.Module, optimizer: Optimizer) -> None:
        """Let the client defences act before the first step of epoch ``epoch`` (counted from 0)."""
        for defence in self._client_defences():
            defence.begin_epoch(epoch, client, optimizer)

    def after_step(self, client: nn.Module, optimizer: Optimizer) -> None:
        """Let the client defences act after an optimiser step."""
        for defence in self._client_defences():
            defence.after_step(client, optimizer)

    def trainable_parameters(self) -> list[nn.Parameter]:
        """Parameters the task's optimiser trains; adversaries train their own."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def noise_variance(self) -> float | None:
        """Variance per coordinate of the added noise, in the units of the clean z.

        Noise that follows a scaling (dropout's 1/(1−p)) is divided by its square. Clipping by local DP only
        shrinks z, so the figure is then a lower bound. None when the noise depends on the input.
        """
        total, gain = 0.0, 1.0
        for defence in self._feature_defences():
            variance = defence.noise_variance()
            if variance is None:
                return None
            total += variance / gain**2
            gain *= defence.gain()
        return total

    def noise_std(self) -> float | None:
        """Square root of `noise_variance`: the effective σ."""
        variance = self.noise_variance()
        return None if variance is None else variance**0.5

    def describe(self) -> dict[str, Any]:
        """Plain data for manifests and reports; ``build_stack(stack.describe()["defences"])`` restores it."""
        return {
            "defences": [defence.describe() for defence in self._all()],
            "noise_variance": self.noise_variance(),
        }

    def _chain(self, z: Tensor, source: NoiseSource) -> Tensor:
        for defence in self._feature_defences():
            z = defence(z, source)
        return z

    def _all(self) -> list[Defence]:
        return [defence for defence in self.defences.values() if isinstance(defence, Defence)]

    def _feature_defences(self) -> list[FeatureDefence]:
        return [defence for defence in self._all() if isinstance(defence, FeatureDefence)]

    def _penalty_defences(self) -> list[PenaltyDefence]:
        return [defence for defence in self._all() if isinstance(defence, PenaltyDefence)]

    def _client_defences(self) -> list[ClientDefence]:
        return [defence for defence in self._all() if isinstance(defence, ClientDefence)]

    def _seen_by(self, defence: PenaltyDefence, z: Tensor) -> Tensor:
        # A defence that is also a stage of the chain computes its term from its own input.
        if isinstance(defence, FeatureDefence):
            return z
        return self(z) if defence.sees == "defended" else self.emission(z)


def build_stack(configs: Iterable[Mapping[str, Any]], context: Mapping[str, Any] | None = None) -> DefenceStack:
    """Build a `DefenceStack` from the configs of its defences; arguments as for `build_defence`.

    >>> stack = build_stack([{"name": "gaussian_noise", "sigma": 0.1}])
    >>> build_stack(stack.describe()["defences"]).describe() == stack.describe()
    True
    """
    return DefenceStack(build_defence(config, context) for config in configs)


def model_context(
    client: nn.Module, z_shape: Sequence[int], image_shape: Sequence[int] | None = None
) -> dict[str, Any]:
    """What defences may want to know about the model, for `build_stack` and `build_defence`.

    Args:
        client: the client half.
        z_shape: shape of one feature.
        image_shape: shape of one image, if the inputs are images.

    >>> model_context(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sigmoid()), (8, 6, 6), (3, 8, 8))
    {'z_shape': [8, 6, 6], 'filters': {'0': 8}, 'z_layer': '0', 'image_shape': [3, 8, 8]}
    """
    filters = prunable_filters(client)
    context: dict[str, Any] = {"z_shape": list(z_shape), "filters": filters}
    # Tokens (T, D) have their channels on the last axis; pruning masks the first.
    producers = [layer for layer, count in filters.items() if count == z_shape[0] and len(z_shape) != 2]
    if producers:
        context["z_layer"] = producers[-1]
    if image_shape is not None:
        context["image_shape"] = list(image_shape)
    return context


def _place(defence: Defence) -> tuple[int, str]:
    stage = int(defence.stage) if isinstance(defence, FeatureDefence) else -1
    return stage, defence.name
