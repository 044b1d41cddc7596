"""The record of an audit: what stands in it, and what every figure means.

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

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from attention_cem.attacks import Challenge, Receipt
from attention_cem.attacks.receipts import SHORT_OF_IMAGES
from attention_cem.auditing import identity as identities
from attention_cem.auditing.audit_files import FinishedAttack
from attention_cem.auditing.budgets import Budget
from attention_cem.auditing.effort import effort_verdict
from attention_cem.auditing.scores import DEFINITIONS as SCORE_DEFINITIONS
from attention_cem.auditing.verdicts import PASSED, attack_entries, headline, short_attack, status_of
from attention_cem.versions import program_versions

AUDIT_FORMAT = "attention-cem/audit"
AUDIT_VERSION = 1
AUDIT_FILE = "audit.json"

DEFINITIONS = {
    **SCORE_DEFINITIONS,
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
    "calibrated": "the same attack, its inverter trained for 50 epochs at most, on an identity-like client reaches "
    "30 dB PSNR (baselines: beats the mean image), and on a constant client comes within 10 % of the mean image "
    "without beating it by more than 2 %",
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


def record_of(
    challenge: Challenge,
    budget: Budget,
    finished: Sequence[FinishedAttack],
    bounds: Mapping[str, Any],
    membership: dict[str, Any] | None,
    seed: int,
) -> dict[str, Any]:
    """All that the attacks, the bounds and the challenge say by themselves."""
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
        "definitions": DEFINITIONS,
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


def warnings_about(challenge: Challenge, record: Mapping[str, Any]) -> list[str]:
    """What a reader of the record must know first."""
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
    told += _by_heart(record)
    told += [f"{entry['name']}: {entry['status']}" for entry in record["attacks"] if entry["status"] != "passed"]
    if record["settled"]["verdict"] == "not settled":
        told.append(f"not settled: {record['settled']['reason']}")
    if record["short_attack"] is not None and record["short_attack"]["overrates"]:
        told.append(record["short_attack"]["text"])
    return told


def _by_heart(record: Mapping[str, Any]) -> list[str]:
    """Said of the worst attack where more images, not more training, would find more."""
    worst = record["headline"]
    told = []
    for entry in record["attacks"]:
        share = Receipt.from_plain(entry["receipt"]).by_heart
        if worst is not None and entry["name"] == worst["attack"] and share > SHORT_OF_IMAGES:
            told.append(
                f"{entry['name']}: its MSE is {100 * share:.0f} % lower on the images it was trained on: it learned "
                "them by heart, and whoever has more images finds more"
            )
    return told
