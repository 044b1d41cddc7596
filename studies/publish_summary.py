"""``results/summary.json``: everything the pages say, as plain data.

=========================  ============================================================================================
format, version            ``attention-cem/results-summary``, 1
comparisons                ``<data>.<a>_vs_<b>``: ``accuracy``, ``mse_gain``, ``ci95`` or null, ``seeds``, and where it
                           comes from; of the study that speaks for the data set
comparisons_by_study       the same, of every study
missing                    comparisons that could not be made: ``comparison``, ``reason``
targets                    ``name``, ``threshold``, ``figure``, ``ci95``, ``met`` (true, false or null), ``why``
methods                    ``<study>.<data>.<method>``: ``curve``, ``front``, ``hypervolume``, ``seconds_per_epoch``
cost                       ``settings``: seconds per epoch of trainings that ran alone, and where they come from
studies                    by name: ``file``, ``sha256``, ``planned``, ``done``, ``missing`` (runs by method),
                           ``commits``, ``stale``, ``command``
stale                      results that were not used: ``file``, ``reason``
cells                      every result that was used
definitions                one sentence each
stamp                      digests of what this file was made from
=========================  ============================================================================================
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from attention_cem.studies import compare
from studies.publish_augmented import Found
from studies.publish_comparisons import Compared
from studies.publish_finished import ABOVE_CHANCE, Finished
from studies.publish_pages import commits
from studies.publish_reading import Experiment, Stale, StoredStudy
from studies.publish_rows import strength_of

SUMMARY_FORMAT = "attention-cem/results-summary"
SUMMARY_VERSION = 1
DEFINITIONS = {
    "accuracy": "share of test images the server classifies right from released features, scored once",
    "mse": "the audit's headline: lowest mean MSE over attacks on test images; higher is more private",
    "mse_gain": "MSE of a over MSE of b at equal accuracy: each seed's efficient points, read by straight lines "
    "between them and the run without a surrogate, never beyond them; geometric mean over the seeds both have",
    "finer_gain": "the same ratio of the runs that both were read from, without the 4×4 slowest cosine waves of an "
    "image, which a blind client does not see; null where a run does not say in which waves its error is",
    "ci95": "95 % Student's t interval over seeds, on log ratios; null with fewer than two seeds",
    "accuracy_from": "the first accuracy of the study file that all seeds of both methods cover, otherwise the lowest "
    "that they all cover",
    "at_least": "a is more accurate than b ever is, in some seeds, and counts with its least accurate efficient run: "
    "mse_gain is a lower bound, of ci95 only the lower end counts, and outcome is better or undecided",
    "undefended_share": "of a and of b, the share of the images that goes through the run without a surrogate, if "
    "the MSE is read from a mixture with it; mean over seeds",
    "own_until": "the accuracy up to which a has runs of its own: of each seed the most accurate on its curve, mean "
    "over seeds; a verdict of a difference is said to hold no further. Null where a seed of a has none on its curve",
    "never_learned": f"of the runs that both curves are made of, how many said in training that nothing is "
    f"learned, or have an accuracy of at most {ABOVE_CHANCE} over the number of classes: they count as every other",
    "receipts": "of the runs that both curves are made of, those without a surrogate included, how many have audits "
    "that stand on passing receipts",
    "augmented": "of the same runs, how many were attacked with augmented images too: without them no receipt counts "
    "as passing, since they find more of a client that shows little and no receipt of the others tells",
    "more_found_by_augmented": "change of the MSE by augmented images on the same clients, lowest and highest share, "
    "of ours and of k-means CEM (theirs), and the ratio of both means without and with them: benchmarks/RESULTS.md",
    "proven": "of targets: whether all of these have",
    "named_afterwards": "of targets: what of it was chosen when the figures that decide it were known, or null",
    "missed_before": "of targets: whether an earlier recipe, or the same in another study, missed it",
    "confirmed_in": "of targets met without passing receipts: studies that meet them on passing receipts alone",
    "screened": "of targets about a comparison: whether attacks that rank and prove nothing are among those it is by",
    "hypervolume": "area of all (accuracy, MSE) that a seed's front beats and that beat the reference; mean over seeds",
    "shown_in": "of cells: the study that lists the run; another than `study` where that one ran it",
    "strength": "of cells: λ of the surrogate, and the weight of the closed-form attacker where there is one",
    "stale": "results whose configuration is not (or not any more) a cell of a study file; they are never used",
    "seconds_per_epoch": "in methods and cells: median over a run's epochs, without validation; runs share machines, "
    "so that only `cost` compares methods",
}
_CELL = (
    "lambda sigma accuracy validation_accuracy mse ci95 psnr ssim attack status receipt_ok shutoff_share floor_mse "
    "budget device"
)
_ATTACK = ("mse", "ci95", "ssim", "status")


def summary_of(
    *,
    studies: Sequence[StoredStudy],
    orphans: Sequence[Stale],
    experiments: Sequence[Experiment],
    compared: Sequence[Compared],
    comparisons: Mapping[str, Any],
    missing: Sequence[Mapping[str, str]],
    targets: Sequence[Mapping[str, Any]],
    cost: Mapping[str, Any],
    more_found: Found | None,
) -> dict[str, Any]:
    """Put the content together; it holds no figure that JSON cannot."""
    stale = [*orphans, *(each for stored in studies for each in stored.stale)]
    content = {
        "format": SUMMARY_FORMAT,
        "version": SUMMARY_VERSION,
        "comparisons": comparisons,
        "missing": list(missing),
        "targets": list(targets),
        "cost": cost,
        "more_found_by_augmented": None if more_found is None else asdict(more_found),
        "studies": {stored.name: _study(stored) for stored in studies},
        "stale": [{"file": each.file, "reason": each.reason} for each in stale],
        "comparisons_by_study": {each.experiment: each.records for each in compared if each.records},
        "methods": {each.name: _methods(each) for each in experiments if each.finished},
        "cells": [_cell(each, stored.name) for stored in studies for each in stored.finished],
        "definitions": DEFINITIONS,
    }
    plain: dict[str, Any] = _finite(content)
    return plain


def _study(stored: StoredStudy) -> dict[str, Any]:
    return {
        "file": stored.file,
        "sha256": stored.sha256,
        "title": stored.study.title,
        "budget": stored.study.budget,
        "planned": len(stored.study.cells),
        "done": len(stored.finished),
        "missing": dict(Counter(cell.method for cell in stored.missing)),
        "stale": len(stored.stale),
        "commits": commits(stored),
        "command": stored.command,
    }


def _methods(experiment: Experiment) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for data in experiment.data_sets():
        points = [each.point() for each in experiment.finished if each.data == data]
        methods = compare(points, reference=experiment.reference)["methods"]
        made[data] = {
            name: {key: method[key] for key in ("curve", "front", "hypervolume", "seconds_per_epoch")}
            for name, method in methods.items()
        }
    return made


def _cell(each: Finished, shown_in: str) -> dict[str, Any]:
    return {
        "study": each.study,
        "shown_in": shown_in,
        "cell": each.cell.id,
        "config_hash": each.config_hash,
        "commit": each.commit,
        "method": each.method,
        "data": each.data,
        "seed": each.seed,
        "strength": strength_of(each),
        "epochs": each.cell.config.train.epochs,
        **{key: each.result.get(key) for key in _CELL.split()},
        "attacks": {name: {key: entry.get(key) for key in _ATTACK} for name, entry in each.attacks.items()},
        "cost": each.cost,
    }


def _finite(value: Any) -> Any:
    """The same with null for numbers that are not finite, e.g. the PSNR of a perfect reconstruction."""
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
