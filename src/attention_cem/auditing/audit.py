"""The audit: every attack of a budget, its receipt, the bounds beside it, one record."""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention_cem.attacks import Attack, Challenge, Progress, membership_attack
from attention_cem.attacks.challenge import attack_device
from attention_cem.attacks.membership import roc_auc, tpr_at_fpr
from attention_cem.attacks.sealed_folder import read_json, write_json_atomically
from attention_cem.auditing import identity as identities
from attention_cem.auditing.audit_files import SAMPLES, FinishedAttack, fingerprint, load_attack, save_attack
from attention_cem.auditing.bounds import bounds_of
from attention_cem.auditing.budgets import Budget, named_budget
from attention_cem.auditing.calibration import Calibration, calibrate, mean_image_waves
from attention_cem.auditing.challenge_files import Answers
from attention_cem.auditing.grids import write_grid
from attention_cem.auditing.observer import AuditObserver
from attention_cem.auditing.record import AUDIT_FILE, AUDIT_VERSION, record_of, warnings_about
from attention_cem.auditing.scores import score
from attention_cem.auditing.verdicts import attack_entry, beaten_by_baseline
from attention_cem.training.folder_lock import alone_in


def audit(
    challenge_folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    budget: str | Budget = "standard",
    device: torch.device | str | None = None,
    identity: bool = False,
    calibration_cache: str | os.PathLike[str] | None = None,
    seed: int = 0,
    compiled: bool = False,
    observer: AuditObserver | None = None,
) -> dict[str, Any]:
    """Attack a challenge with a whole budget and write ``audit.json`` and pictures to ``out``.

    Finished attacks are kept in ``out/attacks``; an audit that was killed goes on with the first unfinished one.

    Args:
        challenge_folder: written by ``write_challenge``, with its answers.
        out: folder of the record; made if need be.
        budget: ``quick``, ``screening``, ``compact``, ``standard``, ``thorough`` or a :class:`Budget`.
        device: where to attack; the GPU if there is one.
        identity: also report how often the class (person) of a reconstruction is recognised.
        calibration_cache: folder shared by audits with the same data; by default inside ``out``.
        seed: of everything random.
        compiled: compile the inverters of a named budget on a CUDA device: the same attacks, sooner done where there
            are many.
        observer: who watches.

    Returns:
        The record, as written to ``out/audit.json``.

    Raises:
        ValueError: ``out`` lies in the challenge.
        SealBrokenError: the challenge or its answers are incomplete or altered.
        FolderBusyError: another process audits into ``out``.
    """
    folder = Path(out)
    if folder.resolve().is_relative_to(Path(challenge_folder).resolve()):
        raise ValueError(f"{folder} lies in {challenge_folder}, which is sealed; name a folder outside of it")
    folder.mkdir(parents=True, exist_ok=True)
    with alone_auditing(folder):
        return audit_into(
            folder,
            challenge_folder,
            budget=budget,
            device=device,
            identity=identity,
            calibration_cache=calibration_cache,
            seed=seed,
            compiled=compiled,
            observer=observer,
        )


def alone_auditing(folder: Path) -> AbstractContextManager[None]:
    """Keeps other audits out of the folder inside the block: they would take each other's figures for their own."""
    busy = "another process audits into {folder}; wait for it, stop it, or choose another folder"
    return alone_in(folder, lock="audit.lock", busy=busy)


def audit_into(
    folder: Path,
    challenge_folder: str | os.PathLike[str],
    *,
    budget: str | Budget,
    device: torch.device | str | None,
    identity: bool,
    calibration_cache: str | os.PathLike[str] | None,
    seed: int,
    compiled: bool,
    observer: AuditObserver | None,
) -> dict[str, Any]:
    """`audit`, for who holds the lock of the folder, which exists."""
    challenge = Challenge(challenge_folder)
    answers = Answers(challenge_folder, str(challenge.manifest.get("answers_sha256")))
    spent = named_budget(budget, challenge, compiled=compiled) if isinstance(budget, str) else budget
    answers.check(challenge, membership=bool(spent.membership_epochs))
    place = attack_device(device)
    cache = Path(calibration_cache) if calibration_cache is not None else folder / "calibration"
    images = answers.images()
    watcher = observer or AuditObserver()
    judge = None
    if identity:
        watcher.preparing("training the classifier that judges identities")
        judge = identities.train_identity_judge(challenge.attacker_images(), device=place, seed=seed)
    watcher.started([name for name, _ in spent.attacks], str(place))
    desk = _Desk(challenge, images, answers.labels(), judge, place, spent, cache, seed, watcher.progress)
    extra: dict[str, Any] = {
        "version": AUDIT_VERSION,
        "seed": seed,
        "identity": identity,
        "images": spent.calibration_images,
    }
    if challenge.test_draws > 1:
        extra["releases"] = challenge.test_draws  # attacks kept from before these were read together are run again
    if challenge.scale is not None:
        extra["scale"] = "origin, units and mixing"  # and so are those from before what is loud was made quieter
    made_from: dict[str, str] = {}
    for name, attack in spent.attacks:
        start = getattr(attack, "start_from", None)  # what it was made from, too
        made_from[name] = fingerprint(challenge, attack, extra | ({"start": made_from.get(start)} if start else {}))
    finished: list[FinishedAttack] = []
    for name, attack in spent.attacks:
        done = load_attack(folder / "attacks", name, made_from[name])
        kept = done is not None
        if done is None:
            done = desk.finish(name, attack, finished)
            save_attack(folder / "attacks", made_from[name], done)
        finished.append(done)
        if done.receipt.calibrated is not None:
            watcher.attack_done(attack_entry(done), kept)
    bounds = _bounds(challenge, images, place, spent, seed, watcher)
    membership = _membership(challenge, answers, place, spent, seed)
    for number, (name, attack) in enumerate(spent.attacks):
        if finished[number].receipt.calibrated is None:  # another audit was at it; now there is nothing else to do
            watcher.preparing(f"waiting for another audit, which calibrates {name}")
            finished[number] = desk.with_calibration(finished[number], attack)
            save_attack(folder / "attacks", made_from[name], finished[number])
            watcher.attack_done(attack_entry(finished[number]), False)
    finished = beaten_by_baseline(finished, dict(spent.attacks))

    record = record_of(challenge, spent, finished, bounds, membership, seed)
    record["floor_waves"] = mean_image_waves(challenge.attacker_images(), images)
    record["floor_mse"] = sum(record["floor_waves"].values())
    record["device"] = str(place)
    record["warnings"] = [spent.note] * bool(spent.note) + warnings_about(challenge, record)
    shown = {each.name: each.samples for each in finished if len(each.samples)}
    for name, samples in shown.items():
        write_grid(folder / f"reconstructions_{name}.png", [images[:SAMPLES], samples], ["true images", name])
    write_grid(folder / "reconstructions.png", [images[:SAMPLES], *shown.values()], ["true images", *shown])
    write_json_atomically(folder / AUDIT_FILE, record)
    return read_json(folder / AUDIT_FILE)


@dataclass(frozen=True, eq=False)
class _Desk:
    """Where attacks are run, calibrated and scored. It alone holds both the challenge and the answers."""

    challenge: Challenge
    images: Tensor
    labels: Tensor
    judge: identities.IdentityJudge | None
    device: torch.device
    budget: Budget
    cache: Path
    seed: int
    progress: Progress

    def finish(self, name: str, attack: Attack, earlier: list[FinishedAttack]) -> FinishedAttack:
        """Calibrate one attack, run it, score it once; not calibrated where another audit is at it."""
        calibration = None
        # Calibrated first: its outcome is stored at once, so that a stop during the attack does not cost it again.
        with suppress(BlockingIOError):
            calibration = self._calibration(name, attack, patience=0.0)
        starts = {each.name: each.as_start() for each in earlier}
        result = attack.run(
            self.challenge, device=self.device, seed=self.seed, progress=self._shown(name), starts=starts
        )
        images = result.rebuilt_of(self.images)
        scores = score(result.reconstructions, images, self.device)
        matched = None
        if self.judge is not None:
            matched = identities.identity_match(
                self.judge, result.reconstructions, images, result.rebuilt_of(self.labels), self.device
            )
        receipt = result.receipt.with_scores(float(scores.mse.mean()))
        done = FinishedAttack.of(name, result, scores, receipt, matched)
        return done if calibration is None else _calibrated(done, calibration)

    def with_calibration(self, done: FinishedAttack, attack: Attack) -> FinishedAttack:
        """A finished attack with its calibration, once the audit that is at it is done."""
        return _calibrated(done, self._calibration(done.name, attack))

    def _calibration(self, name: str, attack: Attack, patience: float = math.inf) -> Calibration:
        return calibrate(
            attack,
            self.challenge,
            device=self.device,
            most_images=self.budget.calibration_images,
            cache=self.cache,
            progress=self._shown(f"{name}: calibration"),
            patience=patience,
        )

    def _shown(self, name: str) -> Progress:
        return lambda what, done, total, value: self.progress(name, done, total, value)


def _calibrated(done: FinishedAttack, calibration: Calibration) -> FinishedAttack:
    return replace(done, receipt=replace(done.receipt, calibrated=calibration.passed, calibration=asdict(calibration)))


def _bounds(
    challenge: Challenge, images: Tensor, device: torch.device, budget: Budget, seed: int, watcher: AuditObserver
) -> dict[str, Any]:
    if not budget.bound_images:
        return {"available": False, "reason": f"the {budget.name} budget computes no bounds", "assumptions": {}}
    watcher.progress("bounds", 0, 1, float("nan"))
    bounds = bounds_of(
        challenge,
        images,
        device=device,
        most_images=budget.bound_images,
        fisher_images=budget.fisher_images,
        seed=seed,
    )
    watcher.progress("bounds", 1, 1, float("nan"))
    return bounds


def _membership(
    challenge: Challenge, answers: Answers, device: torch.device, budget: Budget, seed: int
) -> dict[str, Any] | None:
    result = None
    if budget.membership_epochs:
        result = membership_attack(challenge, device=device, seed=seed, epochs=budget.membership_epochs)
    if result is None:
        return None
    truth = answers.membership()[result.positions]
    return {
        name: {
            "auc": roc_auc(scores, truth),
            "tpr_at_1_percent_fpr": tpr_at_fpr(scores, truth, 0.01),
            "candidates": len(truth),
            **result.details.get(name, {}),
        }
        for name, scores in result.scores.items()
    }
