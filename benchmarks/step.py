"""What a surrogate adds to a whole VGG-11 training step at batch 128: eager, and as one CUDA graph.

python -m benchmarks.step --out step.json
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attention_cem.attacks.repeated_step import captured
from attention_cem.defences import build_stack, model_context
from attention_cem.splitting import build_split_model
from attention_cem.surrogates import build_surrogate
from attention_cem.surrogates.base import ConditionalEntropySurrogate
from attention_cem.training.activation import SurrogateMode
from attention_cem.training.step import StepSettings, TrainingStep
from benchmarks.timing import interleaved, machine

BATCH, SIGMA, WARM_UP = 128, 0.025, 11
ALWAYS_ON = {"early_shut_steps": 0, "early_hard_thresh": 1.0, "early_gate_thresh": 1.0}
SURROGATES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "slot": ("slot_cross", 10, ALWAYS_ON),
    "gated": ("gated", 10, {}),
    "gated, adversary": ("gated", 10, {"objective": "adversary"}),
    "k-means": ("kmeans", 10, {}),
    "slot mixture": ("slot_mixture", 10, {}),
    "slot mixture, full": ("slot_mixture", 10, {"covariance": "full"}),
    "slot mixture, 1,000 classes, one sample each": ("slot_mixture", 1000, {"bank_size": 16}),
    "hybrid": ("hybrid", 10, {}),
    "linear leakage": ("", 10, {}),
    "linear leakage, 512 random features": ("", 10, {}),
    "linear leakage, 512 random features, followed": ("", 10, {}),
    "linear leakage, 512 random features, followed, on 8 px": ("", 10, {}),
    "local leakage, followed": ("", 10, {}),
}
PENALTIES: dict[str, list[dict[str, Any]]] = {
    name: [{"name": "linear_leakage", "weight": 0.3, "noise_sigma": SIGMA, **options}]
    for name, options in (
        ("linear leakage", {"random_features": 0}),
        ("linear leakage, 512 random features", {"random_features": 512}),
        ("linear leakage, 512 random features, followed", {"random_features": 512, "followed": True}),
        (
            "linear leakage, 512 random features, followed, on 8 px",
            {"random_features": 512, "followed": True, "target_size": 8},
        ),
        ("local leakage, followed", {"random_features": 512, "neighbourhood": 1, "followed": True}),
    )
}


def training_step(device: str, name: str | None, compiled: bool = False) -> Callable[[], None]:
    """One whole step of the trainer on random images: client, noise, server, surrogate, merged backward, SGD."""
    torch.manual_seed(0)
    kind, classes, options = SURROGATES[name] if name else ("", 10, {})
    model = build_split_model("vgg11_bn", classes, (3, 32, 32)).to(device)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    context = model_context(model.client, model.z_shape((3, 32, 32)), (3, 32, 32))
    images = torch.rand(BATCH, 3, 32, 32, device=device).contiguous(memory_format=torch.channels_last)
    one_each = classes > BATCH
    labels = torch.arange(BATCH, device=device) if one_each else torch.randint(0, classes, (BATCH,), device=device)
    surrogate: ConditionalEntropySurrogate | None = None
    if kind:
        surrogate = build_surrogate(kind, feature_dim=512, num_classes=classes, reg_strength=SIGMA, **options).to(
            device
        )
        if surrogate.needs_fit:
            surrogate.fit(torch.rand(2000, 512, device=device), torch.arange(2000, device=device) % classes)
    stack = build_stack([{"name": "gaussian_noise", "sigma": SIGMA}, *PENALTIES.get(name or "", [])], context).to(
        device
    )
    if compiled:
        stack.compile_penalties()
    parameters: list[nn.Parameter] = [*model.parameters(), *(surrogate.parameters() if surrogate else ())]
    optimiser = torch.optim.SGD(parameters, 1e-3, momentum=0.9, weight_decay=5e-4, foreach=True)
    estimate = torch.compile(surrogate, fullgraph=True) if surrogate and compiled else None
    step = TrainingStep(model, stack, surrogate, optimiser, StepSettings(bf16=device == "cuda"), estimate=estimate)
    step.lambd.fill_(0.3)
    mode = SurrogateMode.ACTIVE if surrogate else SurrogateMode.OFF
    return partial(step, images, labels, mode)


def repeated(step: Callable[[], None], times: int = 20) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            step()

    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compile", nargs="*", default=["slot mixture", "hybrid"], help="surrogates to compile too")
    parser.add_argument("--only", nargs="*", default=list(SURROGATES), choices=list(SURROGATES), metavar="NAME")
    parser.add_argument("--eager", action="store_true", help="also as separate launches")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    names: list[str | None] = [None, *arguments.only]
    seconds: dict[str, dict[str, float]] = {}
    if arguments.eager:
        eager = {str(name): training_step("cuda", name) for name in names}
        for step in eager.values():
            repeated(step, 11)()
        runs = {k: repeated(v) for k, v in eager.items()}
        seconds["eager"] = interleaved(runs, rounds=arguments.rounds, device="cuda")
    graphs: dict[str, Callable[[], None]] = {}
    for name in names:
        try:
            graphs[str(name)] = captured(training_step("cuda", name), warm_up=WARM_UP)
        except RuntimeError as error:
            print(f"{name}: no CUDA graph: {error!r}"[:300])
    compiled: dict[str, Callable[[], None]] = {}
    for name in set(arguments.compile) & set(arguments.only):
        compiled[name] = captured(training_step("cuda", name, compiled=True), warm_up=WARM_UP)
    seconds["graph"] = interleaved({k: repeated(v) for k, v in graphs.items()}, rounds=arguments.rounds, device="cuda")
    if compiled:
        compiled["None"] = graphs["None"]
        seconds["compiled_graph"] = interleaved(
            {k: repeated(v) for k, v in compiled.items()}, rounds=arguments.rounds, device="cuda"
        )
    rows = []
    for name in names:
        row: dict[str, Any] = {"surrogate": name or "none"}
        for mode, times in seconds.items():
            if str(name) in times:
                row[f"{mode}_ms"] = times[str(name)] / 20 * 1e3
                row[f"{mode}_ratio"] = times[str(name)] / times["None"]
        rows.append(row)
        print(row, flush=True)
    arguments.out.write_text(json.dumps({"machine": machine(), "batch": BATCH, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
