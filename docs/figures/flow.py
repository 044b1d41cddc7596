"""Flow charts of presets with the shapes of CIFAR-10, as ``attention-cem explain`` draws them."""

from __future__ import annotations

from pathlib import Path

from attention_cem.studies.flow_chart import draw_flow_chart
from attention_cem.studies.pipeline import describe_pipeline
from attention_cem.training import load_config
from attention_cem.training.files import write_atomically
from docs.figures.drawing import ASSETS
from docs.figures.small_run import CONFIGS

CHARTS = {
    "flow_slot_cross": "cifar10-seed.toml",
    "flow_slot_mixture": "cifar10-slots.toml",
    "flow_attacker": "cifar10-attention.toml",
}


def draw(folder: Path = ASSETS) -> list[Path]:
    """Draw the charts; their labels are in both languages."""
    written = []
    for name, preset in CHARTS.items():
        pipeline = describe_pipeline(load_config(CONFIGS / preset), image_shape=(3, 32, 32), num_classes=10)
        file = folder / f"{name}.svg"
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, draw_flow_chart(pipeline).encode())
        written.append(file)
    return written
