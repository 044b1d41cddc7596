"""The closed-form attacker as a defence: stacks with any surrogate and any other defence."""

from collections.abc import Sequence
from math import ceil, prod
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from attention_cem.defences.base import PenaltyDefence
from attention_cem.defences.registry import register_defence
from attention_cem.surrogates.base import require_count, require_flag, require_positive, require_positive_int
from attention_cem.surrogates.leakage import LinearLeakage
from attention_cem.surrogates.local_leakage import LocalLeakage
from attention_cem.surrogates.slot_features import SlotFeatures


@register_defence
class LinearLeakagePenalty(PenaltyDefence):
    """weight · the share of the within-class variance of x that a closed-form attacker recovers from z + noise.

    See :class:`LinearLeakage` and :class:`LocalLeakage`. The attacker is solved, not trained: it cannot lag behind.

    Args:
        weight: weight of the share in the client's loss; the share lies in [0, 1].
        noise_sigma: σ the attacker has to live with; a configuration fills in that of its Gaussian noise.
        random_features: random Fourier features that join z, for an attacker beyond linear.
        slots: the attacker attends to so many slots in each region of z (`SlotFeatures`), 0 for none; take
            it instead of random features, of which as many recover less.
        neighbourhood: the attacker corrects its guess by what stands in so many places of z a side, in the same way
            everywhere (`LocalLeakage`); None for one of a single stage (`LinearLeakage`).
        target_size: the attacker aims at images shrunk to so many pixels a side, which makes its solve cheaper; None
            for all pixels.
        followed: the attacker follows the client step by step instead of being solved anew at each, which costs a
            fraction; see `FollowedSolution`.
        ramp_steps: steps over which the weight rises from nothing: covariances are young at the start.
        z_shape, image_shape: a configuration fills them in from the model.

    >>> import torch
    >>> shapes = {"z_shape": (4,), "image_shape": (3, 2, 2)}
    >>> penalty = LinearLeakagePenalty(0.5, noise_sigma=0.025, **shapes, random_features=0, ramp_steps=0)
    >>> x, y = torch.rand(64, 3, 2, 2), torch.arange(64) % 2
    >>> 0.2 < float(penalty.term(x, x.flatten(1)[:, :4], y)) < 0.5
    True
    """

    name: ClassVar[str] = "linear_leakage"
    of_whole_batch: ClassVar[bool] = True

    def __init__(
        self,
        weight: float,
        noise_sigma: float,
        *,
        z_shape: Sequence[int],
        image_shape: Sequence[int],
        random_features: int = 512,
        slots: int = 0,
        neighbourhood: int | None = None,
        target_size: int | None = None,
        followed: bool = False,
        ramp_steps: int = 500,
    ) -> None:
        super().__init__()
        self.weight = require_positive("weight", weight)
        if require_count("random_features", random_features) > 16_384:
            raise ValueError(
                f"random_features must be at most 16384 (the solve grows with its cube), got {random_features}"
            )
        self.z_shape, self.image_shape = list(z_shape), list(image_shape)
        channels, *size = image_shape
        if target_size is not None:
            require_positive_int("target_size", target_size)
            if len(size) != 2:
                raise ValueError(f"target_size needs images (C, H, W), got {tuple(image_shape)}")
            size = [min(target_size, side) for side in size]
        self.target_size = target_size
        self.ramp_steps = require_count("ramp_steps", ramp_steps)
        if require_count("slots", slots) > 1024:
            raise ValueError(f"slots must be at most 1024 (times up to 16 regions), got {slots}")
        if slots and neighbourhood is not None:
            raise ValueError(f"slots go with an attacker of one stage: leave out neighbourhood, got {neighbourhood}")
        self.slots, self.neighbourhood, self.followed = slots, neighbourhood, require_flag("followed", followed)
        self.attacker: LinearLeakage | LocalLeakage
        if neighbourhood is None:
            self.attacker = LinearLeakage(
                prod(z_shape),
                channels * prod(size),
                reg_strength=noise_sigma,
                random_features=random_features,
                attention=SlotFeatures(z_shape, slots) if slots else None,
                followed=followed,
            )
        else:
            self.attacker = LocalLeakage(
                z_shape,
                (channels, *size),
                reg_strength=noise_sigma,
                neighbourhood=neighbourhood,
                random_features=random_features,
                followed=followed,
            )

    def compile_term(self) -> None:
        """The attacker: many small operations, which compiling fuses."""
        self.attacker.compile(dynamic=False, fullgraph=True)

    def maintain(self) -> None:
        """The attacker's rare work; see `RunningLeastSquares.maintain`."""
        self.attacker.maintain()

    def epochs_until_whole(self, steps_per_epoch: int) -> int:
        """See `Defence`: until the ramp is over."""
        return ceil(self.ramp_steps / steps_per_epoch)

    def term(self, x: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """The share recovered, in [0, 1], times the ramp."""
        target = x
        if self.target_size is not None:
            height, width = (min(self.target_size, side) for side in self.image_shape[1:])
            target = adaptive_avg_pool2d(x, (height, width))
        share: Tensor = self.attacker(z, y, target).share
        if not self.ramp_steps:
            return share
        return share * (self.attacker.steps / self.ramp_steps).clamp_max(1).to(share.dtype)

    def config(self) -> dict[str, Any]:
        """Weight, σ, ramp, the attacker's size and the shapes it was made for."""
        return {
            "weight": self.weight,
            "noise_sigma": self.attacker.sigma,
            "ramp_steps": self.ramp_steps,
            "z_shape": self.z_shape,
            "image_shape": self.image_shape,
            "random_features": self.attacker.random_features,
            **({"slots": self.slots} if self.slots else {}),
            **({} if self.neighbourhood is None else {"neighbourhood": self.neighbourhood}),
            **({} if self.target_size is None else {"target_size": self.target_size}),
            **({"followed": True} if self.followed else {}),
        }

    def guarantee(self) -> str:
        """None; what one family of attackers recovers on the training batches."""
        return (
            "No formal guarantee: it lowers what a closed-form attacker recovers on the training "
            "batches; a stronger attacker may recover more. Nothing is added or withheld when a feature is released."
        )
