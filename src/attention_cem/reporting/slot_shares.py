"""What share of its class each slot of a run's surrogate holds, read from the checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

_SHARE, _LABEL = "surrogate.slot_share", "surrogate.memory.label"
_MOST_CLASSES = 512
_MOST_SLOTS = 64


def slot_shares(checkpoints: Path) -> list[list[float]]:
    """The shares in the newest weights, one row a class; empty where the surrogate has no slots."""
    for path in [*sorted(checkpoints.glob("step-*.safetensors"))[-1:], checkpoints / "best.safetensors"]:
        try:
            with safe_open(path, framework="pt") as stored:
                return _rows_of_classes(stored) if _SHARE in stored.keys() else []  # noqa: SIM118 (not a dict)
        except (OSError, SafetensorError, ValueError):
            continue
    return []


def _rows_of_classes(stored: Any) -> list[list[float]]:
    shares = stored.get_slice(_SHARE)
    rows, slots = shares.get_shape()
    folds = _folds(stored, rows)
    # The last place is that of labels the memory does not know.
    classes = max(0, min(rows // folds - 1, _MOST_CLASSES))
    found = shares[: classes * folds, : min(slots, _MOST_SLOTS)].float()
    return mean_of_halves(found.unflatten(0, (classes, folds))).tolist()


def _folds(stored: Any, rows: int) -> int:
    """Rows that each class has: with ``cross_fit`` the two halves of a class lie side by side, otherwise it has one."""
    if _LABEL not in stored.keys():  # noqa: SIM118 (not a dict)
        return 1
    (places,) = stored.get_slice(_LABEL).get_shape()
    return 2 if rows == 2 * places else 1


def mean_of_halves(shares: Tensor) -> Tensor:
    """The mean (C, S) over the halves of shares (C, F, S).

    Slot 1 of one half has nothing to do with slot 1 of the other: each half finds its own. So the largest slot is
    averaged with the largest and so on, and stands where the first half has it. The mean by number would show a class
    as evenly held when in each half another single slot holds it all.

    >>> import torch
    >>> mean_of_halves(torch.tensor([[[0.0, 1.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]]))
    tensor([[0.2500, 0.7500],
            [1.0000, 0.0000]])
    """
    by_size = shares.sort(-1, descending=True).values.mean(1)
    place = shares[:, 0].argsort(-1, descending=True)
    return by_size.scatter(-1, place, by_size)
