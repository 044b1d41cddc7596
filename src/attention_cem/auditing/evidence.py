"""What an audit kept of single images: the pictures, their errors, and the mean error of every class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from attention_cem.attacks.challenge import Challenge
from attention_cem.attacks.sealed_folder import SealBrokenError
from attention_cem.auditing.challenge_files import Answers


@dataclass(frozen=True, eq=False)
class Evidence:
    """One attack's work, image by image.

    Args:
        attack: its name in the audit.
        originals: uint8 ``(n, C, H, W)``, the first test images. reconstructions: the same of what came back.
        mse: ``(n,)``, the error of each.
        labels: ``(n,)``.
        class_mse: mean error over the rebuilt test images of each class, by class name; classes without are absent.
    """

    attack: str
    originals: Tensor
    reconstructions: Tensor
    mse: list[float]
    labels: list[int]
    class_mse: dict[str, float]

    def worst_first(self) -> list[int]:
        """Positions of the pictures, the best reconstruction (the worst leak) first."""
        return sorted(range(len(self.mse)), key=lambda index: self.mse[index])


def evidence_of(record: dict[str, Any], audit_folder: Path, challenge_folder: Path, attack: str) -> Evidence | None:
    """Read one attack's pictures; None where the files are missing, altered, or of another challenge.

    Args:
        record: the content of ``audit.json``.
        audit_folder: the folder it lies in, with ``attacks/``.
        challenge_folder: the attacked challenge, with its answers.
        attack: name of the attack.
    """
    stored = audit_folder / "attacks" / f"{Path(attack).name}.safetensors"
    if not stored.is_file() or not challenge_folder.is_dir():
        return None
    try:
        challenge = Challenge(challenge_folder)
        if challenge.id != record.get("challenge_sha256"):
            return None
        answers = Answers(challenge_folder, str(challenge.manifest.get("answers_sha256")))
        images, labels = answers.images(), answers.labels()
        with safe_open(stored, framework="pt") as tensors:
            # Shapes first: the header says them, and nothing larger than the answers is read.
            shapes = {key: tensors.get_slice(key).get_shape() for key in ("samples", "mse")}
            shown, scored = shapes["samples"][0], shapes["mse"][0]
            fits = shapes["samples"][1:] == list(images.shape[1:]) and len(shapes["mse"]) == 1
            if not fits or not shown <= scored <= len(images):
                return None
            samples, errors = tensors.get_tensor("samples"), tensors.get_tensor("mse")
            # Files of earlier audits do not say which images were rebuilt: there it was the first.
            known = "positions" in tensors.keys()  # noqa: SIM118 (not a dict)
            if known and tensors.get_slice("positions").get_shape() != [scored]:
                return None
            rebuilt = tensors.get_tensor("positions") if known else torch.arange(scored)
            if rebuilt.dtype != torch.int64 or not _all_within(rebuilt, len(images)):
                return None
    except (SealBrokenError, SafetensorError, KeyError, IndexError):
        return None
    known = _all_within(labels, len(challenge.class_names))
    told = _told_mse(record, attack)
    if told is None or not abs(float(errors.double().mean()) - told) <= 1e-6 * max(told, 1e-6):
        return None  # of a later audit that was stopped
    if samples.dtype != torch.uint8 or not errors.is_floating_point() or not bool(errors.isfinite().all()) or not known:
        return None
    return Evidence(
        attack=attack,
        originals=images[:shown],
        reconstructions=samples,
        mse=[float(value) for value in errors[:shown]],
        labels=[int(value) for value in labels[:shown]],
        class_mse=_class_means(errors.double(), labels[rebuilt], challenge.class_names),
    )


def _told_mse(record: dict[str, Any], attack: str) -> float | None:
    """The attack's MSE as the record has it; None where it has none."""
    entries = record.get("attacks")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == attack and type(entry.get("mse")) in (int, float):
            return float(entry["mse"])
    return None


def _all_within(values: Tensor, end: int) -> bool:
    return bool(((values >= 0) & (values < end)).all())


def _class_means(errors: Tensor, labels: Tensor, names: tuple[str, ...]) -> dict[str, float]:
    sums = torch.zeros(len(names), dtype=torch.float64).index_add_(0, labels, errors)
    means = sums / labels.bincount(minlength=len(names))
    return {name: mean for name, mean in zip(names, means.tolist(), strict=True) if math.isfinite(mean)}
