"""Short trainings over many designs, each attacked: which surrogate, schedule and penalty lead where.

Every cell trains VGG-11 at the reference cut on 45,000 images (5,000 are kept for choices), then trains a residual
inverter that knows the noise, and writes one small JSON file. On a GPU the whole step is one CUDA graph and several
cells run at once.

    python -m studies.exploration --data DIR --out results/exploration --plan main --workers 6
    python -m studies.exploration_report
"""

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_cem.data import ImageSet, load_data, split_validation
from attention_cem.splitting import ResidualInverter, build_split_model
from attention_cem.surrogates import LinearLeakage, build_surrogate
from attention_cem.training import backward_at_cut, detach_at_cut

BATCH, ATTACK_BATCH = 512, 512


@dataclass(frozen=True)
class Cell:
    """One training and its attack."""

    method: str
    lambd: float = 0.0
    sigma: float = 0.025
    schedule: str = "constant"
    arl: float = 0.0
    seed: int = 0
    data: str = "cifar10"
    epochs: int = 40
    attack_epochs: int = 15
    warmup_epochs: int = 3
    learning_rate: float = 0.1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """A file name that says what it is."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.data}-{self.method}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def surrogate_of(cell: Cell, feature_dim: int, num_classes: int) -> nn.Module | None:
    if cell.method in ("noise", "leakage"):
        return None
    options = dict(cell.options)
    kind = {"logdet": "slot_mixture", "gated_adversary": "gated", "one_gaussian": "slot_mixture"}.get(
        cell.method, cell.method
    )
    if cell.method == "logdet":
        options = {"num_slots": 1, "covariance": "full"} | options
    if cell.method == "one_gaussian":
        options = {"num_slots": 1} | options
    if cell.method == "gated_adversary":
        options = {"objective": "adversary"} | options
    return build_surrogate(kind, feature_dim=feature_dim, num_classes=num_classes, reg_strength=cell.sigma, **options)


def schedules(cell: Cell, steps_per_epoch: int, device: str) -> tuple[Tensor, Tensor]:
    """Learning rate and λ of every step."""
    total, warm = cell.epochs * steps_per_epoch, max(1, steps_per_epoch)
    step = torch.arange(total, dtype=torch.float64)
    cosine = 0.5 * (1 + torch.cos(torch.pi * (step - warm).clamp_min(0) / max(1, total - warm)))
    rate = cell.learning_rate * torch.where(step < warm, (step + 1) / warm, cosine)
    if cell.schedule == "reference":
        weight = torch.where(rate < 4.1e-4, torch.ones_like(rate), 1e-3 / rate)
    else:
        ramp = steps_per_epoch * cell.warmup_epochs
        weight = ((step - ramp) / max(1, ramp)).clamp(0, 1)
    weight = torch.where(step < steps_per_epoch * cell.warmup_epochs, torch.zeros_like(weight), weight)
    return rate.float().to(device), (cell.lambd * weight).float().to(device)


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


def graphed(step: Callable[[], None], device: str) -> Callable[[], None]:
    """The step as a CUDA graph; the step itself elsewhere. Three real steps run first as the warm-up."""
    if device != "cuda":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


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


@torch.no_grad()
def features_of(client: nn.Module, images: Tensor, device: str) -> Tensor:
    client.eval()
    out = []
    for part in images.split(2500):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            out.append(client(part.float() / 255).float())
    return torch.cat(out)


def train(cell: Cell, data: ImageSet, device: str) -> tuple[nn.Module, dict[str, float]]:
    torch.manual_seed(cell.seed)
    model = build_split_model("vgg11_bn", data.num_classes, data.image_shape).to(
        device, memory_format=torch.channels_last
    )
    z_shape = model.z_shape(data.image_shape)
    feature_dim = int(torch.tensor(z_shape).prod())
    surrogate = surrogate_of(cell, feature_dim, data.num_classes)
    leakage = None
    if cell.method == "leakage":
        leakage = LinearLeakage(feature_dim, data.images[0].numel(), reg_strength=cell.sigma, **cell.options).to(device)
    if surrogate is not None:
        surrogate = surrogate.to(device)
        if getattr(surrogate, "needs_fit", False):
            surrogate.fit(features_of(model.client, data.images, device), data.labels)
    estimator = [p for p in surrogate.parameters() if p.requires_grad] if surrogate is not None else []
    estimator_optimiser = torch.optim.Adam(estimator, 1e-3, capturable=device == "cuda") if estimator else None
    adversary = ResidualInverter(z_shape, data.image_shape, width=64, blocks=2).to(device) if cell.arl else None
    adversary_optimiser = None
    if adversary is not None:
        adversary_optimiser = torch.optim.Adam(adversary.parameters(), 1e-3, capturable=device == "cuda")
    optimiser = Sgd(list(model.parameters()))

    steps = len(data) // BATCH
    rates, lambdas = schedules(cell, steps, device)
    order = torch.zeros(steps, BATCH, dtype=torch.int64, device=device)
    counter, in_epoch = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
    last_rate = torch.tensor([len(rates) - 1], device=device)
    seen = torch.zeros(3, device=device)  # rob_loss, intra_mse, non-finite steps

    def step() -> None:
        index = order.index_select(0, in_epoch)[0]
        images = augmented(data.images.index_select(0, index)).float().div(255)
        images = images.contiguous(memory_format=torch.channels_last)
        labels = data.labels.index_select(0, index)
        now = torch.minimum(counter, last_rate)
        rate, lambd = rates.index_select(0, now)[0], lambdas.index_select(0, now)[0]
        autocast = torch.autocast(device, torch.bfloat16, enabled=device == "cuda")
        with autocast:
            z = model.client(images)
        z = z.float()
        feature = detach_at_cut(z)
        with autocast:
            logits = model.server(feature + cell.sigma * torch.randn_like(feature))
        task_loss = F.cross_entropy(logits.float(), labels)
        if adversary is not None and adversary_optimiser is not None:
            noisy = feature.detach() + cell.sigma * torch.randn_like(feature)
            with autocast:
                rebuilt = adversary(noisy)
            F.mse_loss(rebuilt.float(), images).backward()
            adversary_optimiser.step()
            adversary_optimiser.zero_grad(set_to_none=True)
            for p in adversary.parameters():
                p.requires_grad_(False)
            with autocast:
                rebuilt = adversary(feature + cell.sigma * torch.randn_like(feature))
            error = F.mse_loss(rebuilt.float(), images)
            task_loss = task_loss + cell.arl * (lambdas.new_ones(()) if not cell.lambd else (lambd > 0)) * (
                1 - error / 0.05
            ).clamp_min(0)
            for p in adversary.parameters():
                p.requires_grad_(True)
        if surrogate is not None:
            output = surrogate(feature, labels)
            skipped = backward_at_cut(z, feature, task_loss, output.rob_loss, lambd=lambd, estimator=estimator)
            seen.add_(torch.stack([output.rob_loss.detach(), output.intra_mse, skipped.float()]))
        elif leakage is not None:
            share = leakage(feature, labels, images).share
            skipped = backward_at_cut(z, feature, task_loss, share, lambd=lambd)
            seen.add_(torch.stack([share.detach(), share.detach() * 0, skipped.float()]))
        else:
            task_loss.backward()
            z.backward(feature.grad)
        optimiser.step(rate)
        if estimator_optimiser is not None:
            estimator_optimiser.step()
            estimator_optimiser.zero_grad(set_to_none=True)
        counter.add_(1)
        in_epoch.add_(1)

    generator = torch.Generator().manual_seed(cell.seed)
    began, run, done = time.time(), None, 0
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
            done += 1
            if surrogate is not None and device == "cuda" and position % 44 == 20:
                surrogate.maintain()
        if surrogate is not None and getattr(surrogate, "needs_fit", False) and epoch < cell.epochs - 1:
            surrogate.fit(features_of(model.client, data.images, device), data.labels)
    figures = (seen / steps).tolist()
    return model, {
        "rob_loss": figures[0],
        "intra_mse": figures[1],
        "nonfinite": figures[2] * steps,
        "train_s": time.time() - began,
    }


@torch.no_grad()
def accuracy(model: nn.Module, data: ImageSet, sigma: float, device: str) -> float:
    model.eval()
    torch.manual_seed(1234)
    hits = 0
    for images, labels in zip(data.images.split(2500), data.labels.split(2500), strict=True):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            z = model.client(images.float() / 255).float()
            logits = model.server(z + sigma * torch.randn_like(z))
        hits += int((logits.float().argmax(1) == labels).sum())
    return hits / len(data)


def attack(
    cell: Cell, model: nn.Module, train_set: ImageSet, scored: dict[str, ImageSet], device: str
) -> dict[str, float]:
    """Train a residual inverter on the training images and score it on images it never saw: mean per-image MSE."""
    torch.manual_seed(cell.seed + 777)
    z = features_of(model.client, train_set.images, device)
    inverter = (
        ResidualInverter(tuple(z.shape[1:]), train_set.image_shape).to(device).to(memory_format=torch.channels_last)
    )
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
            rebuilt = inverter(feature + cell.sigma * torch.randn_like(feature))
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
    result = {}
    with torch.no_grad():
        for name, images in scored.items():
            errors = []
            for part in images.images.split(1000):
                feature = features_of(model.client, part, device)
                rebuilt = inverter(feature + cell.sigma * torch.randn_like(feature))
                errors.append((rebuilt.float() - part.float() / 255).square().flatten(1).mean(1))
            result[f"mse_{name}"] = float(torch.cat(errors).mean())
    return result


def run_cell(cell: Cell, root: str, out: Path, device: str, limit: int | None) -> None:
    data = load_data(cell.data, root, limit=limit).to(device)
    kept, validation = split_validation(data.train, 0.1, seed=0)
    model, figures = train(cell, kept, device)
    began = time.time()
    attack_train = kept.subset(torch.arange(min(len(kept), 5000), device=kept.device))
    result = {
        "cell": asdict(cell),
        "accuracy_validation": accuracy(model, validation, cell.sigma, device),
        "accuracy_test": accuracy(model, data.test, cell.sigma, device),
        **attack(cell, model, kept, {"validation": validation, "test": data.test, "train": attack_train}, device),
        **figures,
        "attack_s": time.time() - began,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
    }
    temporary = out / f".{cell.name}.{os.getpid()}"
    temporary.write_text(json.dumps(result, indent=1))
    temporary.replace(out / f"{cell.name}.json")
    print(
        f"{cell.method} λ={cell.lambd} σ={cell.sigma} {cell.schedule} arl={cell.arl} seed={cell.seed} {cell.options}: "
        f"acc {result['accuracy_test']:.4f} mse {result['mse_test']:.4f} "
        f"({figures['train_s']:.0f}+{result['attack_s']:.0f} s)",
        flush=True,
    )


def claimed(cells: list[Cell], out: Path) -> Iterator[Cell]:
    """Cells nobody has done or begun; a lock file marks the ones begun."""
    for cell in cells:
        if (out / f"{cell.name}.json").exists():
            continue
        try:
            os.close(os.open(out / f"{cell.name}.lock", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        yield cell


def main() -> int:
    from studies.exploration_plans import PLANS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the image data")
    parser.add_argument("--out", type=Path, default=Path("results/exploration"))
    parser.add_argument("--plan", choices=sorted(PLANS), default="main")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=int, help="use so many images only (for a try)")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no cell after this time")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    cells = list(itertools.chain(PLANS[arguments.plan]()))
    began = time.time()
    if arguments.workers > 1 and not arguments.worker:
        for lock in arguments.out.glob("*.lock"):
            lock.unlink()
        command = [sys.executable, "-m", "studies.exploration", *sys.argv[1:], "--worker"]
        workers = [subprocess.Popen(command) for _ in range(arguments.workers)]
        return max(worker.wait() for worker in workers)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    for cell in claimed(cells, arguments.out):
        if time.time() - began > arguments.seconds:
            (arguments.out / f"{cell.name}.lock").unlink()
            break
        try:
            run_cell(cell, arguments.data, arguments.out, device, arguments.limit)
        except (RuntimeError, ValueError) as error:
            (arguments.out / f"{cell.name}.error").write_text(repr(error))
            print(f"FAILED {cell}: {error!r}"[:600], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
