"""What the search is tuned and judged on: some of all validation images, whatever order the data is listed in."""

from pathlib import Path

import pytest
import torch

from attention_cem.attacks import OptimisationAttack
from attention_cem.attacks.attacker_data import load_attacker_data
from attention_cem.data import ImageData, ImageSet, mse_per_image
from tests.attacks.helpers import CPU, blind_client, challenge_for, identity_client, noise, small_data


def listed_by_class(data: ImageData) -> ImageData:
    """The first class has next to no contrast, so that its images alone are easy."""

    def ordered(images: ImageSet) -> ImageSet:
        order = images.labels.argsort(stable=True)
        x, y = images.images[order].float(), images.labels[order]
        mean = x.mean(0, keepdim=True)
        flat = torch.where((y == 0)[:, None, None, None], mean + 0.05 * (x - mean), x)
        return ImageSet(flat.round().clamp(0, 255).to(torch.uint8), y, images.class_names)

    return ImageData(data.name, ordered(data.train), ordered(data.test))


def test_optimisation__is_judged_on_every_class_of_data_listed_class_by_class(tmp_path: Path) -> None:
    data = listed_by_class(small_data(train=4000, test=20))
    challenge = challenge_for(tmp_path / "c", blind_client(), noise(0.1), data)
    attack = OptimisationAttack(steps=1, images=4, tv_weights=(0.0,))
    at_start = attack.run(challenge, device=CPU).receipt.curve[0].mse
    own = load_attacker_data(challenge, CPU)
    assert len(own.validation_images) > 256, "else all of them are taken"
    errors = mse_per_image(own.mean_image().expand_as(own.validation_images), own.validation_images)
    assert at_start == pytest.approx(float(errors.mean()), rel=0.05)
    assert at_start > 1.1 * float(errors[:256].mean()), "the first images are of the easy class"


def test_optimisation__that_takes_no_step_is_no_evidence(tmp_path: Path) -> None:
    """A client that shows nothing: the mean image stays the best guess, and a search that keeps it has not searched."""
    challenge = challenge_for(tmp_path / "blind", blind_client(), noise(0.1), small_data(train=60, test=10))
    receipt = OptimisationAttack(steps=4, images=4, tv_weights=(0.0,)).run(challenge, device=CPU).receipt
    assert receipt.epochs == 0 and not receipt.converged and receipt.reason.startswith("stuck: no step")
    seen = challenge_for(tmp_path / "seen", identity_client(), noise(0.01), small_data(train=60, test=10))
    assert OptimisationAttack(steps=40, images=4).run(seen, device=CPU).receipt.epochs > 0
