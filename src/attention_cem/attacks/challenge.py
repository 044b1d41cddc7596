"""What an attacker is given: a sealed folder of tensors and JSON. Attacks read this and nothing else."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from attention_cem.attacks.client_recipe import build_client
from attention_cem.attacks.readings import Reading, mean_of, on_scale, reading_against
from attention_cem.attacks.scale import Scale, scale_of
from attention_cem.attacks.sealed_folder import MANIFEST, SealBrokenError, open_sealed, read_json, sha256_of
from attention_cem.data.image_set import ImageSet
from attention_cem.data.pixels import to_float
from attention_cem.defences import AdversarialInverter, DefenceStack, build_stack

CHALLENGE_FORMAT = "attention-cem/challenge"
CHALLENGE_VERSION = 1
ANSWERS_FOLDER = "answers"
_LARGEST_RECIPE = 64 * 2**20
_MOST_VALUES = 2**26  # of one image or one z
_MOST_IMAGES = 2**31
_MOST_CLASS_PIXELS = 2**28
_CPU = torch.device("cpu")
_TYPES = {"features": "F32", "images": "U8", "labels": "I64", "known": "I8", "logits": "F32"}
_KEPT_AT_MOST = 2**30  # bytes of clean features; beyond, the attacks need the memory more


@dataclass(frozen=True, eq=False)
class MembershipCandidates:
    """Records of which some are known to be members of the victim's training set, and some are to be told apart.

    Args:
        features: released features ``(N, *z)``.
        logits: the server's outputs ``(N, classes)``, or None when the threat model does not grant them.
        labels: ``(N,)`` true labels.
        known: ``(N,)`` int8: 1 a known member, 0 a known non-member, −1 to be decided.
    """

    features: Tensor
    logits: Tensor | None
    labels: Tensor
    known: Tensor


class Challenge:
    """A challenge folder, opened after every file was checked against its SHA-256. Tensors load when asked for.

    There is no way from here to the images to be rebuilt: those lie in the ``answers`` subfolder, which this
    class never opens and which may be absent.

    Args:
        folder: a folder written by ``write_challenge``.

    Raises:
        SealBrokenError: a file is missing, truncated, altered or not listed; the message names it and its hash.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise SealBrokenError(f"{self.folder} is not a folder; expected a challenge written by write_challenge")
        self.manifest = open_sealed(self.folder, CHALLENGE_FORMAT, CHALLENGE_VERSION, (ANSWERS_FOLDER,))
        try:
            self.image_shape = _three(self.manifest["image_shape"])
            self.z_shape = _sizes(self.manifest["z_shape"])
            self.class_names = tuple(str(name) for name in self.manifest["class_names"])
            self.white_box = bool(self.manifest["threat_model"]["white_box"])
            self.num_test = _count(self.manifest["test_images"], "test_images")
            self.test_draws = _count(self.manifest["threat_model"].get("test_draws", 1), "test_draws")
            _check_words(self.manifest)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise SealBrokenError(f"{self.folder / MANIFEST} lacks or misstates {error}") from error
        if len(self.class_names) * math.prod(self.image_shape) > _MOST_CLASS_PIXELS:
            raise SealBrokenError(
                f"{self.folder / MANIFEST} names {len(self.class_names)} classes of images {self.image_shape}: more "
                "than an attack could hold one image of each of"
            )
        self._check_header("test_features.safetensors", "features", (self.test_draws, self.num_test, *self.z_shape))
        self._clean: tuple[torch.device, Tensor] | None = None

    @property
    def id(self) -> str:
        """SHA-256 of the manifest, and so of everything in the folder."""
        return sha256_of(self.folder / MANIFEST)

    @property
    def attacker_data_id(self) -> str:
        """SHA-256 of the attacker's images and labels alone: equal for two clients attacked with the same data."""
        return hashlib.sha256(json.dumps(self.manifest["files"]["attacker_images.safetensors"]).encode()).hexdigest()

    def test_features(self) -> Tensor:
        """Released features of the images to be rebuilt, ``(draws, N, *z)``: one or more releases of each image."""
        return self._tensor("test_features.safetensors", "features", (self.test_draws, self.num_test, *self.z_shape))

    @cached_property
    def scale(self) -> Scale | None:
        """Where released features lie if that is far from zero, very narrow, very wide or very uneven; else None.

        Without it a client could hide everything from every attack by shrinking z, by moving it away or by drowning it
        in louder values: networks, searches and distances have numbers of their own, of which z must not fall out.
        """
        return scale_of(self.attacker_features(), lambda: self.attacker_images().images)

    def reading(self, device: torch.device = _CPU) -> Reading:
        """What an attacker makes of the releases of one image, on `scale`; the mean where each image has but one."""
        plain = mean_of if self.test_draws == 1 else reading_against(self.manifest["defence"]["defences"])
        return plain if self.scale is None else on_scale(plain, self.scale, device)

    def test_reading(self) -> Tensor:
        """The releases of each image to be rebuilt read together, ``(N, *z)``."""
        return self.reading()(self.test_features())

    def attacker_images(self) -> ImageSet:
        """Images the attacker owns, with labels."""
        images = self._tensor("attacker_images.safetensors", "images", (None, *self.image_shape))
        return ImageSet(images, self._tensor("attacker_images.safetensors", "labels", (len(images),)), self.class_names)

    def attacker_features(self) -> Tensor:
        """Released features of the attacker's images, ``(draws, N, *z)``, every draw with fresh randomness."""
        return self._tensor("attacker_features.safetensors", "features", (None, None, *self.z_shape))

    def client(self) -> nn.Module:
        """The client in evaluation mode, rebuilt from its recipe (white-box challenges only)."""
        self._need_white_box()
        recipe = read_json(self.folder / "client.json", _LARGEST_RECIPE)
        client = build_client(recipe, self._tensors("client.safetensors"))
        try:
            with torch.no_grad():
                z = client(torch.zeros(1, *self.image_shape))
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise SealBrokenError(f"the client in {self.folder} cannot be run on an image: {error}") from error
        found = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        if found != (1, *self.z_shape):
            raise SealBrokenError(
                f"the client in {self.folder} makes {found} of an image, its features have shape {(1, *self.z_shape)}"
            )
        return client

    def clean_features(self, device: torch.device) -> Tensor:
        """What the client makes of the attacker's images, ``(N, *z)``, before any defence (white-box challenges only).

        Kept for the next attack on that device, unless they are very large: every attack wants them, and on a CPU
        making them takes longer than many an attack. Do not write into it.
        """
        if self._clean is not None and self._clean[0] == device:
            return self._clean[1]
        self._clean = None  # the old ones go before the new ones are made
        client, images = self.client().to(device), self.attacker_images().images
        with torch.no_grad():
            clean = torch.cat([client(to_float(chunk.to(device))) for chunk in images.split(512)])
        if clean.nbytes <= _KEPT_AT_MOST:
            self._clean = device, clean
        return clean

    def stack(self) -> DefenceStack:
        """The defence between client and server, with its learned parts (white-box challenges only)."""
        self._need_white_box()
        try:
            described = self.manifest["defence"]["defences"]
            _check_blocks(described, len(self._names("defence.safetensors")))
            size, stored = _weights_of(described), (self.folder / "defence.safetensors").stat().st_size
            if size > stored:
                raise ValueError(f"it is described with {size} bytes of weights, the file has {stored}")
            stack = build_stack(described)
            stack.load_state_dict(self._tensors("defence.safetensors"))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise SealBrokenError(f"the defence in {self.folder} cannot be rebuilt: {error}") from error
        return stack.eval().requires_grad_(False)

    def defender_adversary(self) -> AdversarialInverter | None:
        """The inverter the defender trained against, if there was one and the threat model grants it."""
        if not self.white_box:
            return None
        found = self.stack().defences
        adversaries = [each for each in found.values() if isinstance(each, AdversarialInverter)]
        return adversaries[0] if adversaries else None

    def membership(self) -> MembershipCandidates | None:
        """Candidates for membership inference, or None if the challenge has none."""
        name = "membership.safetensors"
        if name not in self.manifest["files"]:
            return None
        labels, known = (self._tensor(name, each, (None,)) for each in ("labels", "known"))
        n = len(labels)
        logits = None
        if self.manifest["threat_model"].get("server_outputs"):
            logits = self._tensor(name, "logits", (n, len(self.class_names)))
        features = self._tensor(name, "features", (n, *self.z_shape))
        if not 0 <= int(labels.min()) <= int(labels.max()) < len(self.class_names):
            raise SealBrokenError(f"{self.folder / name}: labels must name one of {len(self.class_names)} classes")
        if len(known) != n or sorted(known.unique().tolist()) != [-1, 0, 1]:
            raise SealBrokenError(
                f"{self.folder / name}: known must be 1 (member), 0 (not) or -1 (to be told apart) of each of the "
                f"{n} candidates, and hold all three"
            )
        return MembershipCandidates(features, logits, labels, known)

    def _need_white_box(self) -> None:
        if not self.white_box:
            raise ValueError(
                "this challenge is black-box: it holds (image, feature) pairs but not the client; "
                "attacks that need gradients do not apply"
            )

    def _tensor(self, file: str, name: str, shape: tuple[int | None, ...]) -> Tensor:
        self._check_header(file, name, shape)
        try:
            with safe_open(self.folder / file, framework="pt") as stored:
                found: Tensor = stored.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise SealBrokenError(f"{self.folder / file}: tensor {name!r} cannot be read: {error}") from error
        if found.is_floating_point() and not bool(found.isfinite().all()):
            raise SealBrokenError(f"{self.folder / file}: tensor {name!r} holds NaN or infinity")
        return found

    def _check_header(self, file: str, name: str, shape: tuple[int | None, ...]) -> None:
        """Refuse a tensor of another shape or type, by the file's header alone; None: any size but 0."""
        try:
            with safe_open(self.folder / file, framework="pt") as stored:
                header = stored.get_slice(name)
                found, kind = tuple(header.get_shape()), header.get_dtype()
        except (SafetensorError, OSError) as error:
            raise SealBrokenError(f"{self.folder / file}: tensor {name!r} cannot be read: {error}") from error
        fits = len(found) == len(shape) and all(
            have > 0 if want is None else have == want for have, want in zip(found, shape, strict=True)
        )
        if not fits:
            expected = tuple("any" if size is None else size for size in shape)
            raise SealBrokenError(f"{self.folder / file}: tensor {name!r} has shape {found}, expected {expected}")
        if kind != _TYPES[name]:
            raise SealBrokenError(f"{self.folder / file}: tensor {name!r} is of type {kind}, expected {_TYPES[name]}")

    def _names(self, file: str) -> list[str]:
        try:
            with safe_open(self.folder / file, framework="pt") as stored:
                return list(stored.keys())
        except (SafetensorError, OSError) as error:
            raise SealBrokenError(f"{self.folder / file} cannot be read: {error}") from error

    def _tensors(self, file: str) -> Mapping[str, Tensor]:
        try:
            with safe_open(self.folder / file, framework="pt") as stored:
                return {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise SealBrokenError(f"{self.folder / file} cannot be read: {error}") from error


def _check_blocks(defences: Any, tensors: int) -> None:
    """Refuse networks of more blocks than tensors are stored: blocks are made one by one, even without memory."""
    for each in defences:
        blocks = each.get("blocks", 0)
        if type(blocks) is int and blocks > tensors:
            raise ValueError(f"{each.get('name')} is described with {blocks} blocks, the file has {tensors} tensors")


def _weights_of(defences: Any) -> int:
    """Bytes of the weights that described defences have, without the memory for them."""
    try:
        with torch.device("meta"):  # there a hostile size costs nothing
            return sum(tensor.nbytes for tensor in build_stack(defences).state_dict().values())
    except (RuntimeError, NotImplementedError):  # a defence of one's own that looks at its values while it is made
        return 0


def _count(value: Any, name: str) -> int:
    if type(value) is not int or not 1 <= value <= _MOST_IMAGES:
        raise ValueError(f"{name}: expected a whole number from 1 to {_MOST_IMAGES}, got {value!r:.50}")
    return value


def _check_words(manifest: Mapping[str, Any]) -> None:
    """What attacks do not need but records and reports repeat."""
    about, accuracy, defence = manifest.get("about"), manifest.get("accuracy"), manifest["defence"]
    if about is not None and not isinstance(about, Mapping):
        raise ValueError(f"about: expected an object, got {type(about).__name__}")
    if accuracy is not None and not (type(accuracy) in (int, float) and 0 <= accuracy <= 1):
        raise ValueError(f"accuracy: expected a number from 0 to 1, or null, got {accuracy!r:.50}")
    if not isinstance(defence, Mapping) or not all(isinstance(each, Mapping) for each in defence["defences"]):
        raise ValueError("defence: expected an object with a list of defences")


def _sizes(values: Any) -> tuple[int, ...]:
    sizes = tuple(int(value) for value in values)
    if not sizes or min(sizes) < 1 or math.prod(sizes) > _MOST_VALUES:
        raise ValueError(f"shape {sizes}: sizes must be positive and hold at most {_MOST_VALUES} values")
    return sizes


def _three(values: Any) -> tuple[int, int, int]:
    channels, height, width = _sizes(values)
    return channels, height, width


def attack_device(device: torch.device | str | None) -> torch.device:
    """The device asked for, or the GPU if there is one, or the CPU.

    Raises:
        ValueError: no such device.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}; expected cpu, cuda or cuda:N") from None
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"device {str(device)!r} cannot be used here; expected cpu, cuda or cuda:N")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {str(device)!r} is not there: {torch.cuda.device_count()} CUDA devices were found")
    return place
