"""Everything a run needs to continue exactly: collected into a checkpoint, and put back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from attention_cem.training.checkpoint import Checkpoint, CheckpointError, join_parts
from attention_cem.training.meter import Meter
from attention_cem.training.optimisers import load_optimiser_state, optimiser_state


def collect_state(
    modules: Mapping[str, nn.Module], optimiser: Optimizer, meter: Meter, facts: dict[str, Any]
) -> Checkpoint:
    """Parameters and buffers of all modules, the optimiser's memory, the sums of the epoch under way.

    Random state is not among them: every stream is a function of seed and position.
    """
    parts = {name: module.state_dict() for name, module in modules.items()}
    tensors = join_parts(**parts, optimiser=optimiser_state(optimiser), meter=meter.state())
    return Checkpoint(tensors, facts)


def without_training_state(checkpoint: Checkpoint) -> Checkpoint:
    """Only what is needed to use the networks, not to train on: half the size."""
    kept = {key: value for key, value in checkpoint.tensors.items() if not key.startswith(("optimiser.", "meter."))}
    return Checkpoint(kept, checkpoint.facts)


def restore_state(
    checkpoint: Checkpoint, modules: Mapping[str, nn.Module], optimiser: Optimizer | None, meter: Meter | None
) -> None:
    """Put back what `collect_state` collected."""
    try:
        for name, module in modules.items():
            module.load_state_dict(checkpoint.part(name))
        if optimiser is not None:
            load_optimiser_state(optimiser, checkpoint.part("optimiser"))
        if meter is not None:
            meter.load_state(checkpoint.part("meter"))
    except (RuntimeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint does not fit the run: {error}") from error
