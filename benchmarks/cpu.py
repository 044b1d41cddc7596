"""What kept memory and the channels-last layout gain on a CPU: whole training steps, one core, ratios in one run.

python -m benchmarks.cpu --out results/benchmarks/cpu.json

What a process has told its allocator cannot be taken back: every variant has processes of its own, which take turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention_cem.freed_memory import keep_freed_memory
from attention_cem.splitting import ResidualInverter, build_split_model
from benchmarks.timing import machine

PLAIN, KEPT, BOTH = "as it comes", "memory kept", "memory kept, channels last"
STEPS = 9


def tasks() -> dict[str, tuple[nn.Module, Tensor, Tensor]]:
    """Network, input and target of a step; a target of whole numbers is one of classes."""
    images, z = torch.rand(128, 3, 32, 32), torch.rand(256, 8, 8, 8)
    labels = torch.randint(0, 10, (128,))
    return {
        "tiny_cnn, 128 images": (build_split_model("tiny_cnn", 10, (3, 32, 32)), images, labels),
        "VGG-11, 128 images": (build_split_model("vgg11_bn", 10, (3, 32, 32)), images, labels),
        "inverter of the compact budget, 256 images": (
            ResidualInverter((8, 8, 8), (3, 32, 32), width=32, blocks=2),
            z,
            torch.rand(256, 3, 32, 32),
        ),
        "reference inverter, 256 images": (
            ResidualInverter((8, 8, 8), (3, 32, 32)),
            z,
            torch.rand(256, 3, 32, 32),
        ),
    }


def step_seconds(network: nn.Module, given: Tensor, target: Tensor, *, last: bool) -> float:
    """Median seconds of forward, backward and update."""
    if last:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        given = given.contiguous(memory_format=torch.channels_last)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        optimiser.zero_grad()
        answer = network(given)
        loss = F.mse_loss(answer, target) if target.is_floating_point() else F.cross_entropy(answer, target)
        loss.backward()
        optimiser.step()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measured(variant: str) -> dict[str, float]:
    """Seconds of every task in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.cpu", "--variant", variant]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Measure all variants in turns and print ratios; with ``--variant`` one of them, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often every variant is measured [%(default)s]")
    parser.add_argument("--out", type=Path, help="write the figures here")
    parser.add_argument("--variant", choices=(PLAIN, KEPT, BOTH), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.variant:
        torch.manual_seed(0)
        if asked.variant != PLAIN and not keep_freed_memory({}):
            raise SystemExit("benchmarks.cpu: this C library keeps no freed memory on request")
        print(json.dumps({name: step_seconds(*task, last=asked.variant == BOTH) for name, task in tasks().items()}))
        return
    rounds = [{variant: measured(variant) for variant in (PLAIN, KEPT, BOTH)} for _ in range(asked.rounds)]
    rows = []
    for task in rounds[0][PLAIN]:
        ms = {variant: 1000 * statistics.median(each[variant][task] for each in rounds) for variant in rounds[0]}
        rows.append({"task": task, "ms": ms})
        told = ", ".join(f"{variant} {of:.0f} ms ({ms[PLAIN] / of:.2f}×)" for variant, of in ms.items())
        print(f"{task}: {told}")
    if asked.out:
        torch.set_num_threads(1)
        figures = {"machine": machine(), "rounds": asked.rounds, "steps": STEPS, "rows": rows}
        asked.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
