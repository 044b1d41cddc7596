"""The exploration's attack: a residual inverter that knows the noise, and what it rebuilds of unseen images."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_cem.data import ImageSet
from attention_cem.data.image_quality import mse_per_image, ssim_per_image
from attention_cem.splitting import ResidualInverter
from studies.exploration.cell import Cell
from studies.exploration.graphed import graphed
from studies.exploration.noise import CutNoise

ATTACK_BATCH = 512


@torch.no_grad()
def features_of(client: nn.Module, images: Tensor, device: str) -> Tensor:
    client.eval()
    out = []
    for part in images.split(2500):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            out.append(client(part.float() / 255).float())
    return torch.cat(out)


def attack(
    cell: Cell,
    model: nn.Module,
    noise: CutNoise,
    train_set: ImageSet,
    scored: dict[str, ImageSet],
    device: str,
    compiled: bool,
) -> dict[str, float]:
    """Train a residual inverter on the training images and score it on images it never saw: mean MSE and SSIM."""
    torch.manual_seed(cell.seed + 777)
    z = features_of(model.client, train_set.images, device)
    inverter = (
        ResidualInverter(tuple(z.shape[1:]), train_set.image_shape).to(device).to(memory_format=torch.channels_last)
    )
    call = torch.compile(inverter) if compiled else inverter
    optimiser = torch.optim.Adam(inverter.parameters(), 1e-3, weight_decay=1e-4, capturable=device == "cuda")
    steps = len(train_set) // ATTACK_BATCH
    total = steps * cell.attack_epochs
    rates = (0.5e-3 * (1 + torch.cos(torch.pi * torch.arange(total, dtype=torch.float64) / total))).float().to(device)
    rate = torch.zeros((), device=device)
    for group in optimiser.param_groups:
        group["lr"] = rate
    order = torch.zeros(steps, ATTACK_BATCH, dtype=torch.int64, device=device)
    counter, in_epoch = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
    last_rate = torch.tensor([total - 1], device=device)

    def step() -> None:
        index = order.index_select(0, in_epoch)[0]
        target = train_set.images.index_select(0, index).float().div(255)
        feature = z.index_select(0, index)
        rate.copy_(rates.index_select(0, torch.minimum(counter, last_rate))[0])
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            rebuilt = call(noise(feature))
        F.mse_loss(rebuilt.float(), target).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        counter.add_(1)
        in_epoch.add_(1)

    inverter.train()
    generator = torch.Generator().manual_seed(cell.seed)
    run = None
    for epoch in range(cell.attack_epochs):
        order.copy_(torch.randperm(len(train_set), generator=generator)[: steps * ATTACK_BATCH].view(steps, -1))
        in_epoch.zero_()
        if run is None:
            run = graphed(step, device)
        for _ in range(int(in_epoch) if epoch == 0 else 0, steps):
            run()
    inverter.eval()
    figures = {}
    for name, images in scored.items():
        figures[f"mse_{name}"], figures[f"ssim_{name}"] = how_alike(model, noise, inverter, images, device)
    return figures


@torch.no_grad()
def how_alike(
    model: nn.Module, noise: CutNoise, inverter: nn.Module, images: ImageSet, device: str
) -> tuple[float, float]:
    """Mean MSE and SSIM of what the inverter makes of images."""
    errors, likeness = [], []
    for part in images.images.split(1000):
        rebuilt, truth = inverter(noise(features_of(model.client, part, device))).float(), part.float() / 255
        errors.append(mse_per_image(rebuilt, truth))
        likeness.append(ssim_per_image(rebuilt, truth, data_range=1.0))
    return float(torch.cat(errors).mean()), float(torch.cat(likeness).mean())
