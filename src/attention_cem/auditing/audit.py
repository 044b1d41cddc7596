"""The audit: every attack of a budget, its receipt, the bounds beside it, one record.

``audit.json``, version 1. Every figure's definition stands in the file itself, under ``definitions``.

=================  ====================================================================================================
headline           worst case: ``attack``, ``mse``, ``ci95``, ``psnr``, ``ssim``, ``images``, ``compared_mse``,
                   ``status``, ``note``
accuracy           of the server on released features, or null
attacks            list of ``name``, ``mse``, ``ci95``, ``psnr``, ``ssim``, ``status``, ``images``, ``compared_mse``,
                   ``identity``, and ``receipt``: ``converged``, ``reason``, ``train_test_gap``, ``calibrated``,
                   ``calibration``, ``curve`` {``effort``, ``epoch``, ``mse``}, ``train_mse``, ``validation_mse``,
                   ``epochs``, ``parameters``, ``seconds``, ``kept_start``
bounds             ``available``; if so ``theorem2_leakage``, ``information_upper_bound``, ``information_upper_end``,
                   ``relative_mse_floor``, ``mixture_components``, ``dfil``, ``dfil_mse_floor``, ``assumptions``;
                   else ``reason``
definitions        one sentence each
settled            ``verdict``, ``reason``, ``effort``, ``best_mse``: validation MSE over attack effort
short_attack       what a short attack alone would have reported, or null
membership         by attack ``auc``, ``tpr_at_1_percent_fpr``, ``candidates``; or null
floor_mse          MSE of one who sees nothing; ``floor_waves``: the same by the waves it is in
warnings           list of sentences
format, version    ``attention-cem/audit``, 1
budget, seed, threat_model, defence, about, challenge_sha256, device, versions: where the figures come from
=================  ====================================================================================================
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
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
from attention_cem.auditing.effort import effort_verdict
from attention_cem.auditing.grids import write_grid
from attention_cem.auditing.observer import AuditObserver
from attention_cem.auditing.scores import DEFINITIONS, score
from attention_cem.auditing.verdicts import (
    PASSED,
    attack_entries,
    attack_entry,
    beaten_by_baseline,
    headline,
    short_attack,
    status_of,
)
from attention_cem.training.folder_lock import alone_in
from attention_cem.versions import program_versions

AUDIT_FORMAT = "attention-cem/audit"
AUDIT_VERSION = 1
AUDIT_FILE = "audit.json"

_DEFINITIONS = {
    **DEFINITIONS,
    "headline": "worst case: the lowest MSE over attacks with a passing receipt; one that rebuilt fewer test images "
    "than others is compared on the images that all of them rebuilt (compared_mse); its figures are over the images "
    "that its attack rebuilt (images); an under-trained attack that does better still takes its place and is marked, "
    "and so is a headline without one passing attack that rebuilds unseen images; a miscalibrated attack never counts, "
    "nor one that kept its start",
    "status": "passed: converged and calibrated; under-trained: not so, the true worst case may be lower; "
    "kept its start: refining another attack's result found nothing, so it is no evidence beyond that attack; "
    "miscalibrated: beats the mean image on a constant client, so its figures mean nothing",
    "converged": "more effort would not change the attack's validation MSE by more than 2 %, found by training on "
    "from a restarted learning rate (GAN and searches: by the last quarter of their steps), and no untrained baseline "
    "does better",
    "calibrated": "the same attack, trained for 50 epochs at most, on an identity-like client reaches 30 dB PSNR "
    "(baselines: beats the mean image), and on a constant client comes within 10 % of the mean image without beating "
    "it by more than 2 %",
    "train_test_gap": "MSE on the test images minus MSE on images the attack was fitted to",
    "floor_mse": "MSE on the test images of the mean of the attacker's images: what one who sees nothing gets",
    "floor_waves": "the same by waves: of each band the share of the floor is what stays hidden",
    "settled": "not settled: the second half of the attack effort still lowered the best validation MSE by more than "
    "2 %; settled can be said by a thorough budget only, one of whose inverters has a passing receipt",
    "effort": "image visits × parameters of the inverter, summed over the inverter attacks, weakest first",
    "accuracy": "share of test images whose label the server predicts right from the released features",
    "membership": "AUC and true-positive rate at 1 % false positives, on candidates whose membership the attacker "
    "does not know; 0.5 and 0.01 are chance; of few candidates chance finds more: with n who are no members, of whom "
    "n // 100 may be wrongly accused, (n // 100 + 1) / (n + 1)",
    "identity": identities.DEFINITION,
}


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
        extra["scale"] = "origin and unit"  # and so are those from before features far from zero were moved
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

    record = _record(challenge, spent, finished, bounds, membership, seed)
    record["floor_waves"] = mean_image_waves(challenge.attacker_images(), images)
    record["floor_mse"] = sum(record["floor_waves"].values())
    record["device"] = str(place)
    record["warnings"] = [spent.note] * bool(spent.note) + _warnings(challenge, record)
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


def _record(
    challenge: Challenge,
    budget: Budget,
    finished: list[FinishedAttack],
    bounds: Mapping[str, Any],
    membership: dict[str, Any] | None,
    seed: int,
) -> dict[str, Any]:
    entries = attack_entries(finished)
    kinds = dict(budget.attacks)
    rebuilding = [name for name, attack in kinds.items() if attack.rebuilds_unseen]
    worst = headline(entries, rebuilding)
    trained = [each for each in finished if kinds[each.name].kind == "inverter"]
    verdict = effort_verdict(
        [each.receipt.curve for each in trained],
        may_settle=budget.may_settle,
        passing=any(status_of(each) == PASSED for each in trained),
    )
    return {
        "format": AUDIT_FORMAT,
        "version": AUDIT_VERSION,
        "headline": worst,
        "accuracy": challenge.manifest.get("accuracy"),
        "attacks": entries,
        "bounds": dict(bounds),
        "definitions": _DEFINITIONS,
        "settled": asdict(verdict),
        "short_attack": short_attack(entries, rebuilding, worst),
        "membership": membership,
        "budget": budget.name,
        "threat_model": challenge.manifest["threat_model"],
        "defence": challenge.manifest["defence"],
        "about": challenge.manifest.get("about"),
        "challenge_sha256": challenge.id,
        "seed": seed,
        "versions": program_versions(),
    }


def _warnings(challenge: Challenge, record: Mapping[str, Any]) -> list[str]:
    told = []
    owned = challenge.manifest.get("test_images_attacker_owns") or 0
    if owned:
        told.append(f"{owned} of {challenge.num_test} test images are also among the attacker's: their MSE is too low")
    about = challenge.manifest.get("about") or {}
    if about.get("run_finished") is False:
        told.append(f"the run is not finished: these are the weights of epoch {about.get('epoch')}")
    worst = record["headline"]
    if worst is None:
        told.append("no attack is calibrated: there is no headline")
    elif worst["status"] != "passed":
        told.append(f"headline: {worst['note']}")
    told += [f"{entry['name']}: {entry['status']}" for entry in record["attacks"] if entry["status"] != "passed"]
    if record["settled"]["verdict"] == "not settled":
        told.append(f"not settled: {record['settled']['reason']}")
    if record["short_attack"] is not None and record["short_attack"]["overrates"]:
        told.append(record["short_attack"]["text"])
    return told


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
