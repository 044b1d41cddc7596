"""Writes benchmarks/RESULTS.md from the figures in results/benchmarks: no number there is typed by hand.

python -m benchmarks.report
"""

import json
import statistics
from pathlib import Path
from typing import Any

from attention_cem.surrogates import HybridCEM
from benchmarks.augmented import OURS, THEIRS
from benchmarks.surrogates import table

FIGURES = Path("results/benchmarks")
PAGE = Path("benchmarks/RESULTS.md")


def read(name: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((FIGURES / f"{name}.json").read_text())
    return figures


def measured_on(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    where = f"{machine['gpu']}" if machine["gpu"] != "none" else machine["cpu"]
    return f"Measured on {where}, torch {machine['torch']}."


def loop_rows(figures: dict[str, Any]) -> list[tuple[str, int, int, dict[str, float], float]]:
    return [(r["surrogate"], r["batch"], r["classes"], r["ms"], r["target"]) for r in figures["rows"]]


def cpu_section() -> str:
    figures = read("surrogates-cpu")
    spaces = ", ".join(f"{name} {ratio:.2f}×" for name, ratio in figures["label_space_ratio"].items())
    return f"""## Surrogates against the plain per-class loop, CPU

Forward + backward, D = {figures["width"]}, S = {figures["slots"]}, fp32, medians of interleaved rounds (`make bench`).
Ours is told the label space (`label_space`), which saves sorting the labels.
{measured_on(figures)}

{table(loop_rows(figures))}

Peak memory of the slot surrogate at B = 1024, D = 2048, parameters and gradients included:
{figures["peak_memory_mib"]:.0f} MiB (limit 1.5 GB = 1430 MiB).
The same batch with labels out of 100,000 instead of 1,000 costs: {spaces} (limit 1.10×).

Where a gated target is missed: the matrix products of the pooling, which the loop does as well, take most of the time
the target would allow. Tried, each a little faster, none enough: one product for V and U, a hand-written backward,
in-place buffers, `torch.compile`."""


def gpu_section() -> str:
    figures = read("surrogates-h200")
    return f"""## Surrogates against the plain per-class loop, GPU

`python -m benchmarks.surrogates --cuda`: forward + backward, no host synchronisation
(`torch.cuda.set_sync_debug_mode("error")`), `torch.compile(fullgraph=True)` at (128, 10). {measured_on(figures)}
The host of this machine is slow to launch kernels; in eager mode that is what is measured. "Met" judges our fastest
way of running; the loop is always eager (it reads sizes back from the device, so it cannot be recorded). Eager against
eager, the targets are missed.

{table(loop_rows(figures))}"""


def step_section() -> str:
    figures = read("step-h200")
    lines = ["| surrogate | eager | CUDA graph | CUDA graph, surrogate compiled |", "| --- | --- | --- | --- |"]
    for row in figures["rows"]:
        cells = [
            f"{row[f'{mode}_ms']:.2f} ms, {row[f'{mode}_ratio']:.2f}×" if f"{mode}_ms" in row else "–"
            for mode in ("eager", "graph", "compiled_graph")
        ]
        lines.append(f"| {row['surrogate']} | " + " | ".join(cells) + " |")
    rows = {row["surrogate"]: row for row in figures["rows"]}
    many = rows["slot mixture, 1,000 classes, one sample each"]["graph_ms"] / rows["slot mixture"]["graph_ms"]
    compiled = {"hybrid"} if HybridCEM.compile_when_recorded else set()
    recorded = {
        name: row["compiled_graph_ratio" if name in compiled else "graph_ratio"]
        for name, row in rows.items()
        if name != "none"
    }
    within, beyond = (
        "; ".join(f"{name} {ratio:.2f}×" for name, ratio in recorded.items() if (ratio <= 1.15) is inside)
        for inside in (True, False)
    )
    return f"""## What a surrogate adds to a VGG-11 training step, batch {figures["batch"]}

`python -m benchmarks.step`: whole steps (client, noise, server, surrogate, merged backward, SGD), bf16. Ratios are to
the step without a surrogate. {measured_on(figures)}
Surrogate and penalties run beside the server, on a stream of their own. Rare work between steps (new slots, a new
inverse) is not in here, but in what whole epochs cost: [results/cost.md](../results/cost.md).

{chr(10).join(lines)}

A thousand classes with one sample each cost {many:.2f}× the ten-class step (limit 1.3×).
At most 1.15× was wanted, as the trainer runs it (CUDA graph; of the surrogates `train.compile` compiles the hybrid
alone, for which the gain is worth the wait; the closed-form attacker, which it compiles too, stands here uncompiled).
Within it: {within}. Not: {beyond}.
What limits the surrogates is the number of small kernels, not their arithmetic: compiling fuses them. Most of what the
closed-form attacker with random features costs is its Cholesky solve: the one that follows does without."""


def attack_section() -> str:
    figures = read("attacks-h200")
    found, setting = figures["figures"], figures["setting"]
    search = f"search {found['optimisation_ratio']:.1f}× faster"
    return f"""## Attacks

`python -m benchmarks.attacks --calibrate`: {setting["images"]:,} synthetic attacker images of 32 px,
{setting["epochs"]} epochs. The sizes are those of the reference setting; the images are not CIFAR-10.
{measured_on(figures)}

| attack | seconds | goal | against a plain implementation |
| --- | --- | --- | --- |
| inverter, reference sizes | {found["inverter_seconds"]:.1f} | 60 | {found["inverter_ratio"]:.1f}× faster |
| white-box optimisation, {setting["test_images"]:,} images | {found["optimisation_seconds"]:.1f} | 60 | {search} |

The plain inverter's time is extrapolated from {found["inverter_plain_measured_epochs"]} measured epoch.
Calibration: an identity-like client is rebuilt at {found["identity_psnr"]:.1f} dB."""


def on_cpu_section() -> str:
    figures = read("cpu")
    variants = list(figures["rows"][0]["ms"])
    lines = [f"| step | {' | '.join(variants)} |", "| --- " * (1 + len(variants)) + "|"]
    for row in figures["rows"]:
        first = row["ms"][variants[0]]
        told = (f"{ms:.0f} ms, {first / ms:.2f}×" for ms in row["ms"].values())
        lines.append(f"| {row['task']} | {' | '.join(told)} |")
    return f"""## Training steps on a CPU

`python -m benchmarks.cpu`: forward, backward and Adam on one core; ratios are to the step as it comes. Commands and
workers of studies run as in the last column: freed memory is kept instead of given back at every step, and channels of
a pixel lie side by side. {measured_on(figures)}

{chr(10).join(lines)}"""


def serving_section() -> str:
    figures = read("serving")
    setting, steady, killed = figures["setting"], figures["load"], figures["load_with_kill"]
    ratio = figures["ratio_to_direct"]["full_batch"]
    lines = ["| run | images/s | p50 | p99 | errors | wrong answers | retries |", "| --- " * 7 + "|"]
    for name, run in (("steady", steady), ("server killed and restarted", killed)):
        lines.append(
            f"| {name} | {run['images_per_s']:.0f} | {run['p50_ms']:.0f} ms | {run['p99_ms']:.0f} ms | "
            f"{run['errors']} | {run['wrong']} | {run['retries']} |"
        )
    return f"""## Serving

`python -m benchmarks.serving --kill`: {setting["clients"]} clients, {setting["seconds"]:.0f} s, {setting["backbone"]},
{setting["batch"]} images a request, clients and server on the same {figures["machine"]["cores"]} cores.

{chr(10).join(lines)}

Steady throughput is {ratio:.2f} of calling ONNX Runtime directly with full batches in the same run (goal 0.5);
the server used {steady["server_cpu_s"]:.0f} CPU seconds, the clients {steady["client_cpu_s"]:.1f}."""


def augmented_section() -> str:
    figures = read("augmented")
    runs = figures["runs"]
    lines = [
        "| client | seed | accuracy | without | with | change | trained on / not, without | with |",
        "| --- " * 8 + "|",
    ]
    for run in runs:
        plain, augmented = run["attacks"]["plain"], run["attacks"]["augmented"]
        gaps = (f"{each['train_mse']:.4f} / {each['validation_mse']:.4f}" for each in (plain, augmented))
        change = f"{100 * (augmented['mse'] / plain['mse'] - 1):+.1f} %"
        lines.append(
            f"| `{run['method']}` | {run['seed']} | {100 * run['accuracy']:.1f} % | {plain['mse']:.5f} | "
            f"{augmented['mse']:.5f} | {change} | {' | '.join(gaps)} |"
        )
    converged = sum(each["converged"] for run in runs for each in run["attacks"].values())
    means = {
        (side, name): statistics.fmean(run["attacks"][name]["mse"] for run in runs if run["method"] == side)
        for side in (OURS, THEIRS)
        for name in ("plain", "augmented")
    }
    before, after = (means[OURS, name] / means[THEIRS, name] for name in ("plain", "augmented"))
    return f"""## What augmented images add to an attack

`python -m benchmarks.augmented`: the reference inverter (50 epochs and 25 to probe it) on one client, without and with
cropped and mirrored images of the attacker's, of which whoever has the client makes features. Runs of
`{figures["study"]}`, trained anew, ours with attention and k-means CEM at about equal accuracy. Last columns: MSE on
images that the inverter was trained on, and on others; where the two are far apart, it learned its own images by heart.
{converged} of {2 * len(runs)} attacks count as converged: more epochs help none of them, more images do.
Mean of ours over mean of k-means CEM, each at its own accuracy: {before:.2f}× without, {after:.2f}× with.
{measured_on(runs[0])}

{chr(10).join(lines)}"""


def main() -> None:
    sections = [
        cpu_section(),
        gpu_section(),
        step_section(),
        attack_section(),
        augmented_section(),
        on_cpu_section(),
        serving_section(),
    ]
    head = "# Benchmarks\n\nGenerated from `results/benchmarks/*.json` by `python -m benchmarks.report`.\n"
    PAGE.write_text("\n\n".join([head.rstrip(), *sections]) + "\n")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
