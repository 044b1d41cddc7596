"""The attacker's training material on the device: images, features with fresh randomness, its own validation part."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attention_cem.attacks.base import seeded
from attention_cem.attacks.challenge import Challenge
from attention_cem.attacks.readings import Reading, mean_of
from attention_cem.attacks.sealed_folder import SealBrokenError
from attention_cem.attacks.subset import spread_positions
from attention_cem.data import Augment, to_float
from attention_cem.data.image_set import ImageSet
from attention_cem.data.stratified import stratified_indices
from attention_cem.defences import DefenceStack

_MOST_VALIDATION = 2000
_VALIDATION_SHARE = 0.1
_SPLIT_SEED = 0
_COMPARED = 64
_ROUNDING = 1e-3


@dataclass(eq=False)
class AttackerData:
    """Pairs (z, x) for training an attack, drawn anew at every visit where the threat model allows it.

    White-box: clean features are computed once and the defence is applied to every batch, so the attack never
    sees the same noise twice. Black-box: one of the stored releases is drawn for every visit. Where the attacker sees
    several releases of each image to be rebuilt, z is everywhere the reading of as many releases.

    Args:
        images: ``(N, C, H, W)`` uint8, training part.
        labels: ``(N,)``.
        features: white-box ``(1, N, *z)`` before the defence; black-box ``(draws, N, *z)`` released.
        client: None when black-box.
        stack: None when black-box.
        validation_images: ``(V, C, H, W)`` float in [0, 1].
        validation_features: ``(V, *z)``: one fixed reading of each, the same for all attacks on a challenge.
        augment: random crops and mirrors of the images; white-box only, the client runs on every batch.
        releases: how many releases are read together.
        reading: how.
    """

    images: Tensor
    labels: Tensor
    features: Tensor
    client: nn.Module | None
    stack: DefenceStack | None
    validation_images: Tensor
    validation_features: Tensor
    augment: Augment | None = None
    releases: int = 1
    reading: Reading = mean_of

    def __len__(self) -> int:
        return len(self.images)

    @property
    def device(self) -> torch.device:
        """Where everything lives."""
        return self.images.device

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Features ``(B, *z)`` with fresh randomness and images ``(B, C, H, W)`` at ``index`` ``(B,)``; no sync."""
        if self.augment is not None and self.client is not None and self.stack is not None:
            x = _augmented(self.augment, self.images[index])
            return _read(self.stack, self.client(x), self.releases, self.reading), x
        x = to_float(self.images[index])
        if self.stack is not None or self.releases > 1:
            return self.read(index), x
        draw = torch.randint(len(self.features), index.shape, device=index.device)
        return self._alone(self.features[draw, index]), x

    def read(self, index: Tensor) -> Tensor:
        """A reading ``(B, *z)`` of the images at ``index``: fresh releases if white-box, of the stored ones else."""
        if self.stack is not None:
            return _read(self.stack, self.features[0, index], self.releases, self.reading)
        if self.releases == 1:
            return self._alone(self.features[0, index])
        # any so many of the stored releases of each image
        draw = torch.rand(len(self.features), len(index), device=index.device).argsort(0)[: self.releases]
        return self.reading(self.features[draw, index])

    def _alone(self, release: Tensor) -> Tensor:
        """The reading of a single release."""
        return release if self.reading is mean_of else self.reading(release[None])

    def training_features(self) -> Tensor:
        """One reading of every training image, ``(N, *z)``."""
        index = torch.arange(len(self), device=self.device)
        with torch.no_grad():
            return torch.cat([self.read(chunk) for chunk in index.split(max(1, 4096 // self.releases))])

    def mean_image(self) -> Tensor:
        """The mean of the training images, ``(C, H, W)``: the best guess of one who sees nothing."""
        return torch.stack([to_float(chunk).sum(0) for chunk in self.images.split(4096)]).sum(0) / len(self.images)


def load_attacker_data(
    challenge: Challenge,
    device: torch.device,
    *,
    augment: bool = False,
    aware: bool = True,
) -> AttackerData:
    """Bring the attacker's data to the device and split off the attack's own validation images.

    The split and the randomness in the validation features depend on the challenge alone, so that the curves of
    different attacks can be compared.

    Args:
        challenge: the challenge.
        device: where to train.
        augment: crops and mirrors (white-box only; ignored for black-box).
        aware: False trains on features before the defence, as a careless attacker would; validation features are
            the released ones either way.
    """
    owned = challenge.attacker_images()
    releases, reading = challenge.test_draws, challenge.reading(device)
    train_index, validation_index = _split(owned)
    images, labels = owned.images.to(device), owned.labels.to(device)
    released = challenge.attacker_features()
    if released.shape[1] != len(owned):
        raise ValueError(f"{len(owned)} attacker images but features of {released.shape[1]}; write the challenge again")
    if not challenge.white_box and len(released) < releases:
        raise ValueError(
            f"{releases} releases of each image to be rebuilt, but {len(released)} of the attacker's own: without the "
            "client it cannot learn to read so many; write the challenge again with more attacker_draws"
        )
    seen = released[:releases, validation_index].to(device)
    client: nn.Module | None = None
    stack: DefenceStack | None = None
    if challenge.white_box:
        client, stack = challenge.client().to(device), challenge.stack().to(device)
        clean = challenge.clean_features(device)
        _check_client(challenge, stack, clean, released[0])
        if releases > 1:
            with torch.no_grad(), seeded(device, "validation releases"):
                held_out = clean[validation_index.to(device)]
                seen = torch.stack([stack(held_out) for _ in range(releases)])
        features = clean[train_index.to(device)][None]
        if not aware:
            features, stack, releases = stack.emission(features[0])[None], None, 1
    else:
        features = released[:, train_index].to(device)
    return AttackerData(
        images=images[train_index.to(device)],
        labels=labels[train_index.to(device)],
        features=features,
        client=client,
        stack=stack,
        validation_images=to_float(images[validation_index.to(device)]),
        validation_features=reading(seen),
        # mirrored: black edges would show a client that is blind to slow waves what test images do not
        augment=Augment(crop_padding=max(1, challenge.image_shape[1] // 16), flip=True, edges="mirrored")
        if augment and stack is not None
        else None,
        releases=releases,
        reading=reading,
    )


def _check_client(challenge: Challenge, stack: DefenceStack, clean: Tensor, released: Tensor) -> None:
    """Refuse a client that is not the one behind the features: attacks trained on it would rebuild nothing.

    Of some images, released features must not lie further from what the client makes of them than fresh releases do.
    """
    some = spread_positions(len(clean), _COMPARED)
    with torch.no_grad(), seeded(clean.device, "client check"):
        mine = clean[some.to(clean.device)]
        shown, fresh, stored = stack.emission(mine), stack(mine), released[some].to(clean.device)
        spread = stored.double().var(correction=0)
        far, usual = ((each.double() - shown.double()).square().mean() for each in (stored, fresh))
    if not bool(far <= 2 * usual + _ROUNDING * spread):  # NaN is not the one either
        raise SealBrokenError(
            f"the client in {challenge.folder} is not the one behind its features: of the attacker's own images it "
            "makes others; write the challenge again"
        )


def _read(stack: DefenceStack, clean: Tensor, releases: int, reading: Reading) -> Tensor:
    """Fresh releases of clean features ``(B, *z)``, read together."""
    if releases == 1 and reading is mean_of:
        return stack(clean)
    return reading(torch.stack([stack(clean) for _ in range(releases)]))


def _split(owned: ImageSet) -> tuple[Tensor, Tensor]:
    n = max(1, min(_MOST_VALIDATION, round(_VALIDATION_SHARE * len(owned))))
    chosen = stratified_indices(owned.labels.cpu(), n, _SPLIT_SEED)
    in_validation = torch.zeros(len(owned), dtype=torch.bool)
    in_validation[chosen] = True
    return (~in_validation).nonzero().flatten(), chosen


def _augmented(augment: Augment, images: Tensor) -> Tensor:
    generator = torch.cuda.default_generators[images.device.index or 0] if images.is_cuda else torch.default_generator
    return augment(images, generator)
