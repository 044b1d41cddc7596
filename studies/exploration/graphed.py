"""A step that is replayed as a CUDA graph, and an optimiser that can be."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attention_cem.attacks.repeated_step import captured


def graphed(step: Callable[[], None], device: str) -> Callable[[], None]:
    """The step as a CUDA graph; the step itself elsewhere. Three real steps run first as the warm-up."""
    return captured(step) if device == "cuda" else step


class Sgd:
    """SGD with momentum and a rate that is a tensor, so that a graph can replay it."""

    def __init__(self, parameters: list[nn.Parameter], momentum: float = 0.9, decay: float = 5e-4) -> None:
        self.parameters, self.momentum, self.decay = parameters, momentum, decay
        self.buffers = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self, rate: Tensor) -> None:
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        gradients = list(torch._foreach_add(gradients, list(self.parameters), alpha=self.decay))
        torch._foreach_mul_(self.buffers, self.momentum)
        torch._foreach_add_(self.buffers, gradients)
        torch._foreach_sub_(list(self.parameters), torch._foreach_mul(self.buffers, rate))
        for p in self.parameters:
            p.grad = None
