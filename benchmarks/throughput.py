"""What training costs: seconds per epoch and memory of the real trainer, VGG-11 on CIFAR-10-sized random images.

python -m benchmarks.throughput --out results/benchmarks/throughput-h200.json

One training at a time on the machine: no surrogate, k-means CEM, ours, at batch 128 and 512 and 10 to 1,000 classes;
the other surrogates at batch 128 and 10 classes. Fitting an estimator counts, validation and checkpoints do not.
"""

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from attention_cem.data import ImageData, ImageSet
from attention_cem.studies.results import program_commit
from attention_cem.training import load_config, train
from benchmarks.timing import machine

NONE = {"surrogate.name": "none", "surrogate.lambd": 0.0}
SOLVED = {"defence.linear_leakage.weight": 1e-6, "defence.linear_leakage.random_features": 512}
FOLLOWED = SOLVED | {"defence.linear_leakage.followed": True}
ATTENDING = {"defence.linear_leakage.random_features": 0, "defence.linear_leakage.slots": 32}
METHODS: dict[str, dict[str, Any]] = {
    "none": NONE,
    "k-means": {"surrogate.name": "kmeans"},
    "slot mixture": {"surrogate.name": "slot_mixture"},
    "sound": NONE | FOLLOWED | {"model.blind_frequencies": 4},
    "sound, aimed at 8 px": NONE | FOLLOWED | {"model.blind_frequencies": 4, "defence.linear_leakage.target_size": 8},
    "sound, attention": NONE | FOLLOWED | ATTENDING | {"model.blind_frequencies": 4},
    "closed form, followed": NONE | FOLLOWED,
    "closed form, followed, aimed at 8 px": NONE | FOLLOWED | {"defence.linear_leakage.target_size": 8},
    "closed form, two stages": NONE | FOLLOWED | {"defence.linear_leakage.neighbourhood": 1},
    "closed form, solved at every step": NONE | SOLVED,
    "slot (documents)": {"surrogate.name": "slot_cross"},
    "gated (documents)": {"surrogate.name": "gated"},
}
EVERYWHERE = ("none", "k-means", "slot mixture", "sound", "sound, aimed at 8 px")


def random_images(count: int, classes: int, seed: int) -> ImageSet:
    """Noise with labels in turn: cost does not depend on what is on the images."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return ImageSet(images, torch.arange(count) % classes, tuple(f"class {i}" for i in range(classes)))


def plan(batches: Sequence[int], classes: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """(classes, batch, method): everything at the first batch size and number of classes, the main ones everywhere."""
    for count in classes:
        for batch in batches:
            first = (count, batch) == (classes[0], batches[0])
            yield from ((count, batch, name) for name in METHODS if first or name in EVERYWHERE)


def measure(method: str, batch: int, data: ImageData, mode: str, epochs: int) -> dict[str, float]:
    """The last epoch of a short training."""
    held = _held_by_others()
    with tempfile.TemporaryDirectory() as folder:
        common = {
            "train.epochs": epochs,
            "train.batch_size": batch,
            "train.cuda_graph": "off" if mode == "eager" else "auto",
            "train.compile": mode == "compiled",
            "surrogate.attention_warmup_epochs": 0,
            "surrogate.lambd": 1e-6,
            "run.folder": f"{folder}/run",
            "run.tensorboard": False,
            "run.figures": False,
        }
        last = train(load_config(Path("configs/cifar10-slots.toml"), common | METHODS[method]), data=data).metrics[-1]
    if mode == "compiled":
        torch.compiler.reset()  # else later runs meet the limit of recompilations and run uncompiled
    peak = {} if held is None else {"peak_mib": (torch.cuda.max_memory_allocated() - held) / 2**20}
    return {"images_per_s": last["images_per_s"], "epoch_s": last["seconds"], **peak}


def _held_by_others() -> int | None:
    """Bytes on the GPU that are held when a training begins, after freeing what earlier ones left; None without one."""
    if not torch.cuda.is_available():
        return None
    gc.collect()  # a recorded step and what belongs to it hold each other
    torch._C._cuda_clearCublasWorkspaces()  # one for every stream ever used, kept for good
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--modes", nargs="*", default=["graph"], choices=["eager", "graph", "compiled"])
    parser.add_argument("--batches", nargs="*", type=int, default=[128, 512])
    parser.add_argument("--classes", nargs="*", type=int, default=[10, 100, 1000])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for classes in asked.classes:
        data = ImageData("random", random_images(asked.images, classes, 0), random_images(1000, classes, 1))
        for count, batch, method in plan(asked.batches, asked.classes):
            if count != classes or method not in asked.methods:
                continue
            for mode in asked.modes:
                found = measure(method, batch, data, mode, asked.epochs)
                rows.append({"method": method, "mode": mode, "batch": batch, "classes": classes, **found})
                print(rows[-1], flush=True)
                # After every run: a measurement that is cut short keeps what it has.
                found_so_far = {"machine": machine(), "commit": program_commit(), "images": asked.images, "rows": rows}
                asked.out.write_text(json.dumps(found_so_far, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
