"""Timing as ratios in one run: variants take turns, so that a noisy machine disturbs all of them alike."""

import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch


def interleaved(variants: dict[str, Callable[[], Any]], *, rounds: int, device: str) -> dict[str, float]:
    """Median seconds of each variant; every round runs each once, after one warm-up of each."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for repeat in range(rounds + 1):
        for name, run in variants.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            if repeat:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    cpu = platform.processor() or platform.machine()
    return {"cpu": f"{cpu}, {torch.get_num_threads()} threads", "gpu": gpu, "torch": torch.__version__}
