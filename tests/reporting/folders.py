"""Run and study folders made in a moment: the audit in them is real, the training is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from attention_cem.attacks import ClassMeanAttack, NearestNeighbourAttack
from attention_cem.auditing import Budget, audit, write_challenge
from attention_cem.data import ImageSet
from attention_cem.defences import DefenceStack, GaussianNoise

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
CLASSES = ("circle", "square", HOSTILE)


def make_run(
    folder: Path,
    *,
    surrogate: str = "slot_mixture",
    shutoff: float = 0.0,
    alarms: tuple[str, ...] = (),
    hostile: bool = False,
    audited: bool = True,
    slots: bool = True,
    seed: int = 0,
) -> Path:
    """A finished run of three epochs on 8 px images."""
    folder.mkdir(parents=True)
    names = CLASSES if hostile else ("circle", "square", "star")
    told = HOSTILE if hostile else "demo"
    config = f'[data]\nname = {json.dumps(told)}\n[surrogate]\nname = "{surrogate}"\nlambd = 0.5\n'
    (folder / "config.toml").write_text(config + "[defence.gaussian_noise]\nsigma = 0.05\n")
    rows = [_row(epoch, shutoff, alarms) for epoch in (1, 2, 3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts = {
        "best_epoch": 3, "best_accuracy": 0.9, "epochs": 3, "seconds": 1.5, "test": {"accuracy": 0.875},
        "shutoff_share_when_active": shutoff, "image_shape": [1, 8, 8], "z_shape": [4, 2, 2],
        "class_names": list(names), "data_source": told, "defences": DefenceStack([GaussianNoise(0.05)]).describe(),
        "versions": {"torch": "2"}, "hardware": {"cpus": 2},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(facts))
    if slots:
        (folder / "checkpoints").mkdir()
        shares = torch.tensor([[0.75, 0.25], [0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
        save_file({"surrogate.slot_share": shares}, str(folder / "checkpoints" / "best.safetensors"))
    if audited:
        _audit(folder, names, seed)
    return folder


def _audit(folder: Path, names: tuple[str, ...], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (48, 1, 8, 8), dtype=torch.uint8, generator=generator)
    labels = torch.arange(48) % 3
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        client = nn.Sequential(nn.Conv2d(1, 4, 4, stride=4), nn.Sigmoid())
        server = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    write_challenge(
        folder / "challenge",
        client=client,
        server=server,
        stack=DefenceStack([GaussianNoise(0.05)]),
        attacker=ImageSet(images[:36], labels[:36], names),
        test=ImageSet(images[36:], labels[36:], names),
    )
    attacks = (("class_mean", ClassMeanAttack()), ("nearest_neighbour", NearestNeighbourAttack()))
    audit(folder / "challenge", folder, budget=Budget("tiny", attacks, fisher_images=4), device="cpu")


def _row(epoch: int, shutoff: float, alarms: tuple[str, ...]) -> dict[str, Any]:
    return {
        "epoch": epoch, "loss": 1 / epoch, "accuracy": 0.3 * epoch, "rob_loss": 0.5 / epoch, "intra_mse": 0.01,
        "lambd": 0.0 if epoch == 1 else 0.5, "shutoff_share": shutoff, "surrogate_mode": "active",
        "nonfinite_steps": 0, "surrogate.dead_slots": 0.0, "alarms": list(alarms),
    }  # fmt: skip


def make_study(folder: Path) -> Path:
    """A comparison of two methods with one run folder each."""
    folder.mkdir(parents=True)
    methods = {}
    for index, name in enumerate(("kmeans", "slot_mixture")):
        make_run(folder / "runs" / name, surrogate=name)
        point = {
            "cell": name, "run": f"runs/{name}", "method": name, "seed": 0, "lambda": 0.5, "sigma": 0.05,
            "accuracy": 0.8 + 0.05 * index, "mse": 0.02 + 0.01 * index, "ci95": [0.015, 0.04], "psnr": 17.0,
            "attack": "inverter", "status": "passed", "receipt_ok": True, "on_front": True,
        }  # fmt: skip
        methods[name] = {
            "data": "demo", "label": name, "points": [point], "curve": [{**point, "seeds": 1}],
            "hypervolume": {"mean": 0.01, "ci95": [0.008, 0.012]}, "seconds_per_epoch": {"mean": 2.0, "ci95": None},
        }  # fmt: skip
    pair = {
        "a": "slot_mixture", "b": "kmeans", "outcome": "better", "text": "better at 85 % accuracy: +10 % MSE",
        "matched": [{"accuracy": 0.85, "outcome": "better", "text": "at 85 %: +10 %"}], "cautions": ["one seed"],
    }  # fmt: skip
    content = {
        "format": "attention-cem/comparison", "version": 1, "study": "two methods", "methods": methods,
        "cells": {"planned": 3, "done": 2, "failed": [{"cell": "x", "method": "gated", "error": "out of memory"}]},
        "pairs": [pair], "definitions": {"front": "points that no other point beats"},
    }  # fmt: skip
    (folder / "comparison.json").write_text(json.dumps(content))
    return folder
