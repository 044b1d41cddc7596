"""From a run folder to a challenge, and to an audit that lies in the run folder.

The attacker owns every image of the data set that is not a test image, the victim's training images among them: the
worst case. Membership candidates are images the victim was really trained on, and as many test images.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from attention_cem.attacks import Challenge
from attention_cem.attacks.challenge import attack_device
from attention_cem.attacks.sealed_folder import SealBrokenError, read_json, write_json_atomically
from attention_cem.auditing.audit import alone_auditing, audit_into
from attention_cem.auditing.budgets import BUDGETS, Budget, check_budget_name
from attention_cem.auditing.challenge_files import Answers, released_accuracy, write_challenge
from attention_cem.auditing.observer import AuditObserver
from attention_cem.auditing.record import AUDIT_FILE
from attention_cem.data import ImageData, ImageSet, load_data, split_validation
from attention_cem.data.random_streams import generator_for
from attention_cem.splitting import SplitModel
from attention_cem.training import TrainedRun, load_run
from attention_cem.training.config_checks import ConfigError
from attention_cem.training.run_folder import RunFolder

AUDIT_FOLDER = "audit"
CHALLENGE_FOLDER = "challenge"
_MOST_CANDIDATES = 5000
_LEAST_CANDIDATES = 4
_ORIGIN = ("checkpoint_sha256", "run_finished", "limit", "seed")


def challenge_from_run(
    run_folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    white_box: bool = True,
    limit: int | None = None,
    device: torch.device | str | None = None,
    data: ImageData | None = None,
    data_root: str | os.PathLike[str] | None = None,
    model: SplitModel | None = None,
    seed: int = 0,
) -> Path:
    """Write the challenge of a run's best weights.

    Args:
        run_folder: written by ``train``.
        out: where to write; must not exist. By default ``challenge`` inside the run folder.
        white_box: also give the client and its defences away, learned parts and the defender's adversary included.
        limit: at most so many attacker images and so many test images, every class its share.
        device: where to compute the features; the GPU if there is one.
        data: the images, for a run that was given its own.
        data_root: folder with the data files, if they are not where the run found them.
        model: the halves, for a run that was given its own model.
        seed: of the randomness in the features, and of what a limit keeps.

    Returns:
        The challenge folder.

    Raises:
        ValueError: the folder exists, data and weights are not those of the run, or its ``run.json`` is damaged.
    """
    run = load_run(run_folder, device=attack_device(device), model=model)
    target = run.folder / CHALLENGE_FOLDER if out is None else Path(out)
    return _write(run, target, white_box, limit, data, data_root, seed)


def audit_run(
    run_folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    budget: str | Budget = "standard",
    limit: int | None = None,
    device: torch.device | str | None = None,
    identity: bool = False,
    data: ImageData | None = None,
    data_root: str | os.PathLike[str] | None = None,
    model: SplitModel | None = None,
    calibration_cache: str | os.PathLike[str] | None = None,
    seed: int = 0,
    compiled: bool = False,
    observer: AuditObserver | None = None,
) -> dict[str, Any]:
    """Audit a run's best weights, white-box; arguments as for :func:`challenge_from_run` and :func:`audit`.

    Everything goes to ``out``, by default ``audit`` inside the run folder; the record then also stands beside the
    run's other figures as ``audit.json``. An audit that was stopped goes on, and one with a larger budget keeps the
    attacks that both have.

    Raises:
        ValueError: a finished audit of the same weights with a larger budget or more images lies there already, or one
            of other images than ``data``.
        SealBrokenError: the challenge of an earlier audit was altered.
        FolderBusyError: another process audits into the same folder.
    """
    if isinstance(budget, str):
        check_budget_name(budget)  # before the challenge is written, which takes its time
    run = load_run(run_folder, device=attack_device(device), model=model)
    target = run.folder / AUDIT_FOLDER if out is None else Path(out)
    target.mkdir(parents=True, exist_ok=True)
    with alone_auditing(target):
        about = _origin(run, limit, seed)
        _refuse_to_weaken(target, about, budget if isinstance(budget, str) else budget.name)
        folder = target / CHALLENGE_FOLDER
        if folder.is_dir() and _same_origin(Challenge(folder).manifest.get("about"), about):
            if data is not None:
                _refuse_other_images(folder, data, limit, seed)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            if observer is not None:
                observer.preparing(f"writing the challenge to {folder}")
            _write(run, folder, True, limit, data, data_root, seed)
        record = audit_into(
            target,
            folder,
            budget=budget,
            device=device,
            identity=identity,
            calibration_cache=calibration_cache,
            seed=seed,
            compiled=compiled,
            observer=observer,
        )
    if out is None:
        write_json_atomically(run.folder / AUDIT_FILE, record)
    return record


def _write(
    run: TrainedRun,
    target: Path,
    white_box: bool,
    limit: int | None,
    data: ImageData | None,
    data_root: str | os.PathLike[str] | None,
    seed: int,
) -> Path:
    data = _data_of(run, data_root) if data is None else data
    if data.image_shape != run.image_shape or data.class_names != run.class_names:
        raise ValueError(
            f"the run in {run.folder} was trained on images {run.image_shape} of {len(run.class_names)} classes, "
            f"the data set {data.name!r} has {data.image_shape} and {len(data.class_names)} classes, or other names"
        )
    learned, _ = split_validation(data.train, run.config.data.validation_fraction, run.config.train.seed)
    attacker, test, members = data.train, data.test, learned
    if limit is not None:
        attacker, test, members = (each.limit(limit, seed) for each in (attacker, test, members))
    candidates = min(len(members), len(test), _MOST_CANDIDATES)
    enough = candidates >= _LEAST_CANDIDATES
    recorded = _recorded_accuracy(run)
    if recorded is not None:
        _check_accuracy(run, test, recorded, seed)
    return write_challenge(
        target,
        client=run.model.client,
        stack=run.stack,
        server=run.model.server,
        attacker=attacker,
        test=test,
        white_box=white_box,
        accuracy=recorded,
        about={**_origin(run, limit, seed), "data": data.name, "data_source": data.source},
        members=members.limit(candidates, seed) if enough else None,
        non_members=test.limit(candidates, seed) if enough else None,
        seed=seed,
    )


def _recorded_accuracy(run: TrainedRun) -> float | None:
    """The test accuracy in ``run.json``; None while the run is not finished."""
    folder = RunFolder(run.folder)
    try:
        finished = folder.result()
        return None if finished is None else float(finished["test"]["accuracy"])
    except ConfigError as error:
        raise ValueError(
            f"{folder.result_file} is damaged or incomplete: delete it and call `attention-cem train --resume "
            f"{run.folder}`, which writes it anew"
        ) from error


def _data_of(run: TrainedRun, root: str | os.PathLike[str] | None) -> ImageData:
    settings = run.config.data
    return load_data(
        settings.name,
        settings.root if root is None else root,
        limit=settings.limit,
        test_limit=settings.test_limit,
        seed=run.config.train.seed,
        **settings.options,
    )


def _check_accuracy(run: TrainedRun, test: ImageSet, recorded: float, seed: int) -> None:
    """Other images or weights than the run's would give a challenge that says nothing about the run."""
    previous = run.stack.generator
    run.stack.generator = generator_for("challenge/accuracy", seed)
    try:
        found = released_accuracy(run.model.client, run.stack, run.model.server, test)
    finally:
        run.stack.generator = previous
    # Noise and rounding move single answers; the share is shrunk so that 100 % of few images has a spread too.
    share = (found * len(test) + 2) / (len(test) + 4)
    allowed = 0.02 + 5 * (share * (1 - share) / len(test)) ** 0.5
    if abs(found - recorded) > allowed:
        raise ValueError(
            f"the run in {run.folder} recorded a test accuracy of {recorded:.2%}, on these {len(test)} images it is "
            f"{found:.2%}: the data are not those of the run"
        )


def _origin(run: TrainedRun, limit: int | None, seed: int) -> dict[str, Any]:
    return {
        "run": run.folder.resolve().name,
        "checkpoint_sha256": str(run.facts["content_sha256"]),
        "epoch": int(run.facts["best_epoch"]),
        "run_finished": _recorded_accuracy(run) is not None,
        "limit": limit,
        "seed": seed,
    }


def _same_origin(found: Any, expected: Mapping[str, Any]) -> bool:
    return isinstance(found, Mapping) and all(found.get(key) == expected[key] for key in _ORIGIN)


def _refuse_other_images(folder: Path, data: ImageData, limit: int | None, seed: int) -> None:
    """The figures would be those of the images that the challenge was written from."""
    challenge = Challenge(folder)
    answers = Answers(folder, str(challenge.manifest.get("answers_sha256")))
    attacker, test = (each if limit is None else each.limit(limit, seed) for each in (data.train, data.test))
    pairs = (
        (challenge.attacker_images().images, attacker.images),
        (answers.images(), test.images),
        (answers.labels(), test.labels),
    )
    if not all(torch.equal(there, given.cpu()) for there, given in pairs):
        raise ValueError(
            f"{folder} was written from other images than the data set {data.name!r} handed over; audit these into "
            "another folder, or delete this one"
        )


def _refuse_to_weaken(folder: Path, about: Mapping[str, Any], budget: str) -> None:
    path = folder / AUDIT_FILE
    if not path.is_file():
        return
    try:
        there = read_json(path)
    except SealBrokenError as error:
        raise SealBrokenError(f"{error}; delete it and call again") from error
    origin = there.get("about")
    if not isinstance(origin, Mapping) or origin.get("checkpoint_sha256") != about["checkpoint_sha256"]:
        return
    had, limit = origin.get("limit"), about["limit"]
    fewer = limit is not None and (had is None or limit < had)
    known = there.get("budget") in BUDGETS and budget in BUDGETS
    if fewer or (known and BUDGETS.index(budget) < BUDGETS.index(there["budget"])):
        images = "all images" if had is None else f"at most {had} images"
        raise ValueError(
            f"{path} is a finished {there.get('budget')} audit of the same weights on {images}; a weaker one does not "
            "replace it. Name another folder, or delete this one"
        )
