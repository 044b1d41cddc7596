"""Only the estimator learns; the features stay as they are. What it reports must not fall below the truth."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attention_cem import ConditionalEntropySurrogate, GatedAttentionCEM, SlotCrossAttentionCEM, SlotMixtureCEM
from attention_cem.data.gaussian_mixture import gaussian_mixture_features
from attention_cem.surrogates.gates import class_gate
from attention_cem.surrogates.mixture import noise_entropy
from attention_cem.surrogates.objectives import StudyOnlyWarning
from docs.figures.drawing import ASSETS, BLUE, COLOURS, GREEN, GREY, MARKERS, ORANGE, PURPLE, RED, keep, new_figure

SEED, DIM, CLASSES, MODES, SIGMA = 0, 64, 4, 4, 0.1
BATCH, STEPS, EVERY, LR = 64, 300, 20, 1e-2
OPEN: dict[str, Any] = {"early_shut_steps": 0, "early_hard_thresh": 1.0, "early_gate_thresh": 1.0}
MAKERS: dict[str, Callable[[], ConditionalEntropySurrogate]] = {
    "slot_cross": lambda: SlotCrossAttentionCEM(DIM, num_slots=4, reg_strength=SIGMA, **OPEN),
    "gated, per_dim": lambda: GatedAttentionCEM(DIM, reg_strength=SIGMA),
    "gated, trace": lambda: GatedAttentionCEM(DIM, reg_strength=SIGMA, form="trace"),
    "slot_mixture": lambda: SlotMixtureCEM(DIM, CLASSES, num_slots=4, reg_strength=SIGMA, bank_size=256, seed=SEED),
}


def measure() -> dict[str, Any]:
    """What each surrogate reports every so many steps, its health, and the true nats per dimension."""
    mixture = gaussian_mixture_features(
        BATCH * STEPS,
        num_classes=CLASSES,
        modes_per_class=MODES,
        dim=DIM,
        mode_distance=3.0,
        std_range=(0.07, 0.2),
        seed=SEED,
    )
    truth = mixture.conditional_entropy(SIGMA, num_samples=20_000).value / DIM - noise_entropy(SIGMA**2)
    runs = {name: _watched(make, mixture.z, mixture.labels) for name, make in MAKERS.items()}
    return {"true_nats_per_dim": truth, "runs": runs}


def _watched(
    make: Callable[[], ConditionalEntropySurrogate], z: torch.Tensor, y: torch.Tensor
) -> dict[str, list[float]]:
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StudyOnlyWarning)
        surrogate = make()
    optimiser = torch.optim.Adam(surrogate.parameters(), LR)
    kept: dict[str, list[float]] = {}
    window: dict[str, list[float]] = {}
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        output = surrogate(z[part], y[part])
        optimiser.zero_grad()
        output.rob_loss.backward()
        optimiser.step()
        figures = {"rob_loss": output.rob_loss, "intra_mse": output.intra_mse, **_health(surrogate, output.diagnostics)}
        for name, value in figures.items():
            window.setdefault(name, []).append(value.item())
        if step == 0 or (step + 1) % EVERY == 0:
            kept.setdefault("step", []).append(step + 1)
            for name, values in window.items():
                kept.setdefault(name, []).append(sum(values) / len(values))
            window = {}
    return kept


def _health(surrogate: ConditionalEntropySurrogate, facts: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    health: dict[str, torch.Tensor] = {
        name: facts[name] for name in ("soft_gate_mean", "effective_samples", "largest_weight") if name in facts
    }
    if isinstance(surrogate, SlotCrossAttentionCEM):
        share = torch.tensor(1 / CLASSES)
        health["class_gate"] = class_gate(share, surrogate.class_gate_a, surrogate.class_gate_b).detach()
    return health


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    found = measure()
    figure = new_figure(2, 1, height=6.2)
    reported, gates = figure.axes
    for (name, run), colour, marker in zip(found["runs"].items(), COLOURS, MARKERS, strict=False):
        # the slot mixture has no memory on its first call and reports nothing there
        start = 1 if name == "slot_mixture" else 0
        values = [value / run["rob_loss"][start] for value in run["rob_loss"][start:]]
        reported.plot(run["step"][start:], values, color=colour, marker=marker, ms=4, label=name)
    reported.axhline(1, color=GREY, ls=":", lw=1.5)
    reported.set(ylabel="rob_loss / rob_loss₀", ylim=(-0.04, 1.4))
    reported.legend(fontsize=9.5, ncols=2, loc="upper right")

    slots, pooled = found["runs"]["slot_cross"], found["runs"]["gated, per_dim"]
    gates.plot(slots["step"], slots["soft_gate_mean"], color=BLUE, label="soft_gate_mean")
    gates.plot(slots["step"], slots["class_gate"], color=PURPLE, ls="--", label="class_gate")
    gates.plot(pooled["step"], pooled["largest_weight"], color=ORANGE, ls="-.", label="largest_weight")
    spread = [value / slots["intra_mse"][0] for value in slots["intra_mse"]]
    gates.plot(slots["step"], spread, color=GREEN, marker="s", ms=3, lw=1, label="intra_mse / intra_mse₀")
    gates.axhline(0, color=RED, lw=0.8)
    gates.set(xlabel="step", ylim=(-0.04, 1.75))
    gates.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    gates.legend(fontsize=9.5, loc="upper right", ncols=2)
    return keep("talk_down", figure, found, seed=SEED, folder=folder)
