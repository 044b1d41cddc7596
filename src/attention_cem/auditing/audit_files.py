"""What an audit keeps of each finished attack, so that a killed audit goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from attention_cem.attacks import Attack, AttackResult, Challenge, Receipt
from attention_cem.attacks.sealed_folder import (
    SealBrokenError,
    read_json,
    sha256_of,
    write_json_atomically,
    write_tensors_atomically,
)
from attention_cem.auditing.scores import Scores
from attention_cem.data import to_uint8

SAMPLES = 16
_STATE = "state."


@dataclass(frozen=True, eq=False)
class FinishedAttack:
    """An attack with its scores.

    Args:
        name: its name in the audit.
        scores: per-image figures on the test images.
        receipt: calibrated, with the train–test gap.
        samples: uint8 ``(n, C, H, W)``, reconstructions of the first test images, those it has.
        identity: match rates, if they were asked for.
        state: weights later attacks may start from.
        state_config: arguments of the network they belong to.
        positions: ``(N,)`` which test images the scores are of; None for the first.
    """

    name: str
    scores: Scores
    receipt: Receipt
    samples: Tensor
    identity: Mapping[str, float] | None
    state: Mapping[str, Tensor]
    state_config: Mapping[str, Any]
    positions: Tensor | None = None

    @classmethod
    def of(
        cls, name: str, result: AttackResult, scores: Scores, receipt: Receipt, identity: Mapping[str, float] | None
    ) -> FinishedAttack:
        """Gather what is kept; the reconstructions themselves are not, but for the first few."""
        shown = SAMPLES
        if result.positions is not None:
            # Pictures stand under the first test images: shown is what was rebuilt of those without a gap.
            first = result.positions[:SAMPLES]
            shown = int((first == torch.arange(len(first))).long().cumprod(0).sum())
        samples = to_uint8(result.reconstructions[:shown])
        return cls(name, scores, receipt, samples, identity, result.state, result.state_config, result.positions)

    def on(self, positions: Tensor) -> float | None:
        """Mean MSE over the test images at ``positions``; None where it did not rebuild them all, or there are none."""
        chosen = torch.isin(self.rebuilt(), positions)
        return float(self.scores.mse[chosen].double().mean()) if 0 < len(positions) == int(chosen.sum()) else None

    def rebuilt(self) -> Tensor:
        """Which test images it rebuilt, ``(N,)``."""
        return torch.arange(len(self.scores.mse)) if self.positions is None else self.positions

    def as_start(self) -> AttackResult:
        """What later attacks may start from."""
        return AttackResult(self.samples, self.receipt, self.state, self.state_config)


def fingerprint(challenge: Challenge, attack: Attack, extra: Mapping[str, Any]) -> str:
    """What a stored result must have been made from to be used again."""
    key = {"challenge": challenge.id, "settings": attack.settings(), **extra}
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def save_attack(folder: Path, made_from: str, finished: FinishedAttack) -> None:
    """Write tensors first, then the JSON that names their hash: its presence means the attack is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"mse": finished.scores.mse, "psnr": finished.scores.psnr, "samples": finished.samples}
    if finished.scores.ssim is not None:
        tensors["ssim"] = finished.scores.ssim
    if finished.positions is not None:
        tensors["positions"] = finished.positions
    tensors |= {f"{_STATE}{key}": tensor.clone() for key, tensor in finished.state.items()}
    stored = folder / f"{finished.name}.safetensors"
    write_tensors_atomically(stored, tensors)
    write_json_atomically(
        folder / f"{finished.name}.json",
        {
            "made_from": made_from,
            "tensors_sha256": sha256_of(stored),
            "waves": None if finished.scores.waves is None else dict(finished.scores.waves),
            "receipt": finished.receipt.to_plain(),
            "identity": dict(finished.identity) if finished.identity is not None else None,
            "state_config": dict(finished.state_config),
        },
    )


def load_attack(folder: Path, name: str, made_from: str) -> FinishedAttack | None:
    """A finished attack of the same origin, or None if there is none; a broken or foreign file counts as none."""
    record_path, tensor_path = folder / f"{name}.json", folder / f"{name}.safetensors"
    if not record_path.is_file() or not tensor_path.is_file():
        return None
    try:
        record = read_json(record_path, 64 * 2**20)
        if record.get("made_from") != made_from or record.get("tensors_sha256") != sha256_of(tensor_path):
            return None
        with safe_open(tensor_path, framework="pt") as stored:
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118 (not a dict)
        waves = record.get("waves")
        if waves is not None:
            waves = {str(band): float(part) for band, part in dict(waves).items()}
        return FinishedAttack(
            name=name,
            scores=Scores(tensors["mse"], tensors["psnr"], tensors.get("ssim"), waves),
            receipt=Receipt.from_plain(record["receipt"]),
            samples=tensors["samples"],
            identity=record["identity"],
            state={key.removeprefix(_STATE): each for key, each in tensors.items() if key.startswith(_STATE)},
            state_config=record["state_config"],
            positions=tensors.get("positions"),
        )
    except (SealBrokenError, SafetensorError, KeyError, TypeError, ValueError):
        return None
