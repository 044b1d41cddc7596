"""Pruning of the client's filters while it trains, and of the channels of z that they feed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from . import checks
from .base import ClientDefence, FeatureDefence, Stage
from .randomness import NoiseSource
from .registry import register_defence


def prunable_filters(client: nn.Module) -> dict[str, int]:
    """Number of output filters of every convolution and linear layer, by the layer's name.

    >>> prunable_filters(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)))
    {'0': 8, '2': 4}
    """
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
    return {name: layer.weight.shape[0] for name, layer in client.named_modules() if isinstance(layer, kinds)}


def pruned_share(epoch: int, share: float, start_epoch: int, end_epoch: int) -> float:
    """Share of the filters pruned at an epoch: s·(1 − (1 − t)³), t rising from 0 (start) to 1 (end).

    The cubic schedule of Zhu & Gupta (2017, arXiv 1710.01878): fast while much is redundant, slow at the end.

    >>> [round(pruned_share(epoch, 0.8, 2, 4), 3) for epoch in range(6)]
    [0.0, 0.0, 0.0, 0.7, 0.8, 0.8]
    """
    if epoch < start_epoch:
        return 0.0
    if epoch >= end_epoch:
        return share
    progress = (epoch - start_epoch) / (end_epoch - start_epoch)
    return share * (1 - (1 - progress) ** 3)


@register_defence
class ChannelPruning(FeatureDefence, ClientDefence):
    """Prunes the weakest filters of the client on a schedule and keeps them at exactly zero.

    After PATROL (Ding et al., WACV 2024, arXiv 2307.10981), which lets pruning remove what the task does not
    need; join it with `AdversarialInverter` for its adversarial reconstruction training. Deviation: filters
    are ranked by their L2 norm within a layer, and there is no Lipschitz term.

    At the start of an epoch the filters of smallest norm join the pruned ones (which never come back); after
    every optimiser step the pruned weights and biases, and whatever the optimiser keeps for them (momentum,
    Adam's moments), are set to zero, so that training continues as if they had never been there. Where
    ``z_layer`` is given, the matching channels of the released feature are zero too.

    Args:
        filters: number of filters per layer of the client, as from `prunable_filters`.
        share: final share of pruned filters per layer, in (0, 1); at least one filter stays.
        start_epoch: epoch (from 0) at which the schedule starts.
        end_epoch: epoch at which ``share`` is reached; the same as the start to prune at once.
        z_layer: layer whose filters are the channels (axis 1) of z; None to leave z alone.

    >>> client = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sigmoid())
    >>> defence = ChannelPruning(prunable_filters(client), share=0.5, z_layer="0")
    >>> defence.begin_epoch(0, client, torch.optim.SGD(client.parameters(), lr=0.1))
    >>> int((defence(client(torch.rand(2, 3, 8, 8))).abs().sum(dim=(0, 2, 3)) == 0).sum())
    4
    """

    name: ClassVar[str] = "channel_pruning"
    stage: ClassVar[Stage] = Stage.PRUNE

    def __init__(
        self,
        filters: Mapping[str, int],
        share: float,
        start_epoch: int = 0,
        end_epoch: int = 0,
        z_layer: str | None = None,
    ) -> None:
        super().__init__()
        if not (checks.is_finite(share) and 0 < share < 1):
            raise ValueError(f"share must lie between 0 and 1, both excluded, received {share!r}")
        if not filters:
            raise ValueError("filters must name at least one layer of the client, received none")
        if z_layer is not None and z_layer not in tuple(filters):
            raise ValueError(f"z_layer must be one of {', '.join(filters)}, received {z_layer!r}")
        self.filters = {layer: checks.whole(f"filters[{layer}]", n, minimum=1) for layer, n in filters.items()}
        self.share = float(share)
        self.start_epoch = checks.whole("start_epoch", start_epoch, minimum=0)
        self.end_epoch = checks.whole("end_epoch", end_epoch, minimum=start_epoch)
        self.z_layer = z_layer
        for index, count in enumerate(self.filters.values()):
            self.register_buffer(f"kept_{index}", torch.ones(count, dtype=torch.bool))

    def kept(self, layer: str) -> Tensor:
        """Which filters of a layer are not pruned, ``(filters,)`` of bool."""
        return self.get_buffer(f"kept_{list(self.filters).index(layer)}")

    def forward(self, z: Tensor, source: NoiseSource = None) -> Tensor:
        """Zero the pruned channels (axis 1) of ``z``, in training and evaluation alike."""
        if self.z_layer is None:
            return checks.features(z)
        kept = self.kept(self.z_layer)
        if checks.features(z).shape[1] != kept.shape[0]:
            raise ValueError(
                f"z must have {kept.shape[0]} channels on axis 1, as {self.z_layer} has filters, "
                f"received {tuple(z.shape)}"
            )
        return z * kept.reshape(1, -1, *[1] * (z.dim() - 2)).to(z.dtype)

    def epochs_until_whole(self, steps_per_epoch: int) -> int:
        """See `Defence`: until ``share`` is reached."""
        return self.end_epoch

    @torch.no_grad()
    def begin_epoch(self, epoch: int, client: nn.Module, optimizer: Optimizer) -> None:
        """Prune up to the schedule's share; calling it again for the same epoch changes nothing."""
        share = pruned_share(epoch, self.share, self.start_epoch, self.end_epoch)
        for layer, count in self.filters.items():
            kept = self.kept(layer)
            strength = self._weight(client, layer).flatten(1).float().norm(dim=1)
            # Already pruned filters rank below all others, so that they stay pruned.
            ranked = torch.where(kept, strength, -1.0).argsort(stable=True)
            kept[ranked[: min(round(share * count), count - 1)]] = False
        self.after_step(client, optimizer)

    @torch.no_grad()
    def after_step(self, client: nn.Module, optimizer: Optimizer) -> None:
        """Zero the pruned filters and the optimiser's state for them."""
        for layer in self.filters:
            pruned = ~self.kept(layer)
            for parameter in (self._weight(client, layer), client.get_submodule(layer).bias):
                if not isinstance(parameter, Tensor):
                    continue
                rows = pruned.reshape(-1, *[1] * (parameter.dim() - 1))
                parameter.masked_fill_(rows, 0.0)
                for value in optimizer.state.get(parameter, {}).values():
                    if isinstance(value, Tensor) and value.shape == parameter.shape:
                        value.masked_fill_(rows, 0.0)

    def _weight(self, client: nn.Module, layer: str) -> Tensor:
        weight = client.get_submodule(layer).weight
        if not isinstance(weight, Tensor) or weight.shape[0] != self.filters[layer]:
            found = weight.shape[0] if isinstance(weight, Tensor) else "no"
            raise ValueError(f"layer {layer} must have {self.filters[layer]} filters, the client has {found}")
        return weight

    def config(self) -> dict[str, Any]:
        """Layers, share and schedule."""
        return {
            "filters": dict(self.filters),
            "share": self.share,
            "start_epoch": self.start_epoch,
            "end_epoch": self.end_epoch,
            "z_layer": self.z_layer,
        }

    def guarantee(self) -> str:
        """None; fewer channels, each of them exact."""
        return (
            "No formal guarantee: the client has fewer filters and may release fewer channels; those "
            "left are released exactly."
        )
