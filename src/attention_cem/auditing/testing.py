"""The test case every attack inherits, ours and yours: what the audit relies on.

Subclass it in a test file, name the subclass ``Test...``, return your attack from ``make``::

    class TestMyAttack(AttackContract):
        def make(self):
            return MyAttack(steps=10)
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import ClassVar

import torch

from attention_cem.attacks import Attack, Challenge
from attention_cem.attacks.challenge import ANSWERS_FOLDER
from attention_cem.auditing.calibration import (
    FLOOR_TOLERANCE,
    constant_client,
    identity_like_client,
    mean_image_mse,
)
from attention_cem.auditing.challenge_files import write_challenge
from attention_cem.auditing.scores import score
from attention_cem.data import ImageData, synthetic_images
from attention_cem.defences import DefenceStack, GaussianNoise


class AttackContract:
    """Checks that hold for every attack; ``make`` gives one that is quick on sixteen-pixel images."""

    z_shape: ClassVar[tuple[int, ...]] = (12, 8, 8)
    image_shape: ClassVar[tuple[int, int, int]] = (3, 16, 16)

    def make(self) -> Attack:
        """Return the attack under test."""
        raise NotImplementedError("a subclass of AttackContract returns its attack from make()")

    def data(self) -> ImageData:
        """Small images, the same at every call."""
        channels, size, _ = self.image_shape
        return synthetic_images(num_train=120, num_test=30, size=size, channels=channels, num_classes=4)

    def challenge(self, folder: Path, *, blind: bool = False) -> Challenge:
        """A challenge whose answers were taken away: an attack that looks for them fails."""
        data = self.data()
        make_client = constant_client if blind else identity_like_client
        write_challenge(
            folder,
            client=make_client(self.z_shape, self.image_shape),
            stack=DefenceStack([GaussianNoise(0.1)]),
            attacker=data.train,
            test=data.test,
        )
        shutil.rmtree(folder / ANSWERS_FOLDER)
        return Challenge(folder)

    def test_contract__reconstructions_are_images_and_the_receipt_is_plain(self, tmp_path: Path) -> None:
        """Shape, range, finiteness, a curve, and a receipt that JSON can hold; the answers are not there."""
        seen: list[tuple[str, int, int, float]] = []
        result = self.make().run(
            self.challenge(tmp_path / "c"), device=torch.device("cpu"), progress=lambda *state: seen.append(state)
        )
        assert result.reconstructions.shape == (30, *self.image_shape)
        assert result.reconstructions.dtype == torch.float32
        assert 0 <= float(result.reconstructions.min()) <= float(result.reconstructions.max()) <= 1
        assert result.receipt.curve
        assert result.receipt.reason
        json.dumps(result.receipt.to_plain(), allow_nan=False)
        assert seen
        assert all(0 < done <= total for _, done, total, _ in seen)

    def test_contract__settings_are_plain_and_name_the_kind(self) -> None:
        """Resuming compares settings; they must survive JSON."""
        attack = self.make()
        settings = attack.settings()
        assert json.loads(json.dumps(settings))["kind"] == attack.kind
        assert attack.for_calibration().settings()["kind"] == attack.kind

    def test_contract__equal_seeds_give_equal_results(self, tmp_path: Path) -> None:
        """A result is a function of challenge, settings and seed."""
        challenge = self.challenge(tmp_path / "c")
        first, again = (self.make().run(challenge, device=torch.device("cpu"), seed=1) for _ in range(2))
        assert torch.equal(first.reconstructions, again.reconstructions)

    def test_contract__a_constant_client_is_not_beaten(self, tmp_path: Path) -> None:
        """No attack knows more than the mean image where z shows nothing."""
        data = self.data()
        result = self.make().run(self.challenge(tmp_path / "c", blind=True), device=torch.device("cpu"))
        floor = mean_image_mse(data.train, data.test.images)
        assert float(score(result.reconstructions, data.test.images).mse.mean()) >= (1 - FLOOR_TOLERANCE) * floor
