"""From a study's result files to ``comparison.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attention_cem.studies.comparison import (
    COMPARISON_FILE,
    COMPARISON_FORMAT,
    COMPARISON_VERSION,
    DEFINITIONS,
    compare,
)
from attention_cem.studies.plan import Study
from attention_cem.studies.results import make_folder, read_result_of
from attention_cem.studies.store import CellState
from attention_cem.training.files import write_atomically

_POINT = (
    "cell method data seed lambda sigma settings accuracy validation_accuracy mse ci95 psnr ssim attack status "
    "receipt_ok shutoff_share cost"
)


def comparison_of(study: Study, states: Mapping[str, CellState] | None = None) -> dict[str, Any]:
    """The content of ``comparison.json``, from the results that are there.

    Args:
        study: from `load_study`.
        states: from `run_study` or a store, to say which cells failed; without them a cell without a result is
            missing.
    """
    points, failed, missing = [], [], []
    for cell in study.cells:
        file = study.result_file(cell.id)
        state = (states or {}).get(cell.id)
        if file.is_file():
            result = read_result_of(file, cell)
            point = {key: result.get(key) for key in _POINT.split()}
            points.append({**point, "run": study.run_folder(cell).relative_to(study.out).as_posix()})
        elif state is not None and state.status == "failed":
            failed.append({"cell": cell.id, "method": cell.method, "error": state.error})
        else:
            missing.append(cell.id)
    return {
        "format": COMPARISON_FORMAT,
        "version": COMPARISON_VERSION,
        "study": study.name,
        "title": study.title,
        "cells": {"planned": len(study.cells), "done": len(points), "failed": failed, "missing": missing},
        "smallest_difference": study.smallest_difference,
        "definitions": DEFINITIONS,
        **compare(
            points,
            accuracies=study.accuracies,
            smallest_difference=study.smallest_difference,
            reference=study.reference,
            baseline=study.baseline,
        ),
    }


def write_comparison(study: Study, states: Mapping[str, CellState] | None = None) -> dict[str, Any]:
    """Write ``comparison.json`` into the study's folder and return its content."""
    content = comparison_of(study, states)
    make_folder(study.out)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(study.out / COMPARISON_FILE, (text + "\n").encode())
    return content
