"""The exploration's trainer: VGG-11 at the reference cut, one CUDA graph a step, every design behind one switch."""

import math
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_cem.data import ImageSet
from attention_cem.splitting import BlindInput, ResidualInverter, SplitModel, build_split_model
from attention_cem.surrogates import LinearLeakage, LocalLeakage, build_surrogate
from attention_cem.training import backward_at_cut, detach_at_cut
from studies.exploration.attacking import features_of
from studies.exploration.cell import Cell
from studies.exploration.graphed import Sgd, graphed
from studies.exploration.noise import CutNoise

BATCH = 512
RENEW_EVERY = 44
DESIGNS = {
    "logdet": ("slot_mixture", {"num_slots": 1, "covariance": "full"}),
    "one_gaussian": ("slot_mixture", {"num_slots": 1}),
    "gated_adversary": ("gated", {"objective": "adversary"}),
}


def model_of(cell: Cell, data: ImageSet) -> SplitModel:
    model = build_split_model("vgg11_bn", data.num_classes, data.image_shape)
    if cell.blind:
        _, height, width = data.image_shape
        model.client = nn.Sequential(BlindInput(height, width, cell.blind, cell.contrast), model.client)
    return model


def surrogate_of(cell: Cell, feature_dim: int, num_classes: int) -> nn.Module | None:
    if cell.method == "noise":
        return None
    kind, options = DESIGNS.get(cell.method, (cell.method, {}))
    return build_surrogate(
        kind, feature_dim=feature_dim, num_classes=num_classes, reg_strength=cell.sigma, **options | cell.options
    )


def attacker_of(cell: Cell, z_shape: tuple[int, ...], image_shape: tuple[int, ...]) -> LinearLeakage | LocalLeakage:
    channels, height, width = image_shape
    if cell.leak_target:
        height = width = cell.leak_target
    common: dict[str, Any] = {
        "reg_strength": cell.sigma,
        "random_features": cell.leak_features,
        "followed": cell.leak_followed > 0,
    }
    if cell.leak_places:
        return LocalLeakage(z_shape, (channels, height, width), neighbourhood=cell.leak_places, **common)
    return LinearLeakage(math.prod(z_shape), channels * height * width, **common)


def schedules(cell: Cell, steps_per_epoch: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Of every step: learning rate, λ, and a ramp from 0 to 1 for the other penalties."""
    total, warm = cell.epochs * steps_per_epoch, max(1, steps_per_epoch)
    step = torch.arange(total, dtype=torch.float64)
    cosine = 0.5 * (1 + torch.cos(torch.pi * (step - warm).clamp_min(0) / max(1, total - warm)))
    rate = cell.learning_rate * torch.where(step < warm, (step + 1) / warm, cosine)
    begin = steps_per_epoch * cell.warmup_epochs
    ramp = ((step - begin) / max(1, begin)).clamp(0, 1)
    weight = ramp
    if cell.schedule == "reference":
        weight = torch.where(rate < 4.1e-4, torch.ones_like(rate), 1e-3 / rate)
        weight = torch.where(step < begin, torch.zeros_like(weight), weight)
    rate, lambdas, ramp = (each.float().to(device) for each in (rate, cell.lambd * weight, ramp))
    return rate, lambdas, ramp


def augmented(images: Tensor) -> Tensor:
    """Random crop with four pixels of padding and random flip, per image, on the device."""
    n, _, height, width = images.shape
    padded = F.pad(images, (4, 4, 4, 4))
    device = images.device
    top, left = (torch.randint(0, 9, (n, 1, 1, 1), device=device) for _ in range(2))
    rows = torch.arange(height, device=device).view(1, 1, -1, 1) + top
    columns = torch.arange(width, device=device).view(1, 1, 1, -1)
    flip = torch.rand(n, 1, 1, 1, device=device) < 0.5
    columns = torch.where(flip, width - 1 - columns, columns) + left
    picked = torch.arange(n, device=device).view(-1, 1, 1, 1)
    channels = torch.arange(images.shape[1], device=device).view(1, -1, 1, 1)
    return padded[picked, channels, rows, columns]


class Adversary:
    """An inverter that trains along with the client, and the term by which the client evades it."""

    def __init__(
        self, z_shape: tuple[int, ...], image_shape: tuple[int, ...], noise: CutNoise, device: str, compiled: bool
    ) -> None:
        self.inverter = ResidualInverter(z_shape, image_shape, width=64, blocks=2).to(device)
        self.call = torch.compile(self.inverter) if compiled else self.inverter
        self.optimiser = torch.optim.Adam(self.inverter.parameters(), 1e-3, capturable=device == "cuda")
        self.noise, self.device = noise, device

    def error(self, feature: Tensor, images: Tensor) -> Tensor:
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            rebuilt = self.call(self.noise(feature))
        return F.mse_loss(rebuilt.float(), images)

    def term(self, feature: Tensor, images: Tensor) -> Tensor:
        """Train on the batch, then say how much of the variance of about .05 the inverter still gets."""
        self.error(feature.detach(), images).backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.inverter.requires_grad_(False)
        left = (1 - self.error(feature, images) / 0.05).clamp_min(0)
        self.inverter.requires_grad_(True)
        return left


def train(cell: Cell, data: ImageSet, device: str, compiled: bool) -> tuple[nn.Module, CutNoise, dict[str, float]]:
    torch.manual_seed(cell.seed)
    model = model_of(cell, data).to(device, memory_format=torch.channels_last)
    client, server = (torch.compile(each) if compiled else each for each in (model.client, model.server))
    z_shape = model.z_shape(data.image_shape)
    feature_dim = math.prod(z_shape)
    noise = CutNoise(cell.sigma, z_shape, device, shaped=cell.shaped)
    surrogate = surrogate_of(cell, feature_dim, data.num_classes)
    leakage = attacker_of(cell, z_shape, data.image_shape).to(device)
    if surrogate is not None:
        surrogate = surrogate.to(device)
        if getattr(surrogate, "needs_fit", False):
            surrogate.fit(features_of(model.client, data.images, device), data.labels)
    estimator = [p for p in surrogate.parameters() if p.requires_grad] if surrogate is not None else []
    estimator_optimiser = torch.optim.Adam(estimator, 1e-3, capturable=device == "cuda") if estimator else None
    adversary = Adversary(z_shape, data.image_shape, noise, device, compiled) if cell.arl else None
    optimiser = Sgd(list(model.parameters()))

    steps = len(data) // BATCH
    rates, lambdas, ramps = schedules(cell, steps, device)
    order = torch.zeros(steps, BATCH, dtype=torch.int64, device=device)
    counter, in_epoch = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
    last_rate = torch.tensor([len(rates) - 1], device=device)
    seen = torch.zeros(4, device=device)  # rob_loss, intra_mse, non-finite steps, linear leakage

    def step() -> None:
        index = order.index_select(0, in_epoch)[0]
        images = augmented(data.images.index_select(0, index)).float().div(255)
        images = images.contiguous(memory_format=torch.channels_last)
        labels = data.labels.index_select(0, index)
        now = torch.minimum(counter, last_rate)
        rate, lambd, ramp = (each.index_select(0, now)[0] for each in (rates, lambdas, ramps))
        autocast = torch.autocast(device, torch.bfloat16, enabled=device == "cuda")
        with autocast:
            z = client(images)
        z = z.float()
        feature = detach_at_cut(z)
        with autocast:
            logits = server(noise(feature))
        task_loss = F.cross_entropy(logits.float(), labels)
        share = torch.zeros((), device=device)
        if cell.leak:
            aim = F.adaptive_avg_pool2d(images, cell.leak_target) if cell.leak_target else images
            share = leakage(feature, labels, aim).share
            task_loss = task_loss + cell.leak * ramp * share
        if adversary is not None:
            task_loss = task_loss + cell.arl * ramp * adversary.term(feature, images)
        if surrogate is not None:
            output = surrogate(feature, labels)
            skipped = backward_at_cut(z, feature, task_loss, output.rob_loss, lambd=lambd, estimator=estimator)
            seen.add_(torch.stack([output.rob_loss.detach(), output.intra_mse, skipped.float(), share.detach()]))
        else:
            task_loss.backward()
            z.backward(feature.grad)
            zero = torch.zeros((), device=device)
            seen.add_(torch.stack([zero, zero, (~torch.isfinite(task_loss.detach())).float(), share.detach()]))
        optimiser.step(rate)
        if estimator_optimiser is not None:
            estimator_optimiser.step()
            estimator_optimiser.zero_grad(set_to_none=True)
        noise.learn(feature.detach(), labels)
        counter.add_(1)
        in_epoch.add_(1)

    generator = torch.Generator().manual_seed(cell.seed)
    began, run = time.time(), None
    for epoch in range(cell.epochs):
        permutation = torch.randperm(len(data), generator=generator)[: steps * BATCH].view(steps, BATCH)
        order.copy_(permutation)
        in_epoch.zero_()
        seen.zero_()
        model.train()
        if run is None:
            run = graphed(step, device)
        for position in range(int(in_epoch) if epoch == 0 else 0, steps):
            run()
            if position % RENEW_EVERY == RENEW_EVERY // 2:
                noise.renew()
            if device == "cuda" and cell.leak_followed and position % cell.leak_followed == 0:
                leakage.maintain()
            if device == "cuda" and surrogate is not None and position % RENEW_EVERY == RENEW_EVERY // 2:
                surrogate.maintain()
        if surrogate is not None and getattr(surrogate, "needs_fit", False) and epoch < cell.epochs - 1:
            surrogate.fit(features_of(model.client, data.images, device), data.labels)
    figures = (seen / steps).tolist()
    return (
        model,
        noise,
        {
            "rob_loss": figures[0],
            "intra_mse": figures[1],
            "nonfinite": figures[2] * steps,
            "linear_leakage": figures[3],
            "train_s": time.time() - began,
        },
    )
