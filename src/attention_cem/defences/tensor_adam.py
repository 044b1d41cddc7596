"""Adam whose whole state is three tensors, so that a checkpoint needs no pickle and a resume is exact."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from . import checks


class TensorAdam(nn.Module):
    r"""Adam (Kingma & Ba, ICLR 2015, arXiv 1412.6980) on one flat vector of gradients.

    m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², θ ← θ − lr · m̂ / (√v̂ + ε). The moments and the step count are
    persistent buffers: they follow the owning module through ``state_dict`` and ``.to(device)``.

    Args:
        size: total number of parameters.
        lr: step size.

    >>> weight = nn.Parameter(torch.ones(2))
    >>> TensorAdam(size=2, lr=0.1).update([weight], torch.tensor([3.0, -5.0]))
    >>> [round(value, 4) for value in weight.tolist()]  # the first step has the size lr
    [0.9, 1.1]
    """

    beta1, beta2, eps = 0.9, 0.999, 1e-8
    first_moment: Tensor
    second_moment: Tensor
    steps: Tensor

    def __init__(self, size: int, lr: float) -> None:
        super().__init__()
        self.lr = checks.positive("lr", lr)
        self.register_buffer("first_moment", torch.zeros(size))
        self.register_buffer("second_moment", torch.zeros(size))
        self.register_buffer("steps", torch.zeros(()))

    @torch.no_grad()
    def update(self, parameters: Sequence[nn.Parameter], gradient: Tensor) -> None:
        """One step in place.

        Args:
            parameters: in the same order at every call.
            gradient: their gradients, flattened and joined, ``(size,)``.
        """
        self.steps += 1
        self.first_moment.lerp_(gradient, 1 - self.beta1)
        self.second_moment.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        # 1 − βᵗ as −expm1(t·log β): in float32 the plain form keeps four digits of the first corrections.
        first = self.first_moment / -torch.expm1(self.steps * math.log(self.beta1))
        second = self.second_moment / -torch.expm1(self.steps * math.log(self.beta2))
        change = self.lr * first / (second.sqrt() + self.eps)
        parts = change.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.sub_(part.view(parameter.shape))
