"""The global random state as a pure function of (seed, epoch, batch, rank): nothing to save, nothing to restore.

Noise, dropout and whatever else a model draws come from torch's global generators. Seeding them before every step
makes a step repeatable on its own, so that a run continued in the middle of an epoch draws what it would have
drawn. Ranks get different streams.
"""

from __future__ import annotations

import torch

from attention_cem.data.random_streams import stream_seed


def seed_stream(device: torch.device, purpose: str, *keys: int) -> None:
    """Seed the global generator of the CPU and, without waiting for it, that of ``device``.

    >>> seed_stream(torch.device("cpu"), "step", 0, 1, 2)
    >>> first = torch.rand(1)
    >>> seed_stream(torch.device("cpu"), "step", 0, 1, 2)
    >>> torch.equal(first, torch.rand(1))
    True
    """
    seed = stream_seed(purpose, *keys)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)
