"""One step on a fixed global batch, as one process or as one of several takes it."""

from typing import Any

import torch
from torch import Tensor, nn

from attention_cem.defences import build_stack
from attention_cem.splitting import SplitModel
from attention_cem.surrogates import build_surrogate, surrogate_names
from attention_cem.training.activation import SurrogateMode
from attention_cem.training.config import SurrogateConfig, TrainConfig
from attention_cem.training.distributed import World
from attention_cem.training.optimisers import build_optimiser
from attention_cem.training.step import StepSettings, TrainingStep

from .helpers import SURROGATES

PENALTIES: dict[str, list[dict[str, Any]]] = {
    "closed form": [{"name": "linear_leakage", "weight": 4.0, "noise_sigma": 0.1, "ramp_steps": 0}],
    "closed form, followed": [
        {"name": "linear_leakage", "weight": 4.0, "noise_sigma": 0.1, "ramp_steps": 0, "followed": True}
    ],
    "closed form, slots": [{"name": "linear_leakage", "weight": 4.0, "noise_sigma": 0.1, "ramp_steps": 0, "slots": 4}],
    "distance correlation": [{"name": "distance_correlation", "weight": 4.0}],
}
NAMES = [*surrogate_names(), *PENALTIES]
BATCH, CLASSES = 24, 4
CONTEXT = {"z_shape": (4, 4, 4), "image_shape": (3, 8, 8), "random_features": 8}


def one_step(name: str, world: World, *, plain_sum: bool = False) -> dict[str, Tensor]:
    """Gradients of client, server and estimator, and all states; two calls, so that a memory is read."""
    torch.manual_seed(0)
    client = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.Sigmoid())
    server = nn.Sequential(nn.Flatten(), nn.Linear(4 * 4 * 4, CLASSES))
    model = SplitModel(client, server).double().eval()  # batch norm in evaluation mode: it is local to a rank
    stack = build_stack(PENALTIES.get(name, []), CONTEXT).double()
    name = "gated" if name in PENALTIES else name
    arguments = SURROGATES.get(name, {})
    surrogate = build_surrogate(name, feature_dim=64, num_classes=CLASSES, reg_strength=0.1, **arguments).double()
    if surrogate.needs_fit:
        surrogate.fit(torch.randn(80, 64, dtype=torch.float64), torch.arange(80) % CLASSES)
    optimiser = build_optimiser(
        model.parameters(), surrogate.parameters(), TrainConfig(lr=0.01), SurrogateConfig(lr=0.01)
    )
    settings = StepSettings(plain_sum=plain_sum, attention_loss_scale=0.25)
    step = TrainingStep(model, stack, surrogate, optimiser, settings, world=world)
    step.lambd.fill_(16.0)
    share = BATCH // world.size
    own = slice(world.rank * share, (world.rank + 1) * share)
    for number in range(2):
        generator = torch.Generator().manual_seed(number)
        images = torch.rand(BATCH, 3, 8, 8, generator=generator, dtype=torch.float64)
        labels = torch.randint(CLASSES, (BATCH,), generator=generator)
        step.gradients(images[own], labels[own], SurrogateMode.ACTIVE)
    gradients = {
        f"{kind}.{key}": parameter.grad
        for kind, module in (("client", client), ("server", server), ("estimator", surrogate))
        for key, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    states = {**surrogate.state_dict(prefix="surrogate."), **stack.state_dict(prefix="defences.")}
    return gradients | {f"state.{key}": value for key, value in states.items()}
