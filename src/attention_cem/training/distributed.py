"""Several processes as one: global-batch features with gradients, averaged gradients, one writer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

_GLOO_SETTLES = 0.5
"""Seconds without Python for gloo's threads to let go of the last tensors.

One that still waits for its turn when the interpreter ends aborts the process, after everything is done and written.
"""


@dataclass(frozen=True)
class World:
    """The processes that train together; the default is one process alone.

    >>> World().is_main, World().gather(torch.ones(2, 3)).shape
    (True, torch.Size([2, 3]))
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def gather(self, tensor: Tensor) -> Tensor:
        """All ranks' parts ``(n, ...)`` joined in the order of the ranks ``(n · size, ...)``; no gradient."""
        if self.size == 1:
            return tensor
        parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(parts, tensor.detach().contiguous())
        return torch.cat(parts)

    def gather_with_gradient(self, tensor: Tensor) -> Tensor:
        """Like `gather`, for a loss that every rank computes on the joined batch.

        The gradient of that loss reaches this rank's part times ``size``, because `average_` divides all
        gradients by it: the averaged gradient is then the one a single process gets from the joined batch.
        """
        if self.size == 1:
            return tensor
        joined: Tensor = _Gather.apply(tensor, self)
        return joined

    @torch.no_grad()
    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over the ranks, with one message for all of a dtype."""
        if self.size == 1:
            return
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            same = [tensor for tensor in tensors if tensor.dtype == dtype]
            joined = torch.cat([tensor.reshape(-1) for tensor in same])
            dist.all_reduce(joined)
            joined /= self.size
            for tensor, part in zip(same, joined.split([tensor.numel() for tensor in same]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum over the ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def all(self, flag: Tensor) -> Tensor:
        """() bool tensor: whether the flag is set on all ranks; waits for no device."""
        if self.size == 1:
            return flag
        return self.sum_(flag.to(torch.int32)) == self.size

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether the flag is set on any rank; waits for the others."""
        if self.size == 1:
            return flag
        return bool(self.sum_(torch.tensor([int(flag)], device=device)))

    @torch.no_grad()
    def share_from_main(self, tensors: Sequence[Tensor]) -> None:
        """Give every rank the main process's values."""
        if self.size > 1:
            for tensor in tensors:
                joined = tensor.detach().contiguous()
                dist.broadcast(joined, src=0)
                tensor.copy_(joined)

    def wait(self) -> None:
        """Wait until every rank is here."""
        if self.size > 1:
            dist.barrier()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, world: World) -> Tensor:
        ctx.world, ctx.rows = world, tensor.shape[0]
        return world.gather(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        own = gradients[0].narrow(0, ctx.world.rank * ctx.rows, ctx.rows)
        return own * ctx.world.size, None


@contextmanager
def joined_world(device_type: str) -> Iterator[World]:
    """The world torchrun started (nccl on CUDA, gloo otherwise), an existing process group, or one process."""
    if dist.is_available() and dist.is_initialized():
        yield World(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))
        return
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if device_type == "cuda":
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), size, local_rank)
    finally:
        if device_type != "cuda":
            time.sleep(_GLOO_SETTLES)
        dist.destroy_process_group()
