"""Stage 3 on real features: where the "SNR" gate stands, and what the smooth threshold does.

Left: the running mean of the SNR gate over the steps of four small trainings in which the surrogate only watches
(λ = 0). Above the dotted line the early shut-off keeps rob_loss at zero. Right: φ, the smooth margin, and the plain
rectifier it replaces.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from attention_cem.surrogates.gates import snr_gate, softplus_margin
from docs.figures.drawing import ASSETS, BLUE, COLOURS, GREY, MARKERS, ORANGE, keep, new_figure
from docs.figures.small_run import SLOTS, small_run

SEED = 0
LIMIT = 0.5
BOTTLENECK = {"model.bottleneck_channels": 8, "surrogate.arguments.slot_dim": None}
SETTINGS: dict[str, dict[str, Any]] = {
    "B = 32, 8 × 4 × 4, sigmoid": BOTTLENECK,
    "B = 128, 8 × 4 × 4, sigmoid": {**BOTTLENECK, "train.batch_size": 128},
    "B = 32, 64 × 4 × 4, ReLU": {},
    "B = 128, 64 × 4 × 4, ReLU": {"train.batch_size": 128},
}


def watched() -> dict[str, dict[str, list[float]]]:
    """Mean SNR gate and shut-off share of every epoch, by setting."""
    found = {}
    for name, settings in SETTINGS.items():
        rows = small_run(
            "seed", {**SLOTS, "surrogate.lambd": 0.0, "train.epochs": 6, "train.seed": SEED, **settings}
        ).metrics
        found[name] = {
            "epoch": [row["epoch"] for row in rows],
            "snr_gate_mean": [row["surrogate.snr_gate_mean"] for row in rows],
            "shutoff_share": [row["shutoff_share"] for row in rows],
        }
    return found


def gate_curve() -> dict[str, list[float]]:
    """The gate as a function of σ²/μ²."""
    ratio = torch.linspace(0, 1, 101)
    one = torch.ones(())
    return {
        "ratio": ratio.tolist(),
        "gate": snr_gate(one, ratio, torch.tensor(0.25), torch.tensor(14.0), 1e-6).tolist(),
    }


def margin_curve() -> dict[str, list[float]]:
    """φ and the rectifier over log σ² − log σ²_thr."""
    excess = torch.linspace(-4, 4, 101)
    phi = softplus_margin(excess, 0.0, torch.tensor(0.05), torch.tensor(1.5))
    return {"excess": excess.tolist(), "phi": phi.tolist(), "relu": excess.relu().tolist()}


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    runs, gate, margin = watched(), gate_curve(), margin_curve()
    figure = new_figure(3, 1, height=8.4)
    first, second, third = figure.axes
    for (name, run), colour, marker in zip(runs.items(), COLOURS, MARKERS, strict=False):
        first.plot(run["epoch"], run["snr_gate_mean"], color=colour, marker=marker, label=name)
    first.axhline(LIMIT, color=GREY, ls=":", label="early_hard_thresh")
    first.set(xlabel="epoch", ylabel="snr_gate_mean", ylim=(0, 1.42))
    first.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    first.legend(fontsize=8.5, loc="upper right", ncols=2, columnspacing=1.0)
    second.plot(gate["ratio"], gate["gate"], color=BLUE)
    second.set(xlabel="σ² / μ²", ylabel="g_snr")
    third.plot(margin["excess"], margin["phi"], color=BLUE, label="φ  (softplus_beta, margin_m)")
    third.plot(margin["excess"], margin["relu"], color=ORANGE, ls="--", label="max(0, ·)")
    third.set(xlabel="log σ² − log σ²_thr", ylabel="φ")
    third.legend()
    numbers = {"early_hard_thresh": LIMIT, "runs": runs, "gate": gate, "margin": margin}
    return keep("gates", figure, numbers, seed=SEED, folder=folder)
