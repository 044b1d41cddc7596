"""Writing a challenge, with its answers apart: the only place where a trained client meets the files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from attention_cem.attacks.challenge import ANSWERS_FOLDER, CHALLENGE_FORMAT, CHALLENGE_VERSION, Challenge
from attention_cem.attacks.client_recipe import build_client, client_recipe
from attention_cem.attacks.sealed_folder import (
    MANIFEST,
    SealBrokenError,
    open_sealed,
    seal,
    sha256_of,
    write_json_atomically,
    write_tensors_atomically,
)
from attention_cem.auditing.challenge_readme import CHALLENGE_README
from attention_cem.data import ImageSet, to_float
from attention_cem.data.random_streams import generator_for
from attention_cem.defences import DefenceStack
from attention_cem.splitting import evaluating
from attention_cem.training.files import new_folder, write_atomically

ANSWERS_FORMAT = "attention-cem/answers"
ANSWERS_VERSION = 1
_CHUNK = 512


def write_challenge(
    folder: str | os.PathLike[str],
    *,
    client: nn.Module,
    stack: DefenceStack,
    attacker: ImageSet,
    test: ImageSet,
    server: nn.Module | None = None,
    white_box: bool = True,
    attacker_draws: int | None = None,
    test_draws: int = 1,
    members: ImageSet | None = None,
    non_members: ImageSet | None = None,
    accuracy: float | None = None,
    about: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """Write what an attacker is given, and beside it, in ``answers/``, what only the scorer may see.

    The folder appears under its name only when it is complete. Features of every image pass through the real
    ``stack`` with fresh randomness, the client in evaluation mode, on the device the client is on.

    Args:
        folder: where to write; must not exist.
        client: the client half.
        stack: the run's defences.
        attacker: images the attacker owns. The worst case is the victim's own training set.
        test: images to be rebuilt; the attacker must own none of them.
        server: the server half; needed for the accuracy and for membership inference on outputs.
        white_box: also give the client and the defence away (the worst case). Without it the attacker has
            (image, feature) pairs only.
        attacker_draws: releases stored per attacker image; 1 white-box (it can draw its own), black-box 4 and no
            fewer than ``test_draws``.
        test_draws: releases of each test image the attacker sees; more than 1 models repeated queries, and the
            attacks then read as many releases together, see :mod:`attention_cem.attacks.readings`.
        members: training images for membership inference; half of them the attacker knows to be members.
        non_members: the same for images the victim never trained on.
        accuracy: the model's accuracy, where it is known better than from ``test``; otherwise measured there.
        about: plain data to keep in the manifest, e.g. the run's name and the data set's.
        seed: of the randomness in the features.

    Returns:
        The folder.
    """
    target = Path(folder)
    if target.exists():
        raise ValueError(f"{target} exists already; a challenge is never overwritten, name another folder")
    if attacker_draws is None:
        attacker_draws = 1 if white_box else max(4, test_draws)
    _check_sets(attacker, test, attacker_draws, test_draws)
    if not white_box and attacker_draws < test_draws:
        raise ValueError(
            f"got attacker_draws={attacker_draws}, test_draws={test_draws}: without the client an attacker learns to "
            "read several releases together only from as many of each of its own images"
        )
    if (members is None) != (non_members is None):
        raise ValueError("membership inference needs both members and non_members, or neither")
    previous = stack.generator
    try:
        # Built under another name: a killed writer leaves no folder that looks like a challenge.
        with new_folder(target) as building:
            answers = building / ANSWERS_FOLDER
            answers.mkdir()
            stack.generator = generator_for("challenge", seed)
            with evaluating(client), torch.no_grad():
                facts = _write_features(building, client, stack, attacker, test, attacker_draws, test_draws)
                if accuracy is None and server is not None:
                    accuracy = released_accuracy(client, stack, server, test)
                hidden: dict[str, Tensor] = {}
                if members is not None and non_members is not None:
                    hidden = _write_membership(building, client, stack, server, members, non_members, seed)
                if white_box:
                    _write_client(building, client, stack, test)
            write_atomically(building / "README.md", CHALLENGE_README.encode())
            write_tensors_atomically(
                answers / "answers.safetensors", {"images": test.images, "labels": test.labels, **hidden}
            )
            seal(answers, {"format": ANSWERS_FORMAT, "version": ANSWERS_VERSION})
            threat = {"white_box": white_box, "test_draws": test_draws, "attacker_draws": attacker_draws}
            seal(
                building,
                {
                    "format": CHALLENGE_FORMAT,
                    "version": CHALLENGE_VERSION,
                    **facts,
                    "class_names": list(test.class_names),
                    "threat_model": {**threat, "server_outputs": server is not None},
                    "defence": stack.describe(),
                    "accuracy": accuracy,
                    "about": dict(about or {}),
                    "answers_sha256": sha256_of(answers / MANIFEST),
                },
            )
    finally:
        stack.generator = previous
    return target


class Answers:
    """The images behind a challenge's test features; opened by the scorer only, never passed to an attack.

    Args:
        folder: the challenge folder (not its ``answers`` subfolder).
        expected_sha256: the hash of the answers' manifest that the challenge's manifest states.
    """

    def __init__(self, folder: str | os.PathLike[str], expected_sha256: str) -> None:
        self.folder = Path(folder) / ANSWERS_FOLDER
        if not self.folder.is_dir():
            raise SealBrokenError(f"{self.folder} is missing: without the answers nothing can be scored")
        open_sealed(self.folder, ANSWERS_FORMAT, ANSWERS_VERSION)
        found = sha256_of(self.folder / MANIFEST)
        if found != expected_sha256:
            raise SealBrokenError(
                f"{self.folder / MANIFEST} has sha256 {found}, the challenge names {expected_sha256}; "
                "these answers belong to another challenge"
            )

    def images(self) -> Tensor:
        """Test images ``(N, C, H, W)``, uint8."""
        return self._tensor("images", torch.uint8)

    def labels(self) -> Tensor:
        """Labels of the test images ``(N,)``."""
        return self._tensor("labels", torch.int64)

    def membership(self) -> Tensor:
        """Whether each membership candidate was a member ``(N,)``, bool."""
        return self._tensor("is_member", torch.bool)

    def check(self, challenge: Challenge, *, membership: bool) -> None:
        """Refuse answers by which this challenge cannot be scored, before anything is spent on attacking it.

        Args:
            challenge: the challenge.
            membership: whether membership inference is to be scored as well.

        Raises:
            SealBrokenError: naming what does not fit.
        """
        images, labels = self.images(), self.labels()
        expected = (challenge.num_test, *challenge.image_shape)
        if images.shape != expected or labels.shape != expected[:1]:
            raise SealBrokenError(
                f"{self.folder} has images {tuple(images.shape)} and labels {tuple(labels.shape)}, the challenge asks "
                f"for images {expected}"
            )
        if not 0 <= int(labels.min()) <= int(labels.max()) < len(challenge.class_names):
            raise SealBrokenError(f"{self.folder}: labels must name one of {len(challenge.class_names)} classes")
        candidates = challenge.membership() if membership else None
        if candidates is None:
            return
        known, truth = candidates.known, self.membership()
        if truth.shape != known.shape or not torch.equal(truth[known >= 0], known[known >= 0] == 1):
            raise SealBrokenError(f"{self.folder}: is_member does not fit the {len(known)} candidates of the challenge")
        if len(truth[known < 0].unique()) != 2:
            raise SealBrokenError(
                f"{self.folder}: of the candidates to be told apart all are members, or none is; write the challenge "
                "again, or audit without membership inference"
            )

    def _tensor(self, name: str, dtype: torch.dtype) -> Tensor:
        try:
            with safe_open(self.folder / "answers.safetensors", framework="pt") as stored:
                found: Tensor = stored.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise SealBrokenError(f"{self.folder}: tensor {name!r} cannot be read: {error}") from error
        if found.dtype != dtype:
            raise SealBrokenError(f"{self.folder}: tensor {name!r} is of type {found.dtype}, expected {dtype}")
        return found


def _check_sets(attacker: ImageSet, test: ImageSet, attacker_draws: int, test_draws: int) -> None:
    if attacker.image_shape != test.image_shape:
        raise ValueError(f"attacker images are {attacker.image_shape}, test images {test.image_shape}")
    if attacker.class_names != test.class_names:
        raise ValueError("attacker and test images must name the same classes in one order")
    if len(attacker) < 2 or not len(test):
        raise ValueError(
            f"a challenge needs at least 2 attacker images and 1 test image, got {len(attacker)} and {len(test)}; "
            "give more images, or raise the limit"
        )
    if attacker_draws < 1 or test_draws < 1:
        raise ValueError(f"draws must be at least 1, got attacker_draws={attacker_draws}, test_draws={test_draws}")
    if test.images.data_ptr() == attacker.images.data_ptr():
        raise ValueError("attacker and test are the same images; an attack must be scored on images it never saw")


def released(client: nn.Module, stack: DefenceStack, images: Tensor, device: torch.device) -> Tensor:
    """What leaves the device for uint8 images: ``stack(client(x))``, computed in chunks, on the CPU."""
    chunks = [stack(client(to_float(chunk.to(device)))).float().cpu() for chunk in images.split(_CHUNK)]
    return torch.cat(chunks)


def _device_of(module: nn.Module) -> torch.device:
    tensors = [*module.parameters(), *module.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


def _write_features(
    folder: Path,
    client: nn.Module,
    stack: DefenceStack,
    attacker: ImageSet,
    test: ImageSet,
    attacker_draws: int,
    test_draws: int,
) -> dict[str, Any]:
    device = _device_of(client)
    of_test = torch.stack([released(client, stack, test.images, device) for _ in range(test_draws)])
    of_attacker = torch.stack([released(client, stack, attacker.images, device) for _ in range(attacker_draws)])
    for whose, features in (("test", of_test), ("attacker", of_attacker)):
        broken = int((~features.isfinite()).flatten(2).any(2).any(0).sum())
        if broken:
            raise ValueError(
                f"the client and its defences make NaN or infinity of {broken} of {features.shape[1]} {whose} images; "
                "nothing can be audited: train it again, or choose other weights"
            )
    write_tensors_atomically(folder / "test_features.safetensors", {"features": of_test})
    write_tensors_atomically(folder / "attacker_features.safetensors", {"features": of_attacker})
    write_tensors_atomically(
        folder / "attacker_images.safetensors", {"images": attacker.images, "labels": attacker.labels}
    )
    return {
        "image_shape": list(test.image_shape),
        "z_shape": list(of_test.shape[2:]),
        "test_images": len(test),
        "attacker_images": len(attacker),
        "test_images_attacker_owns": images_in_common(attacker, test),
    }


def images_in_common(attacker: ImageSet, test: ImageSet) -> int:
    """How many test images the attacker owns pixel by pixel; public data sets have a few.

    >>> owned = ImageSet(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), ("a",))
    >>> images_in_common(owned, owned)
    2
    """
    owned, wanted = (
        [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in each.images.cpu().contiguous().numpy()]
        for each in (attacker, test)
    )
    known = set(owned)
    return sum(digest in known for digest in wanted)


def released_accuracy(client: nn.Module, stack: DefenceStack, server: nn.Module, images: ImageSet) -> float:
    """Share of images whose label the server predicts right from what leaves the device."""
    device = _device_of(client)
    correct = 0
    with evaluating(client), evaluating(server), torch.no_grad():
        for pixels, labels in zip(images.images.split(_CHUNK), images.labels.split(_CHUNK), strict=True):
            prediction = server(stack(client(to_float(pixels.to(device))))).argmax(1)
            correct += int((prediction.cpu() == labels.cpu()).sum())
    return correct / len(images)


def _write_membership(
    folder: Path,
    client: nn.Module,
    stack: DefenceStack,
    server: nn.Module | None,
    members: ImageSet,
    non_members: ImageSet,
    seed: int,
) -> dict[str, Tensor]:
    """Equal numbers of both kinds, shuffled; the attacker knows every second one."""
    each = min(len(members), len(non_members))
    if each < 4:
        raise ValueError(f"membership inference needs at least 4 members and 4 non-members, got {each} of each")
    members, non_members = members.limit(each, seed), non_members.limit(each, seed)
    images = torch.cat([members.images, non_members.images]).cpu()
    labels = torch.cat([members.labels, non_members.labels]).cpu()
    is_member = torch.arange(2 * each) < each
    draws = generator_for("challenge/membership", seed)
    order = torch.randperm(2 * each, generator=draws)
    while len(is_member[order][1::2].unique()) < 2:  # of very few candidates all of one half may be of one kind
        order = torch.randperm(2 * each, generator=draws)
    images, labels, is_member = images[order], labels[order], is_member[order]
    features = released(client, stack, images, _device_of(client))
    known = torch.where(torch.arange(2 * each) % 2 == 0, is_member.to(torch.int8), torch.tensor(-1, dtype=torch.int8))
    tensors = {"features": features, "labels": labels, "known": known}
    if server is not None:
        with evaluating(server):
            device = _device_of(client)
            tensors["logits"] = torch.cat([server(chunk.to(device)).float().cpu() for chunk in features.split(_CHUNK)])
    write_tensors_atomically(folder / "membership.safetensors", tensors)
    return {"is_member": is_member}


def _write_client(folder: Path, client: nn.Module, stack: DefenceStack, test: ImageSet) -> None:
    recipe, tensors = client_recipe(client)
    example = to_float(test.images[:4]).to(_device_of(client))
    again, z = build_client(recipe, tensors)(example), client(example)
    if not torch.allclose(again, z, rtol=1e-4, atol=1e-5):
        raise ValueError(
            f"the client rebuilt from its recipe makes other features than {type(client).__name__}, by "
            f"{float((again - z).abs().max()):.3g} at most: a client must give the same z of the same image in "
            "evaluation mode; put what is random into a defence, or write the challenge with white_box=False"
        )
    write_json_atomically(folder / "client.json", recipe)
    write_tensors_atomically(folder / "client.safetensors", tensors)
    write_tensors_atomically(
        folder / "defence.safetensors", {name: tensor.clone() for name, tensor in stack.state_dict().items()}
    )
