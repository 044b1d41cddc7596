"""The small JSON file every finished cell leaves.

=================================  ====================================================================================
format, version                    ``attention-cem/study-result``, 1
study, cell, method, data          names
seed, lambda, sigma, settings      as in ``comparison.json``
config_hash, commit                what was trained, with which program (commit of its git checkout, or null)
accuracy, validation_accuracy      on test images, scored once; on validation images, by which the weights were chosen
best_epoch                         whose weights those are; null in older files
mse, ci95, psnr, ssim, attack      the audit's headline; ``waves``: its MSE by bands of waves, coarse to fine
status, receipt_ok, note           how far to trust it
budget                             of the audit
attacks                            by name: ``mse``, ``ci95``, ``psnr``, ``ssim``, ``status``, ``converged``,
                                   ``calibrated``, ``reason``, ``seconds``
warnings                           of the audit
shutoff_share                      of active steps, or null
floor_mse, floor_waves             MSE of one who sees nothing, and by bands of waves
cost                               ``seconds_per_epoch`` (median), ``images_per_s`` (median), ``train_seconds``,
                                   ``audit_seconds``, ``total_seconds``
device, versions                   where and with what
=================================  ====================================================================================
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from attention_cem.studies.plan import Cell
from attention_cem.training.config_reading import config_hash
from attention_cem.training.files import write_atomically

RESULT_FORMAT = "attention-cem/study-result"
RESULT_VERSION = 1
_MAX_RESULT_BYTES = 1 << 20
_TOLD_COMMIT = "ATTENTION_CEM_COMMIT"
_NEEDED = {"cell": str, "method": str, "data": str, "seed": int, "accuracy": float, "mse": float, "settings": dict}


class ResultError(ValueError):
    """A file that is no result of a cell; the message names it."""


def result_of(
    study: str,
    cell: Cell,
    *,
    facts: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    audit: Mapping[str, Any],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Put together what ``run.json``, ``metrics.jsonl`` and ``audit.json`` say.

    Raises:
        ValueError: the audit has no headline, so that the cell has no result.
    """
    headline = audit["headline"]
    if headline is None:
        raise ValueError(f"the audit of {cell.id} has no headline: {'; '.join(audit['warnings'])}")
    return {
        "format": RESULT_FORMAT,
        "version": RESULT_VERSION,
        "study": study,
        "cell": cell.id,
        "method": cell.method,
        "data": cell.config.data.name,
        "seed": cell.config.train.seed,
        "lambda": cell.lambd,
        "sigma": cell.sigma,
        "settings": dict(cell.settings),
        "config_hash": config_hash(cell.config),
        "commit": program_commit(),
        "accuracy": float(facts["test"]["accuracy"]),
        "validation_accuracy": float(facts["best_accuracy"]),
        "best_epoch": int(facts["best_epoch"]),
        **{key: headline[key] for key in ("mse", "ci95", "psnr", "ssim", "attack", "status", "note")},
        "waves": headline.get("waves"),
        "receipt_ok": headline["status"] == "passed",
        "budget": audit["budget"],
        "attacks": {entry["name"]: _attack(entry) for entry in audit["attacks"]},
        "warnings": [*(f"training: {text}" for text in _last_alarms(metrics)), *audit["warnings"]],
        "shutoff_share": facts.get("shutoff_share_when_active"),
        "floor_mse": audit.get("floor_mse"),
        "floor_waves": audit.get("floor_waves"),
        "cost": {
            "seconds_per_epoch": median(row["seconds"] for row in metrics) if metrics else None,
            "images_per_s": median(row["images_per_s"] for row in metrics) if metrics else None,
            "train_seconds": facts.get("seconds"),
            **seconds,
        },
        "device": facts.get("hardware", {}).get("device"),
        "versions": facts.get("versions"),
    }


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result file; it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, result_text(result))


def result_text(result: Mapping[str, Any]) -> bytes:
    """The content of a result file."""
    return (json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode()


def make_folder(out: Path) -> None:
    """Make the folder of a study.

    Raises:
        ValueError: it cannot be made or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        reason = "it is a file" if out.is_file() else error.strerror or error
        raise ValueError(
            f"the study's folder {out} cannot be made or written ({reason}); "
            "choose an --out inside a folder you can write to"
        ) from None


def read_result(path: Path, cell_id: str | None = None) -> dict[str, Any]:
    """Read and check a result file.

    Args:
        path: the file.
        cell_id: the cell it must be of, or of a run of the same configuration, as another study may have made one.

    Raises:
        ResultError: it is not one, or another cell's.
    """
    if not path.is_file():
        raise ResultError(f"{path} is no file, or a link to none")
    if path.stat().st_size > _MAX_RESULT_BYTES:
        raise ResultError(f"{path} is larger than {_MAX_RESULT_BYTES} bytes: this is no result of a study")
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path} is not JSON: {error}") from None
    if not isinstance(result, dict) or (result.get("format"), result.get("version")) != (RESULT_FORMAT, RESULT_VERSION):
        raise ResultError(f"{path} is no {RESULT_FORMAT} of version {RESULT_VERSION}")
    _check_figures(path, result)
    same_configuration = cell_id is not None and cell_id.endswith(f"-{str(result.get('config_hash'))[:12]}")
    if cell_id not in (None, result["cell"]) and not same_configuration:
        raise ResultError(f"{path} is the result of another cell, {result['cell']!r:.100}")
    return result


def read_result_of(path: Path, cell: Cell) -> dict[str, Any]:
    """Read the result of a study's cell, for a comparison; what names the run is taken from the study, not the file.

    Raises:
        ResultError: it is none, that of another run, or one that `comparison.json` cannot hold.
    """
    result = read_result(path, cell.id)
    expected = {"seed": cell.config.train.seed, "config_hash": config_hash(cell.config)}
    for key, value in expected.items():
        if result.get(key) != value:
            raise ResultError(f"{path}: {key} is {result.get(key)!r:.100}, but that of the study's cell is {value!r}")
    cost = result.get("cost") or {}
    if not isinstance(cost, dict) or not all(value is None or _is_number(value) for value in cost.values()):
        raise ResultError(f"{path}: cost must be an object of numbers, got {cost!r:.100}")
    try:
        json.dumps(result, allow_nan=False)
    except ValueError:
        raise ResultError(f"{path} holds NaN or infinity") from None
    return {
        **result,
        "cell": cell.id,
        "method": cell.method,
        "lambda": cell.lambd,
        "sigma": cell.sigma,
        "settings": dict(cell.settings),
    }


def _check_figures(path: Path, result: Mapping[str, Any]) -> None:
    for key, kind in _NEEDED.items():
        if type(result.get(key)) is not kind:
            raise ResultError(f"{path}: {key} must be of type {kind.__name__}, got {result.get(key)!r:.100}")
    accuracy, mse, sigma = result["accuracy"], result["mse"], result.get("sigma")
    if not 0 <= accuracy <= 1 or not (_is_number(mse) and mse >= 0):
        raise ResultError(f"{path}: expected an accuracy from 0 to 1 and a finite MSE from 0 on, got {accuracy}, {mse}")
    if not _is_number(result.get("lambda")):
        raise ResultError(f"{path}: lambda must be a finite number, got {result.get('lambda')!r:.100}")
    if sigma is not None and not _is_number(sigma):
        raise ResultError(f"{path}: sigma must be a finite number or null, got {sigma!r:.100}")


def _is_number(value: Any) -> bool:
    # Not isfinite, which cannot take every whole number.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def program_commit() -> str | None:
    """The git commit of the program, with ``+changes`` if any of it was edited since; None where nobody knows.

    Where the program lies outside git, as on a machine it was copied to, the environment's ``ATTENTION_CEM_COMMIT``
    is believed.
    """
    package = Path(__file__).parents[1]
    try:
        commit = _git(package, "rev-parse", "HEAD")
        changed = _git(package, "status", "--porcelain", "--", ".")  # files not yet in git included
    except (OSError, subprocess.SubprocessError):
        return _told_commit()
    return f"{commit}+changes" if changed else commit


def _told_commit() -> str | None:
    told = os.environ.get(_TOLD_COMMIT)
    if told is not None and not re.fullmatch(r"[0-9a-f]{40}(\+changes)?", told):
        raise ValueError(f"{_TOLD_COMMIT} must be a full git commit, 40 hexadecimal digits, got {told[:100]!r}")
    return told


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _last_alarms(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(metrics[-1].get("alarms") or ()) if metrics else []


def _attack(entry: Mapping[str, Any]) -> dict[str, Any]:
    receipt = entry["receipt"]
    figures = {key: entry[key] for key in ("mse", "ci95", "psnr", "ssim", "status")}
    return {**figures, **{key: receipt.get(key) for key in ("converged", "calibrated", "reason", "seconds")}}
