from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.transform import rotate as scikit_rotate

from attention_cem.data import Augment, to_float
from attention_cem.data.augment import crop_and_mirror, rotate

MODES = {"black": "constant", "mirrored": "reflect"}


def crop_one_by_one(images, offset, mirrored, padding, edges):
    """Oracle: pad by NumPy, slice and mirror each image by itself."""
    height, width = images.shape[-2:]
    result = []
    for image, (row, column), mirror in zip(images, offset.tolist(), mirrored.tolist(), strict=True):
        padded = np.pad(image.numpy(), ((0, 0), (padding, padding), (padding, padding)), mode=MODES[edges])
        cut = torch.from_numpy(padded)[:, row : row + height, column : column + width]
        result.append(cut.flip(-1) if mirror else cut)
    return torch.stack(result) if result else images


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(0, 5),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    padding=st.integers(0, 12),
    edges=st.sampled_from(["black", "mirrored"]),
    seed=st.integers(0, 99),
)
def test_crop_and_mirror__equals_one_by_one(n, channels, height, width, padding, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (n, channels, height, width), generator=generator, dtype=torch.uint8)
    draw = Augment(crop_padding=padding).draw(n, generator)
    fast = crop_and_mirror(images, draw.offset, draw.mirrored, padding, edges)
    assert torch.equal(fast, crop_one_by_one(images, draw.offset, draw.mirrored, padding, edges))


def test_rotate__quarter_turn_is_exact():
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    turned = rotate(images, torch.full((2,), math.pi / 2))
    torch.testing.assert_close(turned, torch.rot90(images, 1, dims=(2, 3)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(24, 24), (20, 32)])
@pytest.mark.parametrize("degrees", [15.0, -7.0])
def test_rotate__equals_scikit_image(shape, degrees):
    image = torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours = rotate(image[None, None], torch.tensor([math.radians(degrees)], dtype=torch.float64))[0, 0]
    theirs = torch.from_numpy(scikit_rotate(image.numpy(), degrees, order=1, mode="constant", cval=0))
    inside = (slice(7, -7), slice(7, -7))  # at the border the two fade to black differently
    torch.testing.assert_close(ours[inside], theirs[inside], atol=1e-6, rtol=0)


def test_augment__a_plain_image_stays_plain_with_mirrored_edges_and_not_with_black_ones():
    """A black edge is a step as high as the image is bright: a client blind to brightness would read it there."""
    images = torch.full((64, 3, 8, 8), 128, dtype=torch.uint8)
    shown = {
        edges: Augment(crop_padding=3, rotation_degrees=15.0, edges=edges)(images, torch.Generator().manual_seed(0))
        for edges in MODES
    }
    torch.testing.assert_close(shown["mirrored"], to_float(images))
    assert (shown["black"] < 0.1).any()


def test_augment__off_is_the_plain_image():
    images = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
    plain = Augment(crop_padding=0, flip=False, rotation_degrees=0)(images, torch.Generator())
    assert torch.equal(plain, to_float(images))


def test_augment__stays_in_range_and_varies():
    images = torch.full((64, 3, 16, 16), 255, dtype=torch.uint8)
    augmented = Augment(crop_padding=2, rotation_degrees=15)(images, torch.Generator().manual_seed(0))
    assert augmented.dtype == torch.float32
    assert augmented.min() >= 0
    assert augmented.max() <= 1 + 1e-6
    assert len(augmented.mean((1, 2, 3)).unique()) > 50


def test_augment__draws_cover_all_offsets_and_both_mirrors():
    draw = Augment(crop_padding=1, rotation_degrees=10).draw(2000, torch.Generator().manual_seed(0))
    assert draw.offset.unique(dim=0).tolist() == [[r, c] for r in range(3) for c in range(3)]
    assert 0.45 < draw.mirrored.float().mean() < 0.55
    assert 0.95 * math.radians(10) < draw.angle.abs().max() <= math.radians(10)


@pytest.mark.parametrize("wrong", [{"crop_padding": -1}, {"rotation_degrees": 181.0}, {"edges": "white"}])
def test_augment__refuses(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Augment(**wrong)
