"""Run one training step many times with as little overhead as the device allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


def repeated_step(step: Callable[[Tensor], None], example: Tensor) -> Callable[[Tensor], None]:
    """On CUDA, capture ``step`` in a CUDA graph and return a function that replays it; elsewhere ``step`` itself.

    The step must do the same work at every call: fixed shapes, no host synchronisation, an optimiser with
    ``capturable=True``. Small networks are bound by kernel launches, which a replay does once for the whole step.
    Three real steps on ``example`` are taken before the capture, as warm-up.

    Args:
        step: takes an index tensor ``(B,)``.
        example: an index tensor of the shape and device of all later ones.
    """
    if example.device.type != "cuda":
        return step
    fixed = example.clone()
    again = captured(lambda: step(fixed), example.device)

    def replay(index: Tensor) -> None:
        fixed.copy_(index)
        again()

    return replay


def captured(step: Callable[[], None], device: torch.device | None = None, *, warm_up: int = 3) -> Callable[[], None]:
    """Capture a step in a CUDA graph; the function that replays it, which keeps the step's tensors alive.

    Args:
        step: as in `repeated_step`.
        device: whose graph it is; None for the current CUDA device.
        warm_up: real steps that are taken before the capture.
    """
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            step()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return _Replay(graph, step)


@dataclass(frozen=True)
class _Replay:
    graph: torch.cuda.CUDAGraph
    step: Callable[[], None]  # holds the tensors that the graph reads

    def __call__(self) -> None:
        self.graph.replay()


def adam(parameters: list[nn.Parameter] | list[Tensor], lr: float, weight_decay: float = 0.0) -> torch.optim.Adam:
    """Adam that can be captured in a CUDA graph: fused, step count and learning rate on the device."""
    on_cuda = parameters[0].is_cuda
    rate = torch.tensor(lr, device=parameters[0].device) if on_cuda else lr
    return torch.optim.Adam(
        parameters, lr=rate, weight_decay=weight_decay, fused=True if on_cuda else None, capturable=on_cuda
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Change the learning rate without a host synchronisation and without breaking a captured graph."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


@contextmanager
def fast_convolutions(device: torch.device) -> Iterator[None]:
    """On CUDA: try the convolution algorithms once for each shape and keep the fastest. Elsewhere nothing."""
    if device.type != "cuda":
        yield
        return
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True):
        yield


def mixed_precision(device: torch.device) -> torch.autocast:
    """bf16 autocast on CUDA, plain float32 on the CPU."""
    # Cached casts would be captured once and then go stale while the weights move.
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False)
