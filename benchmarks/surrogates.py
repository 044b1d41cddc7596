"""Speed of the surrogates against the plain per-class loop, forward + backward, as ratios in one run.

python -m benchmarks.surrogates            # CPU ratios, peak memory, cost against the label space
python -m benchmarks.surrogates --cuda     # on a GPU: eager and compiled, no host sync, share of a training step
"""

import argparse
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention_cem import GatedAttentionCEM, SlotCrossAttentionCEM
from attention_cem.attacks.repeated_step import captured
from attention_cem.surrogates import StudyOnlyWarning
from attention_cem.surrogates.base import ConditionalEntropySurrogate
from attention_cem.testing.plain_loops import gated_loop, slot_cross_loop
from benchmarks.timing import interleaved, machine

WIDTH, SLOTS = 512, 8
CPU_TARGETS: dict[str, dict[tuple[int, int], float]] = {
    "slot": {(128, 10): 2, (512, 100): 4, (1024, 1000): 1},
    "gated": {(128, 10): 4, (512, 100): 20, (1024, 1000): 20},
}
GPU_TARGETS: dict[str, dict[tuple[int, int], float]] = {
    "slot": {(128, 10): 8, (512, 100): 40},
    "gated": {(128, 10): 8, (512, 100): 40},
}
LOOPS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"slot": slot_cross_loop, "gated": gated_loop}
ALWAYS_ON: dict[str, Any] = {"early_shut_steps": 0, "early_hard_thresh": 1.0, "early_gate_thresh": 1.0}


def make(name: str, width: int = WIDTH, classes: int | None = None) -> ConditionalEntropySurrogate:
    torch.manual_seed(0)
    if name == "slot":
        return SlotCrossAttentionCEM(width, num_slots=SLOTS, label_space=classes, **ALWAYS_ON)
    return GatedAttentionCEM(width, label_space=classes)


def batch(size: int, classes: int, device: str, width: int = WIDTH) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(size, width, generator=generator).to(device).requires_grad_()
    return z, torch.randint(0, classes, (size,), generator=generator).to(device)


def training_call(run: Callable[[], Tensor]) -> Callable[[], None]:
    return lambda: run().backward()


def against_loop(name: str, size: int, classes: int, device: str, rounds: int) -> dict[str, float]:
    surrogate = make(name, classes=classes).to(device)
    z, y = batch(size, classes, device)
    variants = {
        "loop": training_call(lambda: LOOPS[name](surrogate, z, y)[0]),
        "ours": training_call(lambda: surrogate(z, y).rob_loss),
    }
    if device == "cuda":
        variants["graph"] = captured(variants["ours"])
        if (size, classes) == (128, 10):
            variants["compiled"] = captured(training_call(compiled_call(surrogate, z, y)))
    seconds = interleaved(variants, rounds=rounds, device=device)
    return {key: value * 1e3 for key, value in seconds.items()}


def compiled_call(surrogate: ConditionalEntropySurrogate, z: Tensor, y: Tensor) -> Callable[[], Tensor]:
    compiled = torch.compile(surrogate, fullgraph=True)
    return lambda: compiled(z, y).rob_loss


def label_space_ratio(name: str) -> float:
    """Cost of one batch with labels out of 100,000 over the same batch with labels out of 1,000."""
    surrogate = make(name)
    z, y = batch(512, 1000, "cpu")
    seconds = interleaved(
        {
            "small": training_call(lambda: surrogate(z, y).rob_loss),
            "large": training_call(lambda: surrogate(z, y * 100).rob_loss),
        },
        rounds=15,
        device="cpu",
    )
    return seconds["large"] / seconds["small"]


def peak_memory_mib(size: int, width: int) -> float:
    """Peak resident memory that one training call of the slot surrogate adds, parameters and gradients included."""
    program = (
        "import resource, torch; from benchmarks.surrogates import make, batch, training_call\n"
        "base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"s = make('slot', {width}); z, y = batch({size}, 10, 'cpu', {width})\n"
        "training_call(lambda: s(z, y).rob_loss)()\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024)"
    )
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def table(rows: list[tuple[str, int, int, dict[str, float], float]]) -> str:
    """Milliseconds and ratios to the loop; the target is met if our fastest way of running meets it."""
    kinds = [kind for kind in ("ours", "graph", "compiled") if any(kind in row[3] for row in rows)]
    titles = {"ours": "ours", "graph": "ours, CUDA graph", "compiled": "ours, compiled, CUDA graph"}
    head = ["surrogate", "batch", "classes", "loop ms", *(titles[kind] for kind in kinds), "target", "met"]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for name, size, classes, ms, target in rows:
        cells = [f"{ms[k]:.2f} ms, {ms['loop'] / ms[k]:.1f}×" if k in ms else "–" for k in kinds]
        met = "yes" if ms["loop"] / min(ms[k] for k in kinds if k in ms) >= target else "no"
        lines.append(
            "| " + " | ".join([name, str(size), str(classes), f"{ms['loop']:.2f}", *cells, f"{target}×", met]) + " |"
        )
    return "\n".join(lines)


def run_cpu(rounds: int, out: Path | None) -> int:
    rows = [
        (name, size, classes, against_loop(name, size, classes, "cpu", rounds), target)
        for name, targets in CPU_TARGETS.items()
        for (size, classes), target in targets.items()
    ]
    print(f"Forward + backward, D = {WIDTH}, S = {SLOTS}, fp32, medians of {rounds} interleaved rounds; {machine()}")
    print(table(rows))
    memory = peak_memory_mib(1024, 2048)
    print(f"Peak memory of the slot surrogate, B = 1024, D = 2048: {memory:.0f} MiB (limit 1430 MiB = 1.5 GB)")
    spaces = {name: label_space_ratio(name) for name in ("slot", "gated")}
    print(
        "Labels out of 100,000 against 1,000, same batch:", {k: f"{v:.2f}×" for k, v in spaces.items()}, "(limit 1.10×)"
    )
    if out:
        write_figures(out, rows, peak_memory_mib=memory, label_space_ratio=spaces)
    met = all(row[3]["loop"] / row[3]["ours"] >= row[4] for row in rows)
    return 0 if met and memory < 1430 and max(spaces.values()) < 1.1 else 1


def write_figures(out: Path, rows: list[tuple[str, int, int, dict[str, float], float]], **more: Any) -> None:
    figures = [{"surrogate": n, "batch": b, "classes": c, "ms": ms, "target": t} for n, b, c, ms, t in rows]
    out.write_text(
        json.dumps({"machine": machine(), "width": WIDTH, "slots": SLOTS, "rows": figures, **more}, indent=1)
    )


def run_cuda(rounds: int, out: Path | None) -> int:
    rows = [
        (name, size, classes, against_loop(name, size, classes, "cuda", rounds), target)
        for name, targets in GPU_TARGETS.items()
        for (size, classes), target in targets.items()
    ]
    print(table(rows))
    for name in GPU_TARGETS:
        surrogate, (z, y) = make(name).cuda(), batch(128, 10, "cuda")
        training_call(lambda: surrogate(z, y).rob_loss)()  # noqa: B023
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        training_call(lambda: surrogate(z, y).rob_loss)()  # noqa: B023
        torch.cuda.set_sync_debug_mode("default")
        print(f"{name}: forward and backward without a host sync")
    if out:
        write_figures(out, rows)
    return 0


def main() -> int:
    warnings.simplefilter("ignore", StudyOnlyWarning)  # the documents' own objectives are what is measured
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", action="store_true", help="measure on the GPU")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    return run_cuda(arguments.rounds, arguments.out) if arguments.cuda else run_cpu(arguments.rounds, arguments.out)


if __name__ == "__main__":
    sys.exit(main())
