"""Images per second of the real trainer on CIFAR-10-sized data: VGG-11, batch 128, no surrogate and each of them.

python -m benchmarks.throughput --out throughput.json
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from attention_cem.data import ImageData, ImageSet
from attention_cem.training import load_config, train
from benchmarks.timing import machine

RUNS: dict[str, dict[str, Any]] = {
    "none": {"surrogate.name": "none", "surrogate.lambd": 0.0},
    "slot": {"surrogate.name": "slot_cross"},
    "gated": {"surrogate.name": "gated"},
    "k-means": {"surrogate.name": "kmeans"},
    "sound": {"surrogate.name": "slot_mixture"},
}


def random_images(count: int, seed: int) -> ImageSet:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return ImageSet(images, torch.arange(count) % 10, tuple(f"class {i}" for i in range(10)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--modes", nargs="*", default=["graph", "compiled"], choices=["eager", "graph", "compiled"])
    arguments = parser.parse_args()
    data = ImageData("random", random_images(arguments.images, 0), random_images(1000, 1))
    rows = []
    for mode in arguments.modes:
        for name, overrides in RUNS.items():
            with tempfile.TemporaryDirectory() as folder:
                common = {
                    "train.epochs": arguments.epochs,
                    "train.cuda_graph": "off" if mode == "eager" else "auto",
                    "train.compile": mode == "compiled",
                    "surrogate.attention_warmup_epochs": 0,
                    "surrogate.lambd": 1e-6,
                    "run.folder": f"{folder}/run",
                }
                config = load_config(Path("configs/cifar10-sound.toml"), common | overrides)
                result = train(config, data=data)
            rate = result.metrics[-1]["images_per_s"]
            seconds = arguments.images * (1 - config.data.validation_fraction) / rate
            rows.append({"surrogate": name, "mode": mode, "images_per_s": rate, "epoch_s": seconds})
            print(rows[-1], flush=True)
    arguments.out.write_text(
        json.dumps({"machine": machine(), "batch": config.train.batch_size, "rows": rows}, indent=1)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
