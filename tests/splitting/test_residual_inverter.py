from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attention_cem.splitting import INVERTER_PRESETS, ResidualInverter, build_inverter


def parameter_count(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def test_residual_inverter__reference_size_and_layers():
    inverter = ResidualInverter((8, 8, 8), (3, 32, 32))
    assert parameter_count(inverter) == 711_539
    transposed = [each for each in inverter.modules() if isinstance(each, nn.ConvTranspose2d)]
    assert [each.stride for each in transposed] == [(2, 2), (2, 2)]


def test_build_inverter__large_preset_is_wider_and_deeper():
    large = build_inverter("large", (8, 8, 8), (3, 32, 32))
    assert INVERTER_PRESETS["large"] == {"width": 128, "blocks": 12}
    assert parameter_count(large) > 4 * 711_539
    assert large(torch.rand(1, 8, 8, 8)).shape == (1, 3, 32, 32)


@pytest.mark.parametrize(
    ("z_shape", "image_shape"),
    [
        ((8, 8, 8), (3, 32, 32)),
        ((8, 16, 16), (1, 64, 64)),
        ((4, 32, 32), (3, 32, 32)),
        ((4, 64, 64), (3, 32, 32)),
        ((4, 63, 63), (3, 32, 32)),
        ((16, 7, 7), (3, 32, 32)),
        ((16, 12, 12), (3, 48, 48)),
        ((8, 28, 23), (1, 112, 92)),
        ((8, 4, 16), (3, 32, 32)),
        ((512, 1, 1), (3, 32, 32)),
        ((100,), (3, 32, 32)),
        ((3,), (1, 28, 28)),
        ((64, 8), (3, 32, 32)),
        ((65, 8), (3, 32, 32)),
        ((7, 8), (3, 32, 32)),
        ((1, 8), (3, 32, 32)),
        ((32, 8), (3, 64, 32)),
    ],
)
def test_residual_inverter__output_fits_any_cut(z_shape, image_shape):
    inverter = ResidualInverter(z_shape, image_shape, width=8, blocks=1)
    images = inverter(torch.randn(2, *z_shape))
    assert images.shape == (2, *image_shape)
    assert images.min() >= 0
    assert images.max() <= 1


@settings(max_examples=25, deadline=None)
@given(
    z_size=st.tuples(st.integers(2, 40), st.integers(2, 40)),
    image_size=st.tuples(st.integers(4, 40), st.integers(4, 40)),
)
def test_residual_inverter__any_pair_of_sizes(z_size, image_size):
    inverter = ResidualInverter((2, *z_size), (1, *image_size), width=4, blocks=0)
    assert inverter(torch.randn(2, 2, *z_size)).shape == (2, 1, *image_size)


@pytest.mark.parametrize("z_shape", [(2, 4, 4), (16, 2), (17, 2), (5,)])
def test_residual_inverter__every_value_of_z_reaches_the_image(z_shape):
    torch.manual_seed(0)
    inverter = ResidualInverter(z_shape, (3, 8, 8), width=8, blocks=1).eval().double()
    z = torch.randn(1, *z_shape, dtype=torch.double, requires_grad=True)
    inverter(z).sum().backward()
    assert z.grad is not None
    assert (z.grad != 0).all()


def test_residual_inverter__dropped_class_token_is_not_looked_at():
    inverter = ResidualInverter((17, 4), (3, 8, 8), width=8, blocks=1, class_token="drop").eval()
    z = torch.randn(2, 17, 4)
    other = z.clone()
    other[:, 0] += 1
    assert torch.equal(inverter(z), inverter(other))


def test_residual_inverter__tokens_keep_their_place():
    """Token 7 of an 8×8 grid is the patch at the top right: pixels far from there cannot change."""
    inverter = ResidualInverter((64, 4), (3, 64, 64), width=4, blocks=0).eval()
    z = torch.randn(1, 64, 4)
    other = z.clone()
    other[:, 7] += 1
    changed = (inverter(z) != inverter(other)).any(dim=1)[0]
    assert changed[:8, -8:].any()
    assert not changed[-24:, :].any()
    assert not changed[:, :24].any()


def test_residual_inverter__learns_to_invert():
    """A few steps on one batch lower the error well below that of the constant mean image."""
    torch.manual_seed(0)
    images = torch.rand(16, 1, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    z = nn.functional.avg_pool2d(images, 2)
    inverter = ResidualInverter((1, 4, 4), (1, 8, 8), width=16, blocks=1)
    optimiser = torch.optim.Adam(inverter.parameters(), lr=1e-2)
    for _ in range(150):
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(inverter(z), images)
        loss.backward()
        optimiser.step()
    assert loss < 0.1 * images.var()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"z_shape": (1, 2, 3, 4)}, "z_shape must be"),
        ({"z_shape": (0,)}, "z_shape must be"),
        ({"image_shape": (32, 32)}, "image_shape must be"),
        ({"width": 0}, "width must be"),
        ({"class_token": "maybe"}, "class_token must be"),
    ],
)
def test_residual_inverter__bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ResidualInverter(**({"z_shape": (8, 8, 8), "image_shape": (3, 32, 32)} | arguments))


def test_residual_inverter__wrong_z_is_refused():
    inverter = ResidualInverter((8, 8, 8), (3, 32, 32), width=4, blocks=0)
    with pytest.raises(ValueError, match=r"built for z of shape \(B, 8, 8, 8\), got \(2, 8, 4, 4\)"):
        inverter(torch.zeros(2, 8, 4, 4))


def test_build_inverter__unknown_preset_names_nearest():
    with pytest.raises(ValueError, match="did you mean 'large'"):
        build_inverter("larg", (8, 8, 8), (3, 32, 32))
