"""Runs a plan of cells: each trains VGG-11 at the reference cut, then an inverter that knows the noise.

Of the training images 90 % train, 10 % are kept for choices. Every cell writes one small JSON file. On a GPU the whole
step is one CUDA graph and several cells run at once.

    python -m studies.exploration --data DIR --out results/exploration --plan curves --workers 6
    python -m studies.exploration.report
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import nn

from attention_cem.data import ImageData, ImageSet, load_data, split_validation
from studies.exploration.attacking import attack
from studies.exploration.cell import Cell, default_of
from studies.exploration.noise import CutNoise
from studies.exploration.plans import PLANS
from studies.exploration.training import train


@functools.cache
def images_of(name: str, root: str, device: str, limit: int | None) -> ImageData:
    return load_data(name, root, limit=limit).to(device)


@torch.no_grad()
def accuracy(model: nn.Module, data: ImageSet, noise: CutNoise, device: str) -> float:
    model.eval()
    torch.manual_seed(1234)
    hits = 0
    for images, labels in zip(data.images.split(2500), data.labels.split(2500), strict=True):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            z = model.client(images.float() / 255).float()
            logits = model.server(noise(z))
        hits += int((logits.float().argmax(1) == labels).sum())
    return hits / len(data)


def run_cell(
    cell: Cell, root: str, out: Path, device: str, *, limit: int | None = None, compiled: bool = False
) -> None:
    data = images_of(cell.data, root, device, limit)
    kept, validation = split_validation(data.train, 0.1, seed=0)
    torch._dynamo.reset()  # code compiled for the last cell's networks is of no use
    model, noise, figures = train(cell, kept, device, compiled)
    began = time.time()
    attack_train = kept.subset(torch.arange(min(len(kept), 5000), device=kept.device))
    scored = {"validation": validation, "test": data.test, "train": attack_train}
    usual = replace(cell, attack_epochs=default_of("attack_epochs"))
    short = {}
    if cell.attack_epochs > usual.attack_epochs:  # what the usual attack finds of the very same client
        found = attack(usual, model, noise, kept, {"test": data.test}, device, compiled)
        short = {"mse_test_usual": found["mse_test"]}
    result = {
        "cell": asdict(cell),
        "accuracy_validation": accuracy(model, validation, noise, device),
        "accuracy_test": accuracy(model, data.test, noise, device),
        **attack(cell, model, noise, kept, scored, device, compiled),
        **short,
        **figures,
        "attack_s": time.time() - began,
        "compiled": compiled,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
    }
    temporary = out / f".{cell.name}.{os.getpid()}"
    temporary.write_text(json.dumps(result, indent=1))
    temporary.replace(out / f"{cell.name}.json")
    given = " ".join(f"{key}={value}" for key, value in result["cell"].items() if value)
    print(
        f"acc {result['accuracy_test']:.4f} mse {result['mse_test']:.4f} {given} "
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the image data")
    parser.add_argument("--out", type=Path, default=Path("results/exploration"))
    parser.add_argument("--plan", choices=sorted(PLANS), default="curves")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=int, help="use so many images only (for a try)")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no cell after this time")
    parser.add_argument("--compile", action="store_true", help="torch.compile the networks: faster, minutes to begin")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    began = time.time()
    if arguments.workers > 1 and not arguments.worker:
        for lock in arguments.out.glob("*.lock"):
            lock.unlink()
        command = [sys.executable, "-m", "studies.exploration", *sys.argv[1:], "--worker"]
        workers = [subprocess.Popen(command) for _ in range(arguments.workers)]
        return max(worker.wait() for worker in workers)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    for cell in claimed(PLANS[arguments.plan](), arguments.out):
        if time.time() - began > arguments.seconds:
            (arguments.out / f"{cell.name}.lock").unlink()
            break
        try:
            run_cell(cell, arguments.data, arguments.out, device, limit=arguments.limit, compiled=arguments.compile)
        except (RuntimeError, ValueError) as error:
            (arguments.out / f"{cell.name}.error").write_text(repr(error))
            print(f"FAILED {cell}: {error!r}"[:600], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
