"""Counting steps whose loss was not finite, on the device; deciding what to do when somebody looks."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TrainingFailedError(RuntimeError):
    """Training cannot go on; the last checkpoint is intact."""


class NonFiniteMonitor(nn.Module):
    """Counts surrogate terms that were left out, and task losses that were not finite.

    A surrogate's bad step trains without it (see `backward_at_cut`). A task loss that is not finite has spoilt
    the weights: there is nothing to train on without it, so the next look raises.

    Args:
        limit: so many bad surrogate steps in a row raise.

    >>> monitor = NonFiniteMonitor(limit=2)
    >>> for bad in (True, False, True, True):
    ...     monitor.count(torch.tensor(bad), torch.tensor(1.0))
    >>> monitor.check("epoch 1")
    Traceback (most recent call last):
    ...
    attention_cem.training.nonfinite.TrainingFailedError: epoch 1: the surrogate's loss or gradient was not finite ...
    """

    left_out: Tensor
    in_a_row: Tensor
    longest: Tensor
    spoilt: Tensor

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        for name in ("left_out", "in_a_row", "longest", "spoilt"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def count(self, surrogate_left_out: Tensor, task_loss: Tensor) -> None:
        """Count one step; does not wait for the device."""
        bad = surrogate_left_out.to(torch.int64)
        self.left_out.add_(bad)
        self.in_a_row.add_(1).mul_(bad)
        torch.maximum(self.longest, self.in_a_row, out=self.longest)
        self.spoilt.add_((~torch.isfinite(task_loss)).to(torch.int64))

    def check(self, when: str) -> int:
        """Raise if training must stop, else return how many steps were left out so far; waits for the device."""
        left_out, longest, spoilt = torch.stack([self.left_out, self.longest, self.spoilt]).tolist()
        if spoilt:
            raise TrainingFailedError(
                f"{when}: the task loss was not finite on {spoilt} step(s); lower train.lr or the weight of a penalty "
                "among the defences, or set train.clip_norm, and start again in another run.folder"
            )
        if longest >= self.limit:
            raise TrainingFailedError(
                f"{when}: the surrogate's loss or gradient was not finite on {longest} steps in a row "
                f"(train.nonfinite_limit is {self.limit}); {left_out} steps trained without it. "
                "Lower surrogate.lambd or surrogate.lr, or choose another surrogate"
            )
        return int(left_out)
