"""The idea on real features: the same client trained without and with a surrogate, seen along two principal axes.

A sample's place inside its cloud is what an attacker reads beyond the class. Both panels have the same scale; the
disc beside them is the noise at the cut (two standard deviations).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.patches import Circle

from attention_cem.data import load_data, to_float
from docs.figures.drawing import ASSETS, COLOURS, GREY, MARKERS, keep, new_figure
from docs.figures.small_run import COMMON, trained_run

SEED, SIGMA = 0, 0.2
LAMBDAS = (0.0, 1.0)


@torch.no_grad()
def measure() -> dict[str, Any]:
    """Test features along the two main axes of each run, its last epoch's nats and spread, its test accuracy."""
    test = load_data("synthetic", None, seed=SEED, **COMMON["data.options"]).test
    found = {}
    for lambd in LAMBDAS:
        settings = {"surrogate.lambd": lambd, "train.seed": SEED, "surrogate.attention_warmup_epochs": 1}
        with torch.enable_grad():
            result, run = trained_run("sound", settings)
        z = run.model.client(to_float(test.images)).flatten(1)
        centred = z - z.mean(0)
        _, _, axes = torch.linalg.svd(centred, full_matrices=False)
        # the sign of an axis is free: the largest entry is made positive
        axes = axes[:2] * axes[:2].gather(1, axes[:2].abs().argmax(1, keepdim=True)).sign()
        last = result.metrics[-1]
        found[f"{lambd:g}"] = {
            "nats_per_dim": last["rob_loss"],
            "intra_mse": last["intra_mse"],
            "accuracy": result.test_accuracy,
            "z": centred @ axes.T,
            "y": test.labels,
        }
    return found


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    found = measure()
    reach = 1.08 * max(float(run["z"].abs().max()) for run in found.values())
    figure = new_figure(1, 2, height=3.5, width=6.2)
    for axes, (lambd, run) in zip(figure.axes, found.items(), strict=True):
        for label in range(int(run["y"].max()) + 1):
            mine = run["z"][run["y"] == label]
            axes.scatter(mine[:, 0], mine[:, 1], s=16, color=COLOURS[label], marker=MARKERS[label], alpha=0.6, lw=0)
        axes.add_patch(Circle((-0.8 * reach, -0.85 * reach), 2 * SIGMA, facecolor=GREY))
        axes.text(-0.8 * reach + 3 * SIGMA, -0.9 * reach, "2σ", color=GREY)
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        axes.set_title(f"λ = {lambd}\n{run['nats_per_dim']:.2f} nats/D,  {100 * run['accuracy']:.0f} %")
        axes.set_xticklabels([])
        axes.set_yticklabels([])
    return keep("clouds", figure, {"sigma": SIGMA, "runs": found}, seed=SEED, folder=folder)
