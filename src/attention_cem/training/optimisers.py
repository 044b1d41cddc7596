"""One optimiser for client, server and estimator; its state as named tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from attention_cem.training.config import SurrogateConfig, TrainConfig

TASK, ESTIMATOR = 0, 1


def build_optimiser(
    task: Iterable[nn.Parameter],
    estimator: Iterable[nn.Parameter],
    train: TrainConfig,
    surrogate: SurrogateConfig,
    *,
    recorded: bool = False,
) -> Optimizer:
    """The optimiser with its two groups: `TASK` (client, server, defences) and `ESTIMATOR` (may be empty).

    Both groups exist before the first step, each with its own step size and weight decay. On CUDA the fused
    kernels are used; for a graph that is to be recorded the step sizes are tensors there.
    """
    task_parameters = [parameter for parameter in task if parameter.requires_grad]
    estimator_parameters = [parameter for parameter in estimator if parameter.requires_grad]
    if not task_parameters:
        raise ValueError("the model has no parameter that requires a gradient; nothing can be trained")
    device = task_parameters[0].device
    fused = device.type == "cuda"

    def step_size(value: float) -> float | Tensor:
        return torch.tensor(value, device=device) if recorded else value

    groups = [
        {"params": task_parameters, "lr": step_size(train.lr), "weight_decay": train.weight_decay},
        {"params": estimator_parameters, "lr": step_size(surrogate.lr), "weight_decay": surrogate.weight_decay},
    ]
    if train.optimiser == "sgd":
        return torch.optim.SGD(groups, momentum=train.momentum, nesterov=train.nesterov, fused=fused or None)
    return torch.optim.AdamW(groups, fused=fused or None, capturable=recorded)


def set_lr(optimiser: Optimizer, group: int, value: float) -> None:
    """Set a group's step size; a tensor is filled in place, so that a recorded graph sees it."""
    settings = optimiser.param_groups[group]
    if isinstance(settings["lr"], Tensor):
        settings["lr"].fill_(value)
    else:
        settings["lr"] = value


def optimiser_state(optimiser: Optimizer) -> dict[str, Tensor]:
    """Everything the optimiser remembers, as ``<parameter number>.<name>`` tensors."""
    return {
        f"{number}.{name}": value
        for number, parameter in enumerate(_parameters(optimiser))
        for name, value in optimiser.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimiser_state(optimiser: Optimizer, state: Mapping[str, Tensor]) -> None:
    """Restore what `optimiser_state` returned into an optimiser built the same way."""
    parameters = _parameters(optimiser)
    optimiser.state.clear()
    for key, value in state.items():
        number, _, name = key.partition(".")
        if not number.isdigit() or int(number) >= len(parameters) or not name:
            raise ValueError(f"the optimiser has {len(parameters)} parameters; {key!r} belongs to none of them")
        parameter = parameters[int(number)]
        if value.dim() and value.shape != parameter.shape:
            raise ValueError(
                f"optimiser state {key!r} has shape {tuple(value.shape)}, its parameter {tuple(parameter.shape)}"
            )
        optimiser.state[parameter][name] = _placed(value, name, parameter, optimiser)


def _parameters(optimiser: Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


def _placed(value: Tensor, name: str, parameter: nn.Parameter, optimiser: Optimizer) -> Tensor:
    if name == "step":
        # Adam counts on the CPU unless its kernels are fused or recorded.
        settings = optimiser.param_groups[TASK]
        on_device = settings.get("fused") or settings.get("capturable")
        return value.to(parameter.device if on_device else "cpu", copy=True)
    # empty_like keeps the parameter's memory layout, which the fused kernels want to agree.
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value).detach()
