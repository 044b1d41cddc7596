"""The page about what training costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from studies.publish_reading import Experiment
from studies.publish_rows import Row, rows_of
from studies.publish_tables import NOTHING, number, spread, table, targets_table


def cost_page(
    experiments: Sequence[Experiment], figures: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]
) -> str:
    """Cost measured alone, then the seconds every study's runs took."""
    parts = [
        "# Cost of training\n\n训练开销",
        "## Alone on the machine 独占机器",
        *_alone(figures),
        targets_table(targets) if targets else "",
        "Single steps of every surrogate, and surrogates against the plain per-class loop: "
        "[benchmarks](../benchmarks/RESULTS.md).",
        "## In the studies 各研究中的用时",
        "Median seconds per epoch (training, without validation) and images per second, means over runs. Several runs "
        "of a study share a machine, so these say how long the studies took, not what a method costs by itself.\n\n"
        "研究中多个训练共用一张 GPU，用时只供参考。",
    ]
    tables = [_study(experiment, data) for experiment in experiments for data in experiment.data_sets()]
    parts += tables or ["No study has results yet: [what is missing](README.md)."]
    return "\n\n".join(part for part in parts if part) + "\n"


def _alone(figures: Mapping[str, Any]) -> list[str]:
    if not figures["settings"]:
        return [
            "Not measured yet 尚未测量: `python -m benchmarks.throughput --out results/benchmarks/throughput-GPU.json`."
        ]
    lines, sources, faster = [], {}, []
    for setting in figures["settings"]:
        file = f"`{PurePosixPath(setting['source']).name}` `{setting['commit']}`"
        sources[setting["source"]] = f"- {setting['source']}: {setting['machine']}, commit {setting['commit']}"
        without = setting["seconds_per_epoch"].get("none")
        for row in setting["rows"]:
            over = NOTHING if not without else f"{row['epoch_s'] / without:.2f}×"
            memory = f"{row['peak_mib']:,.0f}" if "peak_mib" in row else NOTHING
            rate, seconds = f"{row['images_per_s']:,.0f}", f"{row['epoch_s']:.3f}"
            about = [str(setting["batch"]), str(setting["classes"]), setting["mode"], row["method"]]
            lines.append([*about, seconds, over, rate, memory, file])
            if without and row["epoch_s"] < without:
                faster.append(f"{row['method']} ({setting['mode']}, batch {setting['batch']})")
    head = [
        "batch",
        "classes",
        "step as",
        "method",
        "s per epoch",
        "over none",
        "images/s",
        "peak MiB",
        "file · commit",
    ]
    told = "One training at a time, fitting included, validation not; each row is one measurement"
    if faster:
        told += f". How far they scatter: {', '.join(faster)} does more than `none` and took less time"
    return [table(head, lines), f"{told}:\n\n" + "\n".join(sources.values())]


def _study(experiment: Experiment, data: str) -> str:
    rows = rows_of(experiment, data)
    head = [
        "method",
        "σ",
        "λ or weight",
        "runs",
        "s per epoch",
        "images/s",
        "training s",
        "audit s",
    ]
    lines = [_line(row) for row in rows]
    caption = f"{experiment.name}, {data}, batch {_batches(rows)}, {_devices(rows)}"
    return f"{caption}\n\n{table([*head, 'study · config · commit'], lines)}"


def _line(row: Row) -> list[str]:
    return [
        row.method,
        number(row.sigma),
        row.strength,
        str(row.seeds),
        spread(row.cost("seconds_per_epoch"), 2),
        spread(row.cost("images_per_s"), 0),
        spread(row.cost("train_seconds"), 0),
        spread(row.cost("audit_seconds"), 0),
        row.source,
    ]


def _batches(rows: Sequence[Row]) -> str:
    return ", ".join(sorted({str(each.cell.config.train.batch_size) for row in rows for each in row.members}))


def _devices(rows: Sequence[Row]) -> str:
    return ", ".join(sorted({each.device for row in rows for each in row.members}))
