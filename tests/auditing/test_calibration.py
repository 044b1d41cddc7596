import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from attention_cem.attacks import Challenge, ClassMeanAttack, RidgeAttack
from attention_cem.auditing import calibration, write_challenge
from attention_cem.auditing.calibration import Calibration, calibrate
from attention_cem.data import synthetic_images
from attention_cem.training.file_lock import locked
from tests.attacks.helpers import challenge_for, identity_client, noise, small_data


def test_calibrate__workers_that_start_together_do_the_work_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=40, test=10))
    begun: list[int] = []

    def slowly(*_: Any) -> Calibration:
        begun.append(1)
        time.sleep(0.3)
        return Calibration(40.0, 0.0001, 0.1, 0.1, True, False, "as expected on both clients")

    monkeypatch.setattr(calibration, "_outcome", slowly)
    found: list[Calibration] = []

    def work() -> None:
        found.append(
            calibrate(
                ClassMeanAttack(),
                challenge,
                device=torch.device("cpu"),
                most_images=40,
                cache=tmp_path / "shared",
                progress=lambda *_: None,
            )
        )

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(begun) == 1 and len(found) == 4 and len(set(found)) == 1


def test_calibrate__who_has_no_patience_does_not_wait_for_another(tmp_path: Path) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=40, test=10))
    options: dict[str, Any] = {"most_images": 40, "cache": tmp_path / "shared", "progress": lambda *_: None}

    def again() -> Calibration:
        return calibrate(ClassMeanAttack(), challenge, device=torch.device("cpu"), patience=0.0, **options)

    first = again()
    (stored,) = (tmp_path / "shared").glob("*.json")
    with locked(stored.with_suffix(".lock")):
        assert again() == first  # it is there already
        stored.unlink()
        with pytest.raises(BlockingIOError):
            again()


def test_calibrate__what_was_found_on_another_kind_of_device_is_not_taken(tmp_path: Path) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=40, test=10))
    options: dict[str, Any] = {"most_images": 40, "cache": tmp_path / "shared", "progress": lambda *_: None}
    calibrate(ClassMeanAttack(), challenge, device=torch.device("cpu"), **options)
    (stored,) = (tmp_path / "shared").glob("*.json")
    assert json.loads(stored.read_text())["key"]["device"] == "cpu"


@pytest.mark.parametrize("damaged", ["{", "{}", '{"calibration": 3}', '{"calibration": {"passed": true}}'])
def test_calibrate__a_damaged_file_is_made_again(tmp_path: Path, damaged: str) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=40, test=10))
    options: dict[str, Any] = {"most_images": 40, "cache": tmp_path / "shared", "progress": lambda *_: None}
    first = calibrate(ClassMeanAttack(), challenge, device=torch.device("cpu"), **options)
    (stored,) = (tmp_path / "shared").glob("*.json")
    stored.write_text(damaged)
    assert calibrate(ClassMeanAttack(), challenge, device=torch.device("cpu"), **options) == first
    assert json.loads(stored.read_text())["calibration"]["passed"] is first.passed


def test_calibrate__classes_of_one_image_each(tmp_path: Path) -> None:
    data = synthetic_images(num_train=40, num_test=40, size=16, num_classes=40)
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), data)
    assert int(challenge.attacker_images().limit(40).labels.bincount().max()) == 1
    options: dict[str, Any] = {"most_images": 40, "cache": tmp_path / "shared", "progress": lambda *_: None}
    assert calibrate(RidgeAttack(), challenge, device=torch.device("cpu"), **options).passed


@pytest.mark.parametrize("labels", [[0, 1, 1], [0, 0, 1, 1, 1], [0, 0, *range(1, 29)]])
def test_calibrate__images_too_few_to_spare_one_of_every_class(tmp_path: Path, labels: list[int]) -> None:
    """Three images, five, and thirty of 29 people."""
    some = synthetic_images(num_train=len(labels), num_test=4, size=16, num_classes=30)
    owned = replace(some.train, labels=torch.tensor(labels))
    write_challenge(tmp_path / "c", client=identity_client(), stack=noise(0.1), attacker=owned, test=some.test)
    found = calibrate(
        ClassMeanAttack(),
        Challenge(tmp_path / "c"),
        device=torch.device("cpu"),
        most_images=40,
        cache=tmp_path / "shared",
        progress=lambda *_: None,
    )
    assert found.floor_mse > 0


def test_calibrate__two_images_are_refused(tmp_path: Path) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=2, test=1))
    options: dict[str, Any] = {"most_images": 40, "cache": tmp_path / "shared", "progress": lambda *_: None}
    with pytest.raises(ValueError, match="at least 3 attacker images, got 2"):
        calibrate(ClassMeanAttack(), challenge, device=torch.device("cpu"), **options)


def test_beyond_chance__few_images_prove_no_knowledge() -> None:
    few, many = torch.tensor([-0.01, 0.005, -0.01]), torch.full((1000,), -0.01) + 0.01 * torch.randn(1000)
    assert not calibration._beyond_chance(few, 0.001) and calibration._beyond_chance(many, 0.001)
    assert not calibration._beyond_chance(torch.tensor([-1.0]), 0.001)


def test_calibrate__a_worker_that_failed_leaves_the_work_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    challenge = challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data(train=40, test=10))
    options: dict[str, Any] = {"most_images": 40, "cache": tmp_path / "shared", "progress": lambda *_: None}

    def out_of_memory(*_: Any) -> Calibration:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(calibration, "_outcome", out_of_memory)
        with pytest.raises(RuntimeError, match="out of memory"):
            calibrate(ClassMeanAttack(), challenge, device=torch.device("cpu"), **options)
    assert calibrate(ClassMeanAttack(), challenge, device=torch.device("cpu"), **options).identity_psnr > 0
