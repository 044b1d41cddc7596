"""Stages 2 and 3: who follows whom, and how much cross-attention changes a sample.

Above: responsibilities r of the slots for the samples of one class, samples in the order of the kind they were drawn
from, with slots of random start values and after they learned by likelihood. Below: how far x̃ is from x̂ when both
gates of the cross-attention have the value α.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from attention_cem import SlotCrossAttentionCEM
from attention_cem.data.gaussian_mixture import gaussian_mixture_features
from attention_cem.surrogates.noise import counter_normal
from attention_cem.surrogates.objectives import StudyOnlyWarning
from attention_cem.surrogates.segments import segment_classes
from docs.figures.drawing import ASSETS, BLUE, GREY, keep, new_figure, plain

SEED, DIM, MODES, SLOTS, STEPS, BATCH, SHOWN = 0, 32, 4, 8, 250, 64, 48
ALPHAS = [0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0]


def measure() -> dict[str, Any]:
    """Responsibilities before and after training, and the relative change by the cross-attention."""
    features = gaussian_mixture_features(
        BATCH * STEPS + SHOWN, num_classes=1, modes_per_class=MODES, dim=DIM, mode_distance=6.0, seed=SEED
    )
    z, y = features.z, features.labels
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StudyOnlyWarning)
        surrogate = SlotCrossAttentionCEM(DIM, num_slots=SLOTS, objective="likelihood", seed=SEED)
    order = torch.argsort(features.modes[-SHOWN:], stable=True)
    shown = z[-SHOWN:][order]
    before = _responsibilities(surrogate, shown)
    change = _change(surrogate, shown)
    optimiser = torch.optim.Adam(surrogate.parameters(), 1e-3)
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        loss = surrogate(z[part], y[part]).rob_loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {
        "modes": features.modes[-SHOWN:][order],
        "r_before": before,
        "r_after": _responsibilities(surrogate, shown),
        "alpha": ALPHAS,
        "change": change,
    }


@torch.no_grad()
def _responsibilities(surrogate: SlotCrossAttentionCEM, z: torch.Tensor) -> torch.Tensor:
    x, slots, segments = _slots(surrogate, z)
    return surrogate.responsibilities(x, slots, segments)


@torch.no_grad()
def _change(surrogate: SlotCrossAttentionCEM, z: torch.Tensor) -> list[float]:
    """Mean ‖x̃ − x̂‖ / ‖x̂‖ for every gate value; the gates are put back."""
    attention = surrogate.cross_attention
    x, slots, segments = _slots(surrogate, z)
    start = (attention.gate_attention.item(), attention.gate_ffn.item())
    changes = []
    for alpha in ALPHAS:
        attention.gate_attention.fill_(alpha)
        attention.gate_ffn.fill_(alpha)
        moved = attention(x, slots, segments.row) - x
        changes.append((moved.norm(dim=1) / x.norm(dim=1)).mean().item())
    attention.gate_attention.fill_(start[0])
    attention.gate_ffn.fill_(start[1])
    return changes


def _slots(surrogate: SlotCrossAttentionCEM, z: torch.Tensor) -> Any:
    segments = segment_classes(torch.zeros(len(z), dtype=torch.int64), 3)
    x = surrogate.projection(F.layer_norm(z, (DIM,)))
    noise = counter_normal(surrogate.seed, surrogate.calls, (SLOTS, DIM), z.dtype)
    return x, surrogate.slot_attention(x, segments.row, segments.num_rows, noise), segments


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    found = measure()
    figure = new_figure(3, 1, height=5.6)
    bounds = [0, *(torch.nonzero(found["modes"].diff())[:, 0] + 1).tolist(), SHOWN]
    for axes, key, title in zip(figure.axes, ("r_before", "r_after"), ("t = 0", f"t = {STEPS}"), strict=False):
        picture = axes.imshow(
            found[key].T.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest"
        )
        plain(axes)
        for edge in bounds[1:-1]:
            axes.axvline(edge - 0.5, color=GREY, lw=1)
        axes.set(title=f"r,  {title}", ylabel="k", xlabel="m")
    figure.colorbar(picture, ax=figure.axes[:2], shrink=0.7)
    axes = figure.axes[2]
    axes.plot(ALPHAS, found["change"], color=BLUE, marker="o")
    axes.axvline(0.1, color=GREY, ls=":")
    axes.set(xlabel="α", ylabel="‖x̃ − x̂‖ / ‖x̂‖")
    return keep("assignment", figure, found, seed=SEED, folder=folder)
