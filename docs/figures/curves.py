"""What a surrogate does to the features, epoch by epoch, in runs of the product's trainer: the setting of
``studies/defect-shut-off.toml`` and ``defect-pooling.toml``, first seed. The surrogate acts from epoch 4 on.

``intra_mse`` is the within-class spread of raw z, which no estimator can influence: it is measured, not reported.
Below it the validation accuracy that is paid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docs.figures.drawing import ASSETS, BLUE, GREEN, GREY, ORANGE, PURPLE, keep, new_figure
from docs.figures.small_run import OPEN, SLOTS, small_run

SEED = 0
SETTING = {"surrogate.attention_warmup_epochs": 3}
RUNS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "none": ("sound", {"surrogate.name": "none", "surrogate.lambd": 0.0}, GREY, ":"),
    "slot_cross": ("seed", SLOTS, BLUE, "-"),
    "slot_cross, shut-off removed": ("seed", {**SLOTS, **OPEN}, PURPLE, "--"),
    "gated": ("seed", {"surrogate.name": "gated"}, ORANGE, "-."),
    "slot_mixture": ("sound", {"surrogate.lambd": 1.0}, GREEN, "-"),
}
KEPT = ("epoch", "accuracy", "rob_loss", "intra_mse", "shutoff_share")
HEALTH = ("soft_gate_mean", "snr_gate_mean", "effective_samples", "largest_weight")


def measure() -> dict[str, Any]:
    """Every epoch's figures, by run, and the alarms it raised."""
    found: dict[str, Any] = {}
    for name, (preset, settings, _, _) in RUNS.items():
        result = small_run(preset, {**SETTING, **settings, "train.seed": SEED})
        series = {key: [row[key] for row in result.metrics] for key in KEPT}
        for key in HEALTH:
            if f"surrogate.{key}" in result.metrics[-1]:
                series[key] = [row[f"surrogate.{key}"] for row in result.metrics]
        alarms = sorted({text for row in result.metrics for text in row["alarms"]})
        found[name] = {**series, "alarms": alarms, "test_accuracy": result.test_accuracy}
    return found


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the figure."""
    found = measure()
    figure = new_figure(2, 1, height=6.0)
    spread, accuracy = figure.axes
    for name, run in found.items():
        _, _, colour, style = RUNS[name]
        spread.plot(run["epoch"], run["intra_mse"], color=colour, ls=style, label=name)
        accuracy.plot(run["epoch"], [100 * value for value in run["accuracy"]], color=colour, ls=style)
    spread.set(ylabel="intra_mse", ylim=(0, None))
    spread.legend(fontsize=9)
    accuracy.set(xlabel="epoch", ylabel="accuracy / %", ylim=(0, 100))
    return keep("curves", figure, found, seed=SEED, folder=folder)
