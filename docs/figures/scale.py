"""rob_loss of the same features, made smaller and larger: an estimate of leakage must fall when z shrinks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from attention_cem import ConditionalEntropySurrogate, GatedAttentionCEM, SlotCrossAttentionCEM, SlotMixtureCEM
from attention_cem.data.gaussian_mixture import gaussian_mixture_features
from attention_cem.surrogates.objectives import StudyOnlyWarning
from docs.figures.drawing import ASSETS, COLOURS, MARKERS, keep, new_figure

SEED, DIM, CLASSES, SIGMA = 0, 32, 4, 0.1
FACTORS = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]


def measure() -> dict[str, list[float]]:
    """rob_loss at every factor, by surrogate; the parameters are the start values, in evaluation mode."""
    mixture = gaussian_mixture_features(256, num_classes=CLASSES, dim=DIM, seed=SEED)
    z, y = mixture.z, mixture.labels
    torch.manual_seed(SEED)
    open_gates: dict[str, Any] = {"early_shut_steps": 0, "early_hard_thresh": 1.0, "early_gate_thresh": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StudyOnlyWarning)
        documents: dict[str, ConditionalEntropySurrogate] = {
            "slot_cross": SlotCrossAttentionCEM(DIM, reg_strength=SIGMA, **open_gates),
            "gated, per_dim": GatedAttentionCEM(DIM, reg_strength=SIGMA),
            "gated, trace": GatedAttentionCEM(DIM, reg_strength=SIGMA, form="trace"),
        }
    losses: dict[str, list[float]] = {}
    with torch.no_grad():
        for name, surrogate in documents.items():
            losses[name] = [float(surrogate.eval()(factor * z, y).rob_loss) for factor in FACTORS]
        losses["slot_mixture"] = [_sound(factor * z, y) for factor in FACTORS]
    return losses


def _sound(z: torch.Tensor, y: torch.Tensor) -> float:
    """The slot mixture, fitted to one half of the features and asked about the other."""
    half = len(z) // 2
    surrogate = SlotMixtureCEM(DIM, CLASSES, reg_strength=SIGMA, seed=SEED)
    for _ in range(4):
        surrogate(z[:half], y[:half])
    surrogate.maintain()
    return float(surrogate.eval()(z[half:], y[half:]).rob_loss)


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    losses = measure()
    figure = new_figure(height=3.6)
    axes = figure.axes[0]
    for (name, values), colour, marker in zip(losses.items(), COLOURS, MARKERS, strict=False):
        axes.plot(FACTORS, values, color=colour, marker=marker, label=name)
    axes.set(xscale="log", xlabel="c", ylabel="rob_loss(c · z)")
    axes.legend()
    return keep("scale", figure, {"factors": FACTORS, "rob_loss": losses, "sigma": SIGMA}, seed=SEED, folder=folder)
