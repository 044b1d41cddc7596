"""Stage 1: captains find their groups. Slots of one class over the rounds of attention, on features of four kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention_cem import SlotMixtureCEM
from attention_cem.data.gaussian_mixture import gaussian_mixture_features
from attention_cem.surrogates.mixture import mixture_statistics
from attention_cem.surrogates.slot_mixture import SlotState, component_share
from docs.figures.drawing import ASSETS, COLOURS, MARKERS, keep, new_figure

SEED, MODES, SLOTS, SAMPLES, SIGMA = 2, 4, 4, 160, 0.3
ROUNDS = (0, 1, 3, 8)


@torch.no_grad()
def measure() -> dict[str, Any]:
    """Samples, and for each shown round where the slots stand and which slot each sample follows."""
    mixture = gaussian_mixture_features(
        SAMPLES, num_classes=1, modes_per_class=MODES, dim=2, mode_distance=7.0, std_range=(0.4, 0.9), seed=SEED
    )
    bank = mixture.z.unsqueeze(0)
    valid = torch.ones(1, SAMPLES, dtype=torch.bool)
    surrogate = SlotMixtureCEM(2, 1, num_slots=SLOTS, num_iterations=1, reg_strength=SIGMA, seed=SEED)
    surrogate.pooled_variance.fill_(0.6**2)
    generator = torch.Generator().manual_seed(SEED)
    start = bank.mean(1, keepdim=True) + torch.randn(1, SLOTS, 2, generator=generator)
    slots = SlotState(start, torch.full((1, SLOTS), 1 / SLOTS))
    shown: dict[str, Any] = {}
    for number in range(max(ROUNDS) + 1):
        assigned = surrogate.attend(bank, valid, slots)
        if number in ROUNDS:
            shown[str(number)] = {
                "slots": slots.mean[0],
                "follows": assigned[0].argmax(-1),
                "mean_largest_r": float(assigned.amax(-1).mean()),
            }
        mass, mean, _ = mixture_statistics(bank, assigned)
        slots = SlotState(mean, component_share(mass))
    return {"z": bank[0], "modes": mixture.modes, "rounds": shown}


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    found = measure()
    z: Tensor = found["z"]
    figure = new_figure(2, 2, height=5.4)
    path: list[Tensor] = []
    for axes, (number, state) in zip(figure.axes, found["rounds"].items(), strict=True):
        path.append(state["slots"])
        for slot in range(SLOTS):
            mine = z[state["follows"] == slot]
            axes.scatter(mine[:, 0], mine[:, 1], s=14, color=COLOURS[slot], marker=MARKERS[slot], alpha=0.55, lw=0)
            trail = torch.stack([each[slot] for each in path])
            axes.plot(trail[:, 0], trail[:, 1], color=COLOURS[slot], lw=1.2)
            x, y = state["slots"][slot]
            axes.scatter(x, y, s=190, color=COLOURS[slot], marker="*", edgecolor="white", zorder=3)
        axes.set_title(f"t = {number}")
        axes.set_xticklabels([])
        axes.set_yticklabels([])
    return keep("captains", figure, found, seed=SEED, folder=folder)
