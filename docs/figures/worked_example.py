"""The worked example of the walk-through of gated attention, computed exactly, beside what the document prints."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from attention_cem import GatedAttentionCEM
from attention_cem.surrogates.gated import pooled_variance
from attention_cem.surrogates.objectives import StudyOnlyWarning
from attention_cem.surrogates.segments import class_sum, segment_classes
from attention_cem.training.files import write_atomically
from docs.figures.drawing import ASSETS, keep_numbers

Z = [[0.0, 0.0], [0.2, 0.1], [-0.1, 0.05], [1.0, 1.0], [0.9, 1.1], [1.2, 0.8]]
Y = [1, 1, 1, 2, 2, 2]
PRINTED: dict[str, str] = {
    "logits, y = 1": "0, 0.160, −0.0217",
    "a, y = 1": "0.322, 0.381, 0.297",
    "μ, y = 1": "0.046, 0.053",
    "v, y = 1": "0.0188",
    "R, y = 1": "0",
    "logits, y = 2": "–",
    "a, y = 2": "0.34, 0.33, 0.33",
    "μ, y = 2": "1.03, 0.96",
    "v, y = 2": "0.0215",
    "R, y = 2": "0.0737",
    "rob_loss": "0.0369",
}
"""As the document has it: "门控注意力条件熵正则的全流程解析", section 6."""


def worked_surrogate() -> GatedAttentionCEM:
    """V = I, U = I/2, w = (1, 1), τ = 0.02, ε = 1e-6, no layer norm, as the document sets them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StudyOnlyWarning)
        surrogate = GatedAttentionCEM(2, form="trace", threshold=0.02, eps=1e-6, hidden=2, layer_norm=False).double()
    with torch.no_grad():
        surrogate.pooling.value_and_gate.weight.copy_(torch.cat([torch.eye(2), torch.eye(2) / 2]))
        surrogate.pooling.score.weight.fill_(1)
    return surrogate


def computed() -> dict[str, list[float]]:
    """Every intermediate quantity under the keys of ``PRINTED``."""
    surrogate = worked_surrogate()
    z, y = torch.tensor(Z, dtype=torch.float64), torch.tensor(Y)
    segments = segment_classes(y)
    with torch.no_grad():
        logits, weight = surrogate.pooling.logits(z), surrogate.pooling(z, segments)
        mean = class_sum(weight[:, None] * z, segments.row, segments.num_rows)
        variance = pooled_variance(weight, z, segments, "trace")
        output = surrogate(z, y)
    found: dict[str, Any] = {}
    for label in (1, 2):
        row = int((segments.label == label).nonzero()[0])
        mine = y == label
        found[f"logits, y = {label}"] = logits[mine].tolist()
        found[f"a, y = {label}"] = weight[mine].tolist()
        found[f"μ, y = {label}"] = mean[row].tolist()
        found[f"v, y = {label}"] = variance[row].tolist()
        found[f"R, y = {label}"] = [float(output.diagnostics["class_loss"][row])]
    return {**found, "rob_loss": [float(output.rob_loss)]}


def table(language: str) -> str:
    """The comparison as a Markdown table."""
    head = {"en": ("quantity", "computed", "printed in the document"), "zh": ("量", "精确计算", "文档所印")}[language]
    lines = [f"| {' | '.join(head)} |", "| --- | --- | --- |"]
    for name, values in computed().items():
        exact = ", ".join(f"{value:.6f}" for value in values).replace("-", "−")
        lines.append(f"| {name} | {exact} | {PRINTED[name]} |")
    return "\n".join(lines) + "\n"


def draw(folder: Path = ASSETS) -> list[Path]:
    """Write the numbers, and the table in both languages."""
    written = [keep_numbers("worked_example", {"computed": computed(), "printed": PRINTED}, seed=0, folder=folder)]
    for language in ("en", "zh"):
        file = folder / f"worked_example.{language}.md"
        write_atomically(file, table(language).encode())
        written.append(file)
    return written
