"""How many classes a surrogate really uses when a batch holds few samples of each."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from attention_cem import ConditionalEntropySurrogate, GatedAttentionCEM, SlotCrossAttentionCEM, SlotMixtureCEM
from attention_cem.surrogates.objectives import StudyOnlyWarning
from docs.figures.drawing import ASSETS, COLOURS, MARKERS, keep, new_figure

SEED, DIM, BATCH, BATCHES = 0, 16, 128, 40
CLASSES = [10, 20, 40, 80, 160, 320, 640]


def active_share(classes: int) -> dict[str, float]:
    """Mean share of the classes in a batch that take part, over the second half of the batches."""
    generator = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StudyOnlyWarning)
        surrogates: dict[str, ConditionalEntropySurrogate] = {
            "slot_cross": SlotCrossAttentionCEM(DIM, num_slots=2),
            "gated": GatedAttentionCEM(DIM),
            "slot_mixture": SlotMixtureCEM(DIM, classes, bank_size=16),
        }
    shares: dict[str, list[float]] = {name: [] for name in surrogates}
    with torch.no_grad():
        for step in range(BATCHES):
            y = torch.randint(classes, (BATCH,), generator=generator)
            z = torch.randn(BATCH, DIM, generator=generator)
            for name, surrogate in surrogates.items():
                facts = surrogate(z, y).diagnostics
                active, skipped = int(facts["active_classes"]), int(facts["skipped_classes"])
                if step >= BATCHES // 2:
                    shares[name].append(active / (active + skipped))
    return {name: sum(values) / len(values) for name, values in shares.items()}


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    found = [active_share(classes) for classes in CLASSES]
    shares = {name: [each[name] for each in found] for name in found[0]}
    figure = new_figure(height=3.4)
    axes = figure.axes[0]
    for (name, values), colour, marker in zip(shares.items(), COLOURS, MARKERS, strict=False):
        axes.plot(CLASSES, [100 * value for value in values], color=colour, marker=marker, label=name)
    axes.set(xscale="log", xlabel=f"C   (B = {BATCH})", ylabel="active_classes / %", ylim=(-4, 104))
    axes.set_xticks(CLASSES, [str(value) for value in CLASSES])
    axes.minorticks_off()
    axes.legend(loc="lower left")
    numbers = {"classes": CLASSES, "batch": BATCH, "active_share": shares}
    return keep("few_samples", figure, numbers, seed=SEED, folder=folder)
