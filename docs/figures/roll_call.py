"""The roll call: how gated attention weighs the samples of one class, before and after its pooling is trained.

Under ``penalty`` (the documents) the pooling learns to look at one sample only, around which there is no spread.
Under ``adversary`` it looks for the weights with the most spread, and a share of uniform weights stays.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from attention_cem import GatedAttentionCEM
from attention_cem.surrogates.objectives import StudyOnlyWarning
from docs.figures.drawing import ASSETS, BLUE, GREY, ORANGE, RED, keep, new_figure

SEED, SAMPLES, STEPS, SIGMA = 3, 12, 150, 0.1
OBJECTIVES = ("penalty", "adversary")


def measure() -> dict[str, Any]:
    """The samples, and the weights at the first and the last step under both objectives."""
    generator = torch.Generator().manual_seed(SEED)
    z = torch.randn(SAMPLES, 2, generator=generator)
    y = torch.zeros(SAMPLES, dtype=torch.int64)
    weights: dict[str, Any] = {}
    for objective in OBJECTIVES:
        torch.manual_seed(SEED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StudyOnlyWarning)
            # without the layer norm, which leaves two values almost nothing to tell
            surrogate = GatedAttentionCEM(2, form="trace", layer_norm=False, objective=objective, reg_strength=SIGMA)
        optimiser = torch.optim.Adam(surrogate.parameters(), 2e-2)
        shown = []
        for step in range(STEPS + 1):
            out = surrogate(z, y)
            if step in (0, STEPS):
                shown.append(
                    {
                        "step": step,
                        "a": out.diagnostics["attention"],
                        "rob_loss": out.rob_loss.item(),
                        "effective_samples": out.diagnostics["effective_samples"].item(),
                    }
                )
            optimiser.zero_grad()
            out.rob_loss.backward()
            optimiser.step()
        weights[objective] = shown
    return {"z": z, "intra_mse": out.intra_mse.item(), "weights": weights}


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    found = measure()
    z, weights = found["z"], found["weights"]
    panels = [
        ("t = 0", weights["penalty"][0], GREY),
        (f"penalty, t = {STEPS}", weights["penalty"][1], RED),
        (f"adversary, t = {STEPS}", weights["adversary"][1], BLUE),
    ]
    figure = new_figure(1, 3, height=2.6, width=6.2)
    for axes, (title, state, colour) in zip(figure.axes, panels, strict=True):
        a = state["a"]
        mean = (a[:, None] * z).sum(0)
        axes.scatter(z[:, 0], z[:, 1], s=12 + 700 * a, color=colour, alpha=0.55, lw=0)
        axes.scatter(z[:, 0], z[:, 1], s=5, color="#333333")
        axes.scatter(mean[0], mean[1], marker="+", s=120, color=ORANGE, lw=2.5)
        axes.set_title(f"{title}\n1/Σa² = {state['effective_samples']:.1f}")
        axes.set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), aspect="equal")
        axes.set_xticklabels([])
        axes.set_yticklabels([])
    return keep("roll_call", figure, found, seed=SEED, folder=folder)
