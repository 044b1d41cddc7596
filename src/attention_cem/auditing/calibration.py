"""Does an attack work at all? The same attack on two clients whose outcome is known.

An identity-like client shows everything: an attack that cannot rebuild the image there is broken or too weak. A
constant client shows nothing: an attack that beats the mean image there has seen the answers.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from attention_cem.attacks import Attack, AttackResult, Challenge, Progress
from attention_cem.attacks.sealed_folder import SealBrokenError, read_json, write_json_atomically
from attention_cem.auditing.challenge_files import write_challenge
from attention_cem.auditing.scores import score
from attention_cem.data import ImageSet, mse_by_waves, split_validation, to_float, wave_bands
from attention_cem.data.random_streams import generator_for
from attention_cem.defences import DefenceStack, GaussianNoise
from attention_cem.training.file_lock import locked

NEAR_PERFECT_PSNR = 30.0
FLOOR_TOLERANCE = 0.02
"""An attack may beat the floor of the constant client by no more than this share: chance, not knowledge."""
REACH_TOLERANCE = 0.10
"""An attack must come this close to the floor from above, or it cannot even learn the mean image."""
_CONSTANT_NOISE = 0.1
_BEATS = "beats the mean image on a constant client"
_SEED = 0


@dataclass(frozen=True)
class Calibration:
    """Figures of an attack on the calibration clients.

    Args:
        identity_psnr: mean PSNR on the identity-like client, dB.
        identity_mse: its MSE.
        constant_mse: MSE on the constant client.
        floor_mse: MSE of the mean image.
        passed: whether both are as they must be.
        beats_floor: the attack knows what it cannot know; its figures must not be used.
        reason: one sentence.
    """

    identity_psnr: float
    identity_mse: float
    constant_mse: float
    floor_mse: float
    passed: bool
    beats_floor: bool
    reason: str


def identity_like_client(z_shape: tuple[int, ...], image_shape: tuple[int, int, int]) -> nn.Module:
    """A client that loses nothing: the image's pixels in the layout of z where that is possible.

    Spatial z of a size that divides the image's: pixels moved into channels, so that the attack has to undo the
    same change of resolution. Flat z: the flattened image. Anything else: the image itself.

    >>> identity_like_client((8, 8, 8), (3, 32, 32))
    PixelUnshuffle(downscale_factor=4)
    """
    if len(z_shape) == 1:
        return nn.Flatten()
    _, height, width = image_shape
    if len(z_shape) == 3 and height % z_shape[1] == 0 and width % z_shape[2] == 0:
        factor = height // z_shape[1]
        if factor == width // z_shape[2] and factor > 1:
            return nn.PixelUnshuffle(factor)
    return nn.Identity()


def constant_client(z_shape: tuple[int, ...], image_shape: tuple[int, int, int]) -> nn.Module:
    """A client whose z is one half everywhere, whatever the image; its gradient is zero."""
    linear = nn.Linear(image_shape[0], math.prod(z_shape))
    nn.init.zeros_(linear.weight)
    nn.init.constant_(linear.bias, 0.5)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear, nn.Unflatten(1, z_shape))


def calibrate(
    attack: Attack,
    challenge: Challenge,
    *,
    device: torch.device,
    most_images: int,
    cache: Path,
    progress: Progress,
    patience: float = math.inf,
) -> Calibration:
    """Run an attack on both calibration clients with the attacker's images of ``challenge``.

    The outcome depends on the attack's settings, the attacker's data, the shape of z and, by its arithmetic, on the
    kind of device, not on the client under test; it is kept in ``cache`` and used again. It says whether the attack
    works, not how a draw turns out: audits of all seeds share it, and whether an audit's own draw converged stands in
    its receipt.

    Raises:
        BlockingIOError: another process is at it, and was not done after ``patience`` seconds.
    """
    plain = attack.for_calibration()
    key = {
        "settings": plain.settings(),
        "data": challenge.attacker_data_id,
        "z_shape": list(challenge.z_shape),
        "most_images": most_images,
        "device": device.type,
        "tolerances": [NEAR_PERFECT_PSNR, FLOOR_TOLERANCE, REACH_TOLERANCE],
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    stored = cache / f"{attack.kind}-{name}.json"
    if (found := _stored(stored)) is not None:
        return found
    cache.mkdir(parents=True, exist_ok=True)
    with locked(stored.with_suffix(".lock"), patience):
        # Whoever had to wait finds the outcome there.
        if (found := _stored(stored)) is None:
            found = _outcome(attack, plain, challenge, device, most_images, progress)
            write_json_atomically(stored, {"key": key, "calibration": asdict(found)})
        return found


def _stored(file: Path) -> Calibration | None:
    """What the file holds; None where there is none, or it is damaged: then it is done again."""
    if not file.is_file():
        return None
    try:
        plain = read_json(file)["calibration"]
        psnr, mse, constant, floor = (
            float(plain[key]) for key in ("identity_psnr", "identity_mse", "constant_mse", "floor_mse")
        )
        passed, beats_floor = bool(plain["passed"]), bool(plain["beats_floor"])
        return Calibration(psnr, mse, constant, floor, passed, beats_floor, str(plain["reason"]))
    except (SealBrokenError, KeyError, TypeError, ValueError):
        return None


def _outcome(
    attack: Attack,
    plain: Attack,
    challenge: Challenge,
    device: torch.device,
    most_images: int,
    progress: Progress,
) -> Calibration:
    owned = challenge.attacker_images().limit(most_images, _SEED)
    fit, held_out = _split(owned)

    def run(client: nn.Module, stack: DefenceStack, number: int) -> AttackResult:
        def show(what: str, done: int, total: int, value: float) -> None:
            progress(what, number * total + done, 2 * total, value)

        with tempfile.TemporaryDirectory(prefix="calibration-") as scratch:
            folder = write_challenge(
                Path(scratch) / "challenge", client=client, stack=stack, attacker=fit, test=held_out, seed=_SEED
            )
            return plain.run(Challenge(folder), device=device, seed=_SEED, progress=show)

    clear = run(identity_like_client(challenge.z_shape, challenge.image_shape), DefenceStack([]), 0)
    blind = run(
        constant_client(challenge.z_shape, challenge.image_shape), DefenceStack([GaussianNoise(_CONSTANT_NOISE)]), 1
    )
    of_clear = score(clear.reconstructions, clear.rebuilt_of(held_out.images), device)
    of_blind = score(blind.reconstructions, blind.rebuilt_of(held_out.images), device).mse
    floor = mean_image_errors(fit, blind.rebuilt_of(held_out.images)).sum(1)
    found = _judged(
        attack.rebuilds_unseen,
        float(of_clear.psnr.mean()),
        float(of_clear.mse.mean()),
        float(of_blind.mean()),
        float(floor.mean()),
    )
    if found.beats_floor and not _beyond_chance(of_blind.double().cpu() - floor, FLOOR_TOLERANCE * float(floor.mean())):
        by_chance = found.reason.replace(_BEATS, f"{_BEATS}, which so few images may by chance")
        return replace(found, beats_floor=False, reason=by_chance)
    return found


def _split(owned: ImageSet) -> tuple[ImageSet, ImageSet]:
    """Nine tenths to attack with and one to rebuild; every class its share where that leaves each an image."""
    held_out = max(1, round(0.1 * len(owned)))
    if len(owned) - held_out < 2:
        raise ValueError(
            f"calibrating an attack takes at least 3 attacker images, got {len(owned)}; give the challenge more of them"
        )
    if round(0.1 * len(owned)) and len(owned) - len(owned.labels.unique()) >= held_out:
        return split_validation(owned, 0.1, _SEED)
    order = torch.randperm(len(owned), generator=generator_for("calibration/split", _SEED))
    return owned.subset(order[held_out:].sort().values), owned.subset(order[:held_out].sort().values)


def _beyond_chance(differences: Tensor, tolerance: float) -> bool:
    """Whether the mean of per-image differences lies below -tolerance by more than twice its standard error."""
    if len(differences) < 2:
        return False
    return float(differences.mean() + 2 * differences.std() / math.sqrt(len(differences))) < -tolerance


def mean_image_mse(owned: ImageSet, images: Tensor) -> float:
    """MSE of one who sees nothing and answers the mean of the images he owns: the floor of a data set."""
    return sum(mean_image_waves(owned, images).values())


def mean_image_waves(owned: ImageSet, images: Tensor) -> dict[str, float]:
    """The same by the waves the error is in, coarse to fine."""
    errors = mean_image_errors(owned, images)
    return dict(zip(wave_bands(*images.shape[-2:]), errors.mean(0).tolist(), strict=True))


def mean_image_errors(owned: ImageSet, images: Tensor) -> Tensor:
    """The same of every image, ``(N, bands)``, float64."""
    chunks = [to_float(chunk).sum(0) for chunk in owned.images.split(4096)]
    mean = torch.stack(chunks).sum(0) / len(owned)
    errors = [mse_by_waves(mean.expand(len(chunk), *mean.shape), to_float(chunk)) for chunk in images.split(4096)]
    return torch.cat(errors).double()


def _judged(rebuilds_unseen: bool, psnr: float, mse: float, constant_mse: float, floor: float) -> Calibration:
    checks: list[tuple[bool, str]] = [
        (
            constant_mse >= floor * (1 - FLOOR_TOLERANCE),
            _BEATS,
        ),
        (constant_mse <= floor * (1 + REACH_TOLERANCE), "does not reach the mean image on a constant client"),
    ]
    if rebuilds_unseen:
        what = f"PSNR {psnr:.1f} dB on an identity-like client, {NEAR_PERFECT_PSNR:.0f} dB expected"
        checks.append((psnr >= NEAR_PERFECT_PSNR, what))
    else:
        checks.append((mse < floor, "no better than the mean image on an identity-like client"))
    failed = [reason for fine, reason in checks if not fine]
    return Calibration(
        psnr,
        mse,
        constant_mse,
        floor,
        not failed,
        not checks[0][0],
        "; ".join(failed) or "as expected on both clients",
    )
