from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torch import nn

from attention_cem.attacks import (
    Challenge,
    ClassMeanAttack,
    InverterAttack,
    NearestNeighbourAttack,
    OptimisationAttack,
    Receipt,
    RidgeAttack,
    SealBrokenError,
    TrainingPlan,
)
from attention_cem.auditing import AUDIT_FILE, AuditObserver, Budget, audit
from attention_cem.auditing.record import warnings_about
from attention_cem.reporting.sentences import in_chinese
from attention_cem.testing.hiding_client import train_hiding_client
from attention_cem.training.file_lock import locked
from attention_cem.training.folder_lock import FolderBusyError
from tests.attacks.helpers import blind_client, challenge_for, identity_client, noise, small_data

PLAN = TrainingPlan(epochs=1, batch_size=16, lr=3e-3)
TINY = Budget(
    "tiny",
    (
        ("class_mean", ClassMeanAttack()),
        ("nearest_neighbour", NearestNeighbourAttack()),
        ("inverter", InverterAttack(PLAN, width=8, blocks=0)),
        ("optimisation", OptimisationAttack(steps=40, images=10, tv_weights=(1e-4,))),
    ),
    bound_images=100,
    fisher_images=4,
    membership_epochs=2,
)


def test_audit__record_has_the_documented_keys_and_pictures(tmp_path: Path) -> None:
    data = small_data(train=100, test=20)
    server = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    challenge_for(
        tmp_path / "c", identity_client(), noise(0.1), data, server=server, members=data.train, non_members=data.test
    )
    record = audit(tmp_path / "c", tmp_path / "out", budget=TINY, device="cpu")
    assert json.loads((tmp_path / "out" / AUDIT_FILE).read_text()) == record
    assert {"headline", "accuracy", "attacks", "bounds", "definitions", "version", "settled"} <= set(record)
    assert {"attack", "mse", "ci95", "psnr", "ssim"} <= set(record["headline"])
    for entry in record["attacks"]:
        assert {"name", "mse", "ci95", "psnr", "ssim", "receipt"} <= set(entry)
        assert {"converged", "train_test_gap", "calibrated"} <= set(entry["receipt"])
        assert entry["ci95"][0] <= entry["mse"] <= entry["ci95"][1]
        assert Image.open(tmp_path / "out" / f"reconstructions_{entry['name']}.png").size[0] > 100
        assert sum(entry["waves"].values()) == pytest.approx(entry["mse"], rel=1e-4)
    assert record["headline"]["compared_mse"] == min(entry["compared_mse"] for entry in record["attacks"])
    assert sum(record["headline"]["waves"].values()) == pytest.approx(record["headline"]["mse"], rel=1e-4)
    assert record["floor_waves"].keys() == record["headline"]["waves"].keys()
    assert sum(record["floor_waves"].values()) == pytest.approx(record["floor_mse"])
    for key in ("theorem2_leakage", "information_upper_bound", "relative_mse_floor", "dfil"):
        assert isinstance(record["bounds"][key], float)
        assert record["bounds"]["assumptions"][key]
    assert set(record["membership"]) == {"z", "loss", "outputs"}
    # z of an identity-like client has Jacobian 1: dFIL is 1/σ² exactly.
    assert record["bounds"]["dfil"] == pytest.approx(100, rel=1e-4)


def test_audit__short_inverter_is_marked_under_trained_and_good_search_passes(tmp_path: Path) -> None:
    data = small_data(train=100, test=20)
    challenge_for(tmp_path / "c", identity_client(), noise(0.02), data)
    record = audit(tmp_path / "c", tmp_path / "out", budget=TINY, device="cpu")
    status = {entry["name"]: entry["status"] for entry in record["attacks"]}
    assert status["inverter"] == "under-trained"
    assert status["class_mean"] == "passed"
    assert record["headline"]["attack"] == "optimisation"
    assert record["settled"]["verdict"] in ("not settled", "not judged")


def test_audit__without_a_passing_rebuilding_attack_the_headline_says_so(tmp_path: Path) -> None:
    challenge_for(tmp_path / "c", blind_client(), noise(0.1), small_data(train=100, test=20))
    few = Budget("few", TINY.attacks[:3], bound_images=100, fisher_images=4)
    record = audit(tmp_path / "c", tmp_path / "out", budget=few, device="cpu")
    assert record["headline"]["status"] == "under-trained"
    assert "may be lower" in record["headline"]["note"]
    assert any("inverter: under-trained" in warning for warning in record["warnings"])
    assert record["headline"]["mse"] >= 0.98 * record["floor_mse"]


class Watching(AuditObserver):
    def __init__(self, see: Callable[[str, int, int, float], object]) -> None:
        self._see = see

    def progress(self, what: str, done: int, total: int, mse: float) -> None:
        self._see(what, done, total, mse)


class _StopError(Exception):
    pass


def test_audit__stopped_midway_resumes_with_finished_attacks_kept(tmp_path: Path) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=100, test=20))
    started: list[str] = []

    def stop_at_search(what: str, done: int, total: int, value: float) -> None:
        started.append(what.split(":")[0])
        if what.startswith("optimisation"):
            raise _StopError

    with pytest.raises(_StopError):
        audit(tmp_path / "c", tmp_path / "out", budget=TINY, device="cpu", observer=Watching(stop_at_search))
    assert not (tmp_path / "out" / AUDIT_FILE).exists()
    assert "inverter" in started
    before = (tmp_path / "out" / "attacks" / "inverter.json").read_bytes()
    resumed: list[str] = []
    record = audit(
        tmp_path / "c", tmp_path / "out", budget=TINY, device="cpu",
        observer=Watching(lambda what, *_: resumed.append(what.split(":")[0])),
    )  # fmt: skip
    assert set(resumed) == {"optimisation", "bounds"}
    assert (tmp_path / "out" / "attacks" / "inverter.json").read_bytes() == before
    whole = audit(tmp_path / "c", tmp_path / "fresh", budget=TINY, device="cpu")
    for entry, other in zip(record["attacks"], whole["attacks"], strict=True):
        assert entry["mse"] == other["mse"]


@pytest.mark.parametrize("waves", [5, "far", ["0-3"], {"0-3": "much"}, {"0-3": None}])
def test_audit__a_stored_attack_with_broken_figures_counts_as_none(tmp_path: Path, waves: object) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=60, test=20))
    one = Budget("one", (("class_mean", ClassMeanAttack()),), bound_images=60, fisher_images=2)
    whole = audit(tmp_path / "c", tmp_path / "out", budget=one, device="cpu")
    stored = tmp_path / "out" / "attacks" / "class_mean.json"
    good = stored.read_text()
    stored.write_text(json.dumps(json.loads(good) | {"waves": waves}))
    again = audit(tmp_path / "c", tmp_path / "out", budget=one, device="cpu")
    assert again["attacks"][0]["waves"] == whole["attacks"][0]["waves"]
    assert json.loads(stored.read_text())["waves"] == json.loads(good)["waves"]


_SCRIPT = """
import sys
from attention_cem.auditing import audit
from tests.auditing.test_audit import TINY, Watching
audit(sys.argv[1], sys.argv[2], budget=TINY, device="cpu", observer=Watching(lambda *state: print(*state, flush=True)))
"""


@pytest.mark.slow
def test_audit__killed_process_resumes(tmp_path: Path) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=100, test=20))
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path / "c"), str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", ".", os.environ.get("PYTHONPATH", "")])}
    victim = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    finished = tmp_path / "out" / "attacks" / "nearest_neighbour.json"
    deadline = time.monotonic() + 50
    while not finished.exists() and time.monotonic() < deadline and victim.poll() is None:
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert finished.exists() and not (tmp_path / "out" / AUDIT_FILE).exists()
    kept = finished.stat().st_mtime_ns
    seen: list[str] = []
    watching = Watching(lambda what, *_: seen.append(what))
    audit(tmp_path / "c", tmp_path / "out", budget=TINY, device="cpu", observer=watching)
    assert finished.stat().st_mtime_ns == kept
    assert not any(what.startswith(("class_mean", "nearest_neighbour")) for what in seen)


def test_audit__a_changed_challenge_or_setting_starts_afresh(tmp_path: Path) -> None:
    data = small_data(train=60, test=20)
    one = Budget("one", (("class_mean", ClassMeanAttack()),), bound_images=60, fisher_images=2)
    first = challenge_for(tmp_path / "a", identity_client(), noise(0.1), data)
    challenge_for(tmp_path / "b", identity_client(), noise(3.0), data)
    assert first.id
    low = audit(tmp_path / "a", tmp_path / "out", budget=one, device="cpu")["headline"]["mse"]
    high = audit(tmp_path / "b", tmp_path / "out", budget=one, device="cpu")["headline"]["mse"]
    assert high > low


def test_audit__audits_of_all_seeds_share_one_calibration_and_differ_in_their_attacks(tmp_path: Path) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=60, test=20))
    inverter = Budget("one", (("inverter", InverterAttack(PLAN, width=8, blocks=0)),), bound_images=60, fisher_images=2)
    records = [
        audit(
            tmp_path / "c", tmp_path / str(seed), budget=inverter, device="cpu", seed=seed, calibration_cache=tmp_path
        )
        for seed in (0, 1)
    ]
    first, second = (record["attacks"][0] for record in records)
    assert first["receipt"]["calibration"] == second["receipt"]["calibration"]
    assert len(list(tmp_path.glob("*.json"))) == 1
    assert first["mse"] != second["mse"]


def test_audit__while_another_calibrates_all_attacks_are_run_and_figures_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=60, test=20))
    attacks = (("first", InverterAttack(PLAN, width=8, blocks=0)), ("second", InverterAttack(PLAN, width=4, blocks=0)))
    both = Budget("both", attacks, bound_images=60, fisher_images=2)
    alone = audit(tmp_path / "c", tmp_path / "alone", budget=both, device="cpu")
    order: list[str] = []
    module = import_module("attention_cem.auditing.audit")
    really, run = module.calibrate, InverterAttack.run

    def calibrate(attack: InverterAttack, *arguments: Any, patience: float = math.inf, **more: Any) -> Any:
        order.append(f"calibrate {attack.width}, patience {patience}")
        if not patience and attack.width == 8:
            raise BlockingIOError
        return really(attack, *arguments, **more)

    def attack(self: InverterAttack, challenge: Challenge, **more: Any) -> Any:
        if challenge.folder == tmp_path / "c":
            order.append(f"attack {self.width}")
        return run(self, challenge, **more)

    monkeypatch.setattr(module, "calibrate", calibrate)
    monkeypatch.setattr(InverterAttack, "run", attack)
    rows: list[str] = []
    watcher = AuditObserver()
    watcher.attack_done = lambda row, kept: rows.append(row["name"])  # type: ignore[method-assign]
    beside = audit(tmp_path / "c", tmp_path / "beside", budget=both, device="cpu", observer=watcher)
    assert order == [
        "calibrate 8, patience 0.0",
        "attack 8",
        "calibrate 4, patience 0.0",
        "attack 4",
        "calibrate 8, patience inf",
    ]
    assert rows == ["second", "first"]  # told when its calibration is known
    assert beside["headline"] == alone["headline"]
    assert [each["receipt"]["calibration"] for each in beside["attacks"]] == [
        each["receipt"]["calibration"] for each in alone["attacks"]
    ]


def test_audit__stopped_before_its_calibration_is_known_keeps_the_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=60, test=20))
    one = Budget("one", (("inverter", InverterAttack(PLAN, width=8, blocks=0)),), bound_images=60, fisher_images=2)
    module = import_module("attention_cem.auditing.audit")

    def busy(*_: Any, patience: float = math.inf, **__: Any) -> Any:
        raise BlockingIOError if not patience else KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "calibrate", busy)
        with pytest.raises(KeyboardInterrupt):
            audit(tmp_path / "c", tmp_path / "out", budget=one, device="cpu")
    stored = tmp_path / "out" / "attacks" / "inverter.safetensors"
    before = stored.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(module._Desk, "finish", lambda *_: pytest.fail("the attack was run again"))
        record = audit(tmp_path / "c", tmp_path / "out", budget=one, device="cpu")
    assert record["attacks"][0]["receipt"]["calibrated"] is not None
    assert stored.read_bytes() == before


def test_audit__one_at_a_time_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=60, test=20))
    monkeypatch.setattr("attention_cem.training.folder_lock.locked", lambda path, patience: locked(path, 0.0))
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out" / "audit.lock"), pytest.raises(FolderBusyError, match="another process audits into"):
        audit(tmp_path / "c", tmp_path / "out", budget=TINY, device="cpu")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["audit.lock"]


def test_audit__what_was_refined_from_another_attack_is_not_kept(tmp_path: Path) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.02), small_data(train=60, test=20))

    def refined_from(epochs: int) -> Any:
        first = InverterAttack(replace(PLAN, epochs=epochs), width=8, blocks=0)
        then = OptimisationAttack(steps=4, images=10, start_from="inverter")
        budget = Budget("b", (("inverter", first), ("refined", then)), bound_images=0, membership_epochs=0)
        kept: dict[str, bool] = {}
        watcher = AuditObserver()
        watcher.attack_done = lambda row, was: kept.update({row["name"]: was})  # type: ignore[method-assign]
        audit(tmp_path / "c", tmp_path / "out", budget=budget, device="cpu", observer=watcher)
        return kept

    assert refined_from(1) == {"inverter": False, "refined": False}
    assert refined_from(1) == {"inverter": True, "refined": True}
    assert refined_from(2) == {"inverter": False, "refined": False}


def test_audit__one_test_image_has_a_record_without_bounds(tmp_path: Path) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=60, test=1))
    one = Budget("one", (("ridge", RidgeAttack()),), bound_images=60, fisher_images=0, membership_epochs=0)
    record = audit(tmp_path / "c", tmp_path / "out", budget=one, device="cpu")
    assert record["bounds"]["reason"] == "a bound needs two test images or more, there is one"


def test_audit__a_folder_in_the_challenge_is_refused_and_leaves_the_challenge_whole(tmp_path: Path) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=40, test=10))
    for out in (tmp_path / "c", tmp_path / "c" / "audit", tmp_path / "c" / "answers"):
        with pytest.raises(ValueError, match="is sealed; name a folder outside"):
            audit(tmp_path / "c", out, budget=TINY, device="cpu")
    Challenge(tmp_path / "c")


def test_audit__a_thorough_budget_whose_inverters_are_all_weak_settles_nothing(tmp_path: Path) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=60, test=10))
    weak = InverterAttack(TrainingPlan(epochs=2, lr=1e-9, probe=False), width=8, blocks=0)
    budget = Budget("own", (("weak", weak),), may_settle=True, bound_images=0, membership_epochs=0)
    record = audit(tmp_path / "c", tmp_path / "out", budget=budget, device="cpu")
    assert record["settled"]["verdict"] == "not judged" and record["headline"]["status"] == "under-trained"


def test_audit__of_very_few_candidates_both_kinds_are_to_be_told_apart(tmp_path: Path) -> None:
    """With this seed the first draw leaves members alone, and no ROC curve can be drawn."""
    data = small_data(train=40, test=4)
    sets = {"members": data.train, "non_members": data.test, "seed": 51}
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), data, **sets)
    candidates = challenge.membership()
    assert candidates is not None and candidates.known.tolist().count(-1) == 4
    one = Budget("one", (("ridge", RidgeAttack()),), bound_images=0, membership_epochs=2)
    record = audit(tmp_path / "c", tmp_path / "out", budget=one, device="cpu")
    assert 0 <= record["membership"]["z"]["auc"] <= 1


def test_audit__altered_challenge_or_answers_are_refused(tmp_path: Path) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=60, test=20))
    path = tmp_path / "c" / "answers" / "answers.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(SealBrokenError, match=r"answers\.safetensors"):
        audit(tmp_path / "c", tmp_path / "out", budget=TINY, device="cpu")


def test_audit__identity_match_is_reported_beside_chance(tmp_path: Path) -> None:
    challenge_for(tmp_path / "c", identity_client(), noise(0.02), small_data(train=100, test=20))
    one = Budget("one", TINY.attacks[-1:], bound_images=60, fisher_images=2)
    record = audit(tmp_path / "c", tmp_path / "out", budget=one, device="cpu", identity=True)
    match = record["attacks"][0]["identity"]
    assert match["chance"] == pytest.approx(0.25)
    assert match["on_true_images"] > 0.6 and match["on_reconstructions"] > 0.6


def test_audit__says_of_the_worst_attack_that_it_learned_its_images_by_heart(tmp_path: Path) -> None:
    """Such an attack has converged, and its receipt passes: more training shows nothing."""
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data())

    def warned(train_mse: float, *, parameters: int = 1000, worst: str = "inverter") -> list[str]:
        receipt = Receipt((), True, "", train_mse=train_mse, validation_mse=0.03, parameters=parameters)
        entries = [{"name": name, "status": "passed", "receipt": receipt.to_plain()} for name in ("inverter", "other")]
        record = {"attacks": entries, "settled": {"verdict": "settled"}, "short_attack": None}
        return warnings_about(challenge, {**record, "headline": {"attack": worst, "status": "passed"}})

    assert warned(0.02) == [
        "inverter: its MSE is 33 % lower on the images it was trained on: it learned them by heart, and whoever has "
        "more images finds more"
    ]
    assert warned(0.02, worst="other")[0].startswith("other: ") and in_chinese(warned(0.02)[0]) is not None
    assert warned(0.0275) == warned(0.031) == warned(0.0, parameters=0) == []


@pytest.mark.slow
def test_audit__a_client_that_hides_from_a_weak_adversary_is_caught(tmp_path: Path) -> None:
    """Trained so that a small inverter fails; invertible by construction. Quick overrates it, thorough does not."""
    data = small_data(train=300, test=40)
    hiding = train_hiding_client(data.train)
    challenge_for(tmp_path / "c", hiding.client, hiding.stack, data)

    weak = InverterAttack(TrainingPlan(epochs=2, batch_size=8, lr=3e-3), width=8, blocks=0)
    strong = InverterAttack(TrainingPlan(epochs=12, batch_size=8, lr=3e-3, weight_decay=0.0), width=32, blocks=0)
    tuned = InverterAttack(TrainingPlan(epochs=4, batch_size=8, lr=3e-3), width=8, blocks=0, start="adversary")
    search = OptimisationAttack(steps=120, tv_weights=(1e-3,))
    common: dict[str, Any] = {"bound_images": 100, "fisher_images": 2, "calibration_images": 100}
    quick = Budget("quick", (*TINY.attacks[:2], ("inverter_short", weak)), **common)
    thorough = Budget(
        "thorough",
        (*quick.attacks, ("inverter_from_adversary", tuned), ("inverter_wide", strong), ("optimisation", search)),
        may_settle=True,
        **common,
    )
    out = tmp_path / "out"
    fast = audit(tmp_path / "c", out, budget=quick, device="cpu")
    full = audit(tmp_path / "c", out, budget=thorough, device="cpu")
    assert fast["headline"]["mse"] > 5 * full["headline"]["mse"]
    assert full["headline"]["psnr"] > 30
    assert fast["headline"]["status"] == "under-trained" and fast["settled"]["verdict"] != "settled"
    assert full["short_attack"]["overrates"] and "quick audit overrates this client" in full["short_attack"]["text"]
    assert full["settled"]["verdict"] == "not settled"
    assert full["short_attack"]["text"] in full["warnings"]
    efforts, best = full["settled"]["effort"], full["settled"]["best_mse"]
    assert list(efforts) == sorted(efforts) and list(best) == sorted(best, reverse=True)
