"""Bounds beside the measurements, gathered for the audit's record."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attention_cem.attacks import Challenge
from attention_cem.attacks.base import seeded
from attention_cem.attacks.subset import spread_positions
from attention_cem.auditing.fisher import fisher_leakage
from attention_cem.auditing.information import ASSUMPTIONS, information_bounds
from attention_cem.auditing.noise_channel import before_noise, noisy_release
from attention_cem.data import to_float
from attention_cem.data.random_streams import generator_for

_CHUNK = 64


def bounds_of(
    challenge: Challenge,
    test_images: Tensor,
    *,
    device: torch.device,
    most_images: int,
    fisher_images: int,
    probes: int = 16,
    seed: int = 0,
) -> dict[str, Any]:
    """Leakage bounds of a white-box challenge, as plain data with one line of assumptions each.

    Mixtures are fitted to features of the attacker's images; figures are taken on the test images. Of several releases
    of each image the bounds are on what all of them tell together.
    """
    if not challenge.white_box:
        return {"available": False, "reason": "a black-box challenge does not hold the client", "assumptions": {}}
    if len(test_images) < 2:
        return {"available": False, "reason": "a bound needs two test images or more, there is one", "assumptions": {}}
    client, stack = challenge.client().to(device), challenge.stack().to(device)
    owned = challenge.attacker_images().limit(most_images, seed).images
    test_images = test_images[spread_positions(len(test_images), most_images)]
    with seeded(device, "bounds", seed):
        try:
            with torch.no_grad():
                z_fit, z_test = (
                    torch.cat([client(to_float(chunk.to(device))) for chunk in images.split(512)])
                    for images in (owned, test_images)
                )
            fit, held_out = (noisy_release(stack, z, challenge.test_draws) for z in (z_fit, z_test))
        except ValueError as error:
            return {"available": False, "reason": str(error), "assumptions": {}}
        pixels = math.prod(challenge.image_shape)
        classes = len(challenge.class_names)
        found = information_bounds(fit, held_out, pixels, (1, 3, classes, 3 * classes), seed)
        record: dict[str, Any] = {
            "available": True,
            "theorem2_leakage": found.theorem2_leakage,
            "information_upper_bound": found.information_upper_bound,
            "information_upper_end": found.information_upper_end,
            "relative_mse_floor": found.relative_mse_floor,
            "mixture_components": found.components,
            "dfil": None,
            "dfil_mse_floor": None,
        }
        if held_out.gaussian_variance is not None and fisher_images:

            def encode(x: Tensor) -> Tensor:
                return before_noise(stack, client(x))[0]

            generator = generator_for("bounds/fisher", seed, device=device)
            few = test_images[spread_positions(len(test_images), fisher_images)]
            images = to_float(few).to(device)
            leakage = torch.cat(
                [
                    fisher_leakage(encode, chunk, held_out.gaussian_variance, probes=probes, generator=generator)
                    for chunk in images.split(_CHUNK)
                ]
            ).double()
            record["dfil"] = float(leakage.mean())
            floors = 1 / leakage
            # A pixel that changes nothing has no Fisher information and no floor.
            record["dfil_mse_floor"] = float(floors.mean()) if bool(torch.isfinite(floors).all()) else None
    if challenge.test_draws == 1:
        return {**record, "assumptions": dict(ASSUMPTIONS)}
    together = f"; of {challenge.test_draws} releases of each image together"
    assumptions = {key: text + together for key, text in ASSUMPTIONS.items()}
    return {**record, "releases": challenge.test_draws, "assumptions": assumptions}
