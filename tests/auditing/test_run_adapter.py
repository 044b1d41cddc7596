from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attention_cem.attacks import Challenge, ClassMeanAttack, InverterAttack, SealBrokenError, TrainingPlan
from attention_cem.auditing import Answers, AuditObserver, Budget, audit_run, challenge_from_run, named_budget
from attention_cem.data import ImageData, load_data, split_validation, to_float
from attention_cem.splitting import SplitModel
from attention_cem.training import TrainingInterrupted, load_run, train
from tests.training.helpers import tiny_config
from tests.training.test_resume import StopAt

ONE = Budget("one", (("class_mean", ClassMeanAttack()),), bound_images=40, fisher_images=2, membership_epochs=1)
ARL = {
    "defence__adversarial_inverter__weight": 0.3,
    "defence__adversarial_inverter__width": 4,
    "defence__adversarial_inverter__blocks": 0,
}


class Recorder(AuditObserver):
    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def preparing(self, what: str) -> None:
        self.told.append(("preparing", what))

    def started(self, attacks: Sequence[str], device: str) -> None:
        self.told.append(("started", list(attacks)))

    def attack_done(self, row: Mapping[str, Any], kept: bool) -> None:
        self.told.append((row["name"], kept))


def data_of_the_run() -> ImageData:
    return load_data("synthetic", seed=0, size=16, num_classes=4, num_train=80, num_test=40)


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run that no test changes."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(tiny_config(folder, train__epochs=2, **ARL))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A trained run of the test's own."""
    train(tiny_config(tmp_path / "run", train__epochs=1))
    return tmp_path / "run"


def test_challenge_from_run__attacker_owns_all_but_the_test_images(shared_run: Path, tmp_path: Path) -> None:
    data = data_of_the_run()
    challenge = Challenge(challenge_from_run(shared_run, tmp_path / "c"))
    assert torch.equal(challenge.attacker_images().images, data.train.images)
    answers = Answers(challenge.folder, challenge.manifest["answers_sha256"])
    assert torch.equal(answers.images(), data.test.images) and torch.equal(answers.labels(), data.test.labels)
    assert challenge.manifest["test_images_attacker_owns"] == 0


def test_challenge_from_run__features_are_those_of_the_runs_client_and_stack(shared_run: Path, tmp_path: Path) -> None:
    challenge = Challenge(challenge_from_run(shared_run, tmp_path / "c"))
    trained = load_run(shared_run)
    x = to_float(data_of_the_run().test.images)
    with torch.no_grad():
        clean = trained.model.client(x)
    torch.testing.assert_close(challenge.client()(x), clean)
    assert challenge.stack().describe() == trained.stack.describe()
    assert float((challenge.test_features()[0] - clean).std()) == pytest.approx(0.05, rel=0.1)


def test_challenge_from_run__members_are_images_the_victim_was_trained_on(shared_run: Path, tmp_path: Path) -> None:
    challenge = Challenge(challenge_from_run(shared_run, tmp_path / "c"))
    candidates = challenge.membership()
    is_member = Answers(challenge.folder, challenge.manifest["answers_sha256"]).membership()
    assert candidates is not None and candidates.logits is not None
    assert len(is_member) == 80 and int(is_member.sum()) == 40
    learned, _ = split_validation(data_of_the_run().train, 0.2, 0)
    client = challenge.client()
    clean = {True: client(to_float(learned.images)), False: client(to_float(data_of_the_run().test.images))}
    for member in (True, False):
        released = candidates.features[is_member == member]
        distance = torch.cdist(released.flatten(1), clean[member].flatten(1)).min(1).values
        # Noise alone separates a release from its image: about σ·√D, and never much more.
        assert float(distance.max()) < 1.5 * 0.05 * released[0].numel() ** 0.5


def test_challenge_from_run__accuracy_is_the_one_the_run_recorded(shared_run: Path, tmp_path: Path) -> None:
    recorded = json.loads((shared_run / "run.json").read_text())["test"]["accuracy"]
    challenge = Challenge(challenge_from_run(shared_run, tmp_path / "c", limit=12))
    assert challenge.manifest["accuracy"] == recorded
    assert challenge.num_test == 12 and len(challenge.attacker_images()) == 12
    assert challenge.manifest["about"]["limit"] == 12 and challenge.manifest["about"]["data"] == "synthetic"


def test_challenge_from_run__black_box_keeps_client_and_adversary_back(shared_run: Path, tmp_path: Path) -> None:
    challenge = Challenge(challenge_from_run(shared_run, tmp_path / "c", white_box=False))
    assert not challenge.white_box and challenge.defender_adversary() is None
    assert not {"client.safetensors", "defence.safetensors"} & set(challenge.manifest["files"])


def test_challenge_from_run__hands_over_the_adversary_the_defender_trained(shared_run: Path, tmp_path: Path) -> None:
    challenge = Challenge(challenge_from_run(shared_run, tmp_path / "c"))
    adversary = challenge.defender_adversary()
    assert adversary is not None
    stored = {name: value for name, value in load_run(shared_run).stack.state_dict().items() if ".inverter." in name}
    assert stored
    for name, value in adversary.inverter.state_dict().items():
        assert torch.equal(value, next(each for key, each in stored.items() if key.endswith(f".inverter.{name}")))
    tuned = dict(named_budget("thorough", challenge).attacks)["inverter_from_adversary"]
    assert isinstance(tuned, InverterAttack) and tuned.start == "adversary" and tuned.plan.epochs >= 100
    short = replace(tuned, plan=TrainingPlan(epochs=1, lr=1e-9, probe=False))
    fine_tuned = short.run(challenge, device=torch.device("cpu"))
    with torch.no_grad():
        untouched = adversary.inverter(challenge.test_features()[0])
    # With no step size to speak of, the attack answers what the adversary answers, but for its batch statistics.
    assert float((fine_tuned.reconstructions - untouched).abs().mean()) < 0.1


def test_challenge_from_run__data_that_are_not_the_runs_are_refused(shared_run: Path, tmp_path: Path) -> None:
    trained = load_run(shared_run)
    other = load_data("synthetic", size=16, num_classes=3, num_train=80, num_test=40)
    with pytest.raises(ValueError, match="4 classes.*3 classes"):
        challenge_from_run(shared_run, tmp_path / "a", data=other)
    # The same images under labels the model always gets right: only the accuracy gives it away.
    data = data_of_the_run()
    with torch.no_grad():
        answers = trained.model(to_float(data.test.images)).argmax(1)
    flattering = replace(data, test=replace(data.test, labels=answers))
    recorded = json.loads((shared_run / "run.json").read_text())["test"]["accuracy"]
    assert recorded < 0.6, "the test needs a run that has not learned much"
    with pytest.raises(ValueError, match="recorded a test accuracy.*the data are not those of the run"):
        challenge_from_run(shared_run, tmp_path / "b", data=flattering)
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists()


def test_audit_run__record_lies_in_the_run_folder(run: Path) -> None:
    record = audit_run(run, budget=ONE, device="cpu")
    assert json.loads((run / "audit.json").read_text()) == record
    assert json.loads((run / "audit" / "audit.json").read_text()) == record
    assert record["accuracy"] == json.loads((run / "run.json").read_text())["test"]["accuracy"]
    assert record["about"]["run"] == "run" and (run / "audit" / "reconstructions.png").is_file()
    assert set(record["membership"]) == {"z", "loss", "outputs"}


def test_audit_run__another_folder_leaves_the_run_as_it_was(run: Path, tmp_path: Path) -> None:
    before = {path.name for path in run.iterdir()}
    audit_run(run, tmp_path / "out", budget=ONE, device="cpu")
    assert {path.name for path in run.iterdir()} == before and (tmp_path / "out" / "audit.json").is_file()


def test_audit_run__second_call_keeps_challenge_and_attacks(run: Path) -> None:
    first = audit_run(run, budget=ONE, device="cpu")
    watcher = Recorder()
    again = audit_run(run, budget=ONE, device="cpu", observer=watcher)
    assert watcher.told == [("started", ["class_mean"]), ("class_mean", True)] and again == first


def test_audit_run__new_weights_get_a_new_challenge(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(TrainingInterrupted):
        train(tiny_config(folder, train__epochs=4, train__lr=0.05), observer=StopAt(5))
    early = audit_run(folder, budget=ONE, device="cpu")
    assert any("not finished" in warning for warning in early["warnings"])
    train(tiny_config(folder, train__epochs=4, train__lr=0.05, run__resume=True))
    late = audit_run(folder, budget=ONE, device="cpu")
    assert late["challenge_sha256"] != early["challenge_sha256"]
    assert not any("not finished" in warning for warning in late["warnings"])


def test_audit_run__an_altered_challenge_is_refused(run: Path) -> None:
    audit_run(run, budget=ONE, device="cpu")
    path = run / "audit" / "challenge" / "test_features.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SealBrokenError, match=r"test_features\.safetensors has \d+ bytes"):
        audit_run(run, budget=ONE, device="cpu")


def test_audit_run__a_weaker_audit_does_not_replace_a_stronger_one(run: Path) -> None:
    audit_run(run, budget=replace(ONE, name="thorough"), device="cpu")
    before = (run / "audit.json").read_bytes()
    with pytest.raises(ValueError, match="finished thorough audit of the same weights on all images"):
        audit_run(run, budget=replace(ONE, name="quick"), device="cpu")
    with pytest.raises(ValueError, match="a weaker one does not replace it"):
        audit_run(run, budget=replace(ONE, name="thorough"), device="cpu", limit=20)
    assert (run / "audit.json").read_bytes() == before


def test_audit_run__other_images_are_not_answered_with_the_figures_of_the_first(run: Path) -> None:
    # broke: a second call with data= of other images returned the record of the first without a word
    data = data_of_the_run()
    first = audit_run(run, budget=ONE, device="cpu", data=data, limit=20)
    assert audit_run(run, budget=ONE, device="cpu", data=data, limit=20) == first
    other = replace(data, test=replace(data.test, images=255 - data.test.images))
    with pytest.raises(ValueError, match="other images than the data set 'synthetic'"):
        audit_run(run, budget=ONE, device="cpu", data=other, limit=20)


def test_audit_run__an_unknown_budget_is_refused_before_anything_is_written(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown budget 'fast'"):
        audit_run(run, tmp_path / "out", budget="fast", device="cpu")
    assert not (tmp_path / "out").exists()


class _Client(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 4, stride=4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).sigmoid()


def test_audit_run__takes_ones_own_model_and_images(tmp_path: Path) -> None:
    def halves() -> SplitModel:
        return SplitModel(_Client(), nn.Sequential(nn.Flatten(), nn.Linear(32, 4)))

    data = data_of_the_run()
    train(tiny_config(tmp_path / "run", train__epochs=1), data=data, model=halves())
    given: dict[str, Any] = {"data": data, "model": halves()}
    assert audit_run(tmp_path / "run", budget=ONE, device="cpu", **given)["headline"]["attack"] == "class_mean"
    with pytest.raises(ValueError, match="model of your own"):
        audit_run(tmp_path / "run", budget=ONE, device="cpu")
