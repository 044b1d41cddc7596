"""What trainings cost that ran alone on a machine: every ``results/benchmarks/throughput-*.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from studies.publish_rows import short_commit
from studies.publish_stamps import benchmark_files

SETTING = ("mode", "batch", "classes")
"""What rows must share, the file included, to be compared: one machine, one version of the program."""


def cost_figures(root: Path) -> dict[str, Any]:
    """Every measurement: ``settings``, each with rows as measured, ``seconds_per_epoch`` and where they come from.

    Runs of studies share a GPU with each other: their seconds say nothing about cost.
    """
    settings: dict[tuple[Any, ...], dict[str, Any]] = {}
    for file in benchmark_files(root):
        content = json.loads(file.read_text(encoding="utf-8"))
        machine = content["machine"]
        for row in content["rows"]:
            key = (file.name, *(row[name] for name in SETTING))
            about = {
                "source": f"results/benchmarks/{file.name}",
                "machine": f"{machine['gpu']}, torch {machine['torch']}",
                "commit": short_commit(content.get("commit") or "unknown"),
                **{name: row[name] for name in SETTING},
                "rows": [],
                "seconds_per_epoch": {},
            }
            setting = settings.setdefault(key, about)
            setting["rows"].append(row)
            setting["seconds_per_epoch"][row["method"]] = row["epoch_s"]
    return {"settings": list(settings.values())}


def cost_standing(target: Mapping[str, Any], figures: Mapping[str, Any]) -> tuple[float | None, str]:
    """The ratio that a target about cost is decided by, or None, and in words what every way to run a step has.

    The first setting counts that is run as the target's ``mode`` says; without one the first that has both methods.
    """
    of, over = target["cost_of"], target["cost_over"]
    measured = [each for each in figures["settings"] if {of, over} <= set(each["seconds_per_epoch"])]
    if not measured:
        known = {name for each in figures["settings"] for name in each["seconds_per_epoch"]}
        absent = [name for name in (of, over) if name not in known] or [of, over]
        return None, f"no measurement of {' and '.join(absent)} alone on a machine"
    first_of_mode = {each["mode"]: each for each in reversed(measured)}
    wanted = first_of_mode.get(target.get("mode"), measured[0])
    others = [each for each in first_of_mode.values() if each is not wanted]
    return _ratio(wanted, of, over), "; ".join(_told(each, of, over) for each in (wanted, *others))


def _ratio(setting: Mapping[str, Any], of: str, over: str) -> float:
    seconds: Mapping[str, float] = setting["seconds_per_epoch"]
    return seconds[of] / seconds[over]


def _told(setting: Mapping[str, Any], of: str, over: str) -> str:
    seconds = setting["seconds_per_epoch"]
    return (
        f"{setting['mode']}: {_ratio(setting, of, over):.3f}×, {seconds[of]:.3f} s against {seconds[over]:.3f} s per "
        f"epoch at batch {setting['batch']} and {setting['classes']} classes, {setting['source']}"
    )
