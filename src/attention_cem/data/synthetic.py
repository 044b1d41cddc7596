r"""Images the product draws itself: class-conditional, several modes per class, no files.

Every image is a smooth colour pattern with an ellipse on it. In Fourier coefficients,

.. math:: p = \operatorname{sigmoid}\big(\text{shift}_i(\kappa_y + \mu_{y,k}) + \epsilon_i\big)

where κ is drawn once per class, μ once per mode k of a class and ε once per image; the shift moves the
pattern by a few pixels. The ellipse (place, size, colour) is drawn per image and tells nothing of the
class: it is what an attacker can only know from the image itself, so rebuilding it is a meaningful measure
of leakage.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention_cem.data.image_set import ImageData, ImageSet
from attention_cem.data.pixels import to_uint8
from attention_cem.data.random_streams import generator_for
from attention_cem.data.registry import DataSource, register_data

_CHUNK = 1024  # images drawn at once, to bound the memory of the float patterns
_SHIFT_SHARE = 0.12  # largest shift of a pattern, as a share of the image's side


def synthetic_images(
    *,
    num_train: int = 4000,
    num_test: int = 1000,
    num_classes: int = 10,
    modes_per_class: int = 3,
    size: int = 32,
    channels: int = 3,
    pixel_noise: float = 0.02,
    seed: int = 0,
) -> ImageData:
    """Draw a synthetic data set; equal arguments give equal images.

    Train and test are drawn from one distribution; their labels are balanced to within one image.

    Args:
        num_train: training images.
        num_test: test images.
        num_classes: classes.
        modes_per_class: patterns a class can show; the mode of an image is uniform.
        size: side of the square images in pixels, at least 8.
        channels: 3 (RGB) or 1 (grey).
        pixel_noise: standard deviation of white noise on the [0, 1] pixels.
        seed: the only source of randomness.

    Example:
        >>> data = synthetic_images(num_train=20, num_test=10, num_classes=4, size=16)
        >>> data.train.images.shape, data.train.labels.bincount().tolist()
        (torch.Size([20, 3, 16, 16]), [5, 5, 5, 5])
    """
    for what, value, least in (
        ("num_train", num_train, 1),
        ("num_test", num_test, 1),
        ("num_classes", num_classes, 1),
        ("modes_per_class", modes_per_class, 1),
        ("size", size, 8),
    ):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise ValueError(f"synthetic images: {what} must be a whole number of at least {least}, got {value!r}")
    if channels not in (1, 3):
        raise ValueError(f"synthetic images: channels must be 1 or 3, got {channels}")
    if not isinstance(pixel_noise, Real) or not 0 <= pixel_noise < math.inf:
        raise ValueError(f"synthetic images: pixel_noise must be a finite number of at least 0, got {pixel_noise!r}")

    frequencies = _frequencies()
    world = generator_for("synthetic/world", seed)
    pattern_shape = (num_classes, modes_per_class, channels, len(frequencies))
    of_class = 0.55 * _coefficients((num_classes, 1, *pattern_shape[2:]), frequencies, world)
    of_mode = 0.6 * _coefficients(pattern_shape, frequencies, world)
    patterns = of_class + of_mode

    def draw(n: int, purpose: str) -> ImageSet:
        generator = generator_for(purpose, seed)
        labels = (torch.arange(n) % num_classes)[torch.randperm(n, generator=generator)]
        modes = torch.randint(modes_per_class, (n,), generator=generator)
        chunks = [
            _draw_images(patterns[y, k], frequencies, size, pixel_noise, generator)
            for y, k in zip(labels.split(_CHUNK), modes.split(_CHUNK), strict=True)
        ]
        return ImageSet(torch.cat(chunks), labels, tuple(f"pattern {c}" for c in range(num_classes)))

    train, test = draw(num_train, "synthetic/train"), draw(num_test, "synthetic/test")
    return ImageData("synthetic", train, test, source=f"drawn by the program, seed {seed}")


def _frequencies() -> Tensor:
    """Whole cycles per image, ``(F, 2)``: one of every pair ±f up to two cycles, without the constant."""
    grid = torch.cartesian_prod(torch.arange(-2, 3), torch.arange(-2, 3))
    upper_half = (grid[:, 0] > 0) | ((grid[:, 0] == 0) & (grid[:, 1] > 0))
    return grid[upper_half].to(torch.float32)


def _coefficients(shape: tuple[int, ...], frequencies: Tensor, generator: torch.Generator) -> Tensor:
    """Complex Gaussian coefficients whose energy falls with the frequency, as it does in photographs."""
    real, imaginary = torch.randn(2, *shape, generator=generator)
    return torch.complex(real, imaginary) / (1 + frequencies.norm(dim=1))


def _draw_images(
    patterns: Tensor, frequencies: Tensor, size: int, pixel_noise: float, generator: torch.Generator
) -> Tensor:
    """Draw one uint8 image for each row of ``patterns`` ``(N, C, F)``."""
    n, channels, _ = patterns.shape
    shift = (2 * torch.rand(n, 2, generator=generator) - 1) * _SHIFT_SHARE
    phase = 2 * math.pi * shift @ frequencies.T
    own = 0.7 * _coefficients(tuple(patterns.shape), frequencies, generator)
    moved = patterns * torch.polar(torch.ones_like(phase), phase)[:, None] + own

    pixel_centres = (torch.arange(size) + 0.5) / size
    y, x = torch.meshgrid(pixel_centres, pixel_centres, indexing="ij")
    angle = 2 * math.pi * (frequencies[:, :1, None] * y + frequencies[:, 1:, None] * x)
    field = torch.einsum("ncf,fhw->nchw", moved.real, angle.cos())
    field = field - torch.einsum("ncf,fhw->nchw", moved.imag, angle.sin())
    image = torch.sigmoid(field)

    centre, radius, colour = (torch.rand(n, width, generator=generator) for width in (2, 2, channels))
    centre, radius = 0.2 + 0.6 * centre, 0.08 + 0.12 * radius
    distance = ((y - centre[:, :1, None]) / radius[:, :1, None]).square()
    distance = distance + ((x - centre[:, 1:, None]) / radius[:, 1:, None]).square()
    # A soft edge: an ellipse whose border moves by less than a pixel must not give the same bytes.
    opacity = torch.sigmoid(8 * (1 - distance))[:, None]
    image = image * (1 - opacity) + colour[:, :, None, None] * opacity
    return to_uint8(image + pixel_noise * torch.randn(image.shape, generator=generator))


def _load(root: Path | None, *, draw_seed: int = 0, **options: Any) -> ImageData:
    return synthetic_images(seed=draw_seed, **options)


register_data(
    DataSource(
        name="synthetic",
        load=_load,
        find=lambda root: "drawn by the program, no files needed",
        how_to_get="nothing to get: the program draws it",
        num_train=4000,
        num_test=1000,
        num_classes=10,
        options=(
            "num_train",
            "num_test",
            "num_classes",
            "modes_per_class",
            "size",
            "channels",
            "pixel_noise",
            "draw_seed",
        ),
    )
)
