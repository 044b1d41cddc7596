from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio, structural_similarity

from attention_cem.data import mse_per_image, psnr_per_image, ssim_per_image

SHAPES = [(1, 32), (3, 32), (1, 64), (3, 64)]


def random_pair(channels: int, size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.rand(2, 4, channels, size, size, generator=generator)
    return a, b


def smooth_pair(channels: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Slow gradients with small differences: the hard case for E[x²] − E[x]² in float32."""
    ramp = torch.linspace(0.6, 1, size)
    a = (ramp[:, None] * ramp[None, :]).expand(4, channels, size, size).clone()
    wave = 0.02 * torch.sin(torch.arange(size) / 5)
    return a, (a + wave).clamp(0, 1)


def scikit_ssim(a: torch.Tensor, b: torch.Tensor, data_range: float = 1.0) -> np.ndarray:
    return np.array(
        [
            structural_similarity(
                x.double().numpy(),
                y.double().numpy(),
                gaussian_weights=True,
                sigma=1.5,
                use_sample_covariance=False,
                data_range=data_range,
                channel_axis=0,
            )
            for x, y in zip(a, b, strict=True)
        ]
    )


def ssim_window_by_window(a: torch.Tensor, b: torch.Tensor) -> float:
    """SSIM of one grey image, straight from the definition: a loop over windows, explicit centred moments."""
    x, y = a.double().numpy(), b.double().numpy()
    offsets = np.arange(11) - 5
    window = np.exp(-(offsets[:, None] ** 2 + offsets[None, :] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    values = []
    for i in range(x.shape[0] - 10):
        for j in range(x.shape[1] - 10):
            p, q = x[i : i + 11, j : j + 11], y[i : i + 11, j : j + 11]
            mp, mq = (window * p).sum(), (window * q).sum()
            vp, vq = (window * (p - mp) ** 2).sum(), (window * (q - mq) ** 2).sum()
            cov = (window * (p - mp) * (q - mq)).sum()
            luminance = (2 * mp * mq + 1e-4) / (mp**2 + mq**2 + 1e-4)
            values.append(luminance * (2 * cov + 9e-4) / (vp + vq + 9e-4))
    return float(np.mean(values))


@pytest.mark.parametrize(("channels", "size"), SHAPES)
@pytest.mark.parametrize("pair", [random_pair, smooth_pair])
def test_ssim__equals_scikit_image(pair, channels, size):
    a, b = pair(channels, size)
    np.testing.assert_allclose(ssim_per_image(a, b, data_range=1.0).numpy(), scikit_ssim(a, b), rtol=0, atol=1e-5)


def test_ssim__equals_definition_window_by_window():
    a, b = random_pair(1, 24)
    noisy = a + 0.2 * (b - a)
    for i in range(len(a)):
        expected = ssim_window_by_window(a[i, 0], noisy[i, 0])
        assert ssim_per_image(a, noisy, data_range=1.0)[i].item() == pytest.approx(expected, abs=1e-5)


def test_ssim__data_range_255_equals_unit_range():
    a, b = random_pair(3, 32)
    torch.testing.assert_close(ssim_per_image(a * 255, b * 255, 255.0), ssim_per_image(a, b, 1.0))


@pytest.mark.parametrize(("channels", "size"), SHAPES)
def test_mse_and_psnr__equal_scikit_image(channels, size):
    a, b = random_pair(channels, size)
    mse = [mean_squared_error(x.numpy(), y.numpy()) for x, y in zip(a, b, strict=True)]
    psnr = [peak_signal_noise_ratio(x.numpy(), y.numpy(), data_range=1.0) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(mse_per_image(a, b).numpy(), mse, rtol=1e-5)
    np.testing.assert_allclose(psnr_per_image(a, b, data_range=1.0).numpy(), psnr, rtol=1e-5)


def test_psnr__equal_images_are_infinitely_close():
    a, _ = random_pair(3, 16)
    assert torch.isinf(psnr_per_image(a, a, data_range=1.0)).all()


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(0, 3),
    channels=st.sampled_from([1, 3]),
    height=st.integers(11, 20),
    width=st.integers(11, 20),
    seed=st.integers(0, 1000),
)
def test_quality__per_image_bounded_symmetric(n, channels, height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.rand(2, n, channels, height, width, generator=generator)
    for quality in (
        mse_per_image,
        lambda x, y: ssim_per_image(x, y, 1.0),
        lambda x, y: psnr_per_image(x, y, 1.0),
    ):
        values = quality(a, b)
        assert values.shape == (n,)
        torch.testing.assert_close(values, quality(b, a))
        one_by_one = [quality(a[i : i + 1], b[i : i + 1]) for i in range(n)]
        torch.testing.assert_close(values, torch.cat([*one_by_one, values[:0]]))
    assert (ssim_per_image(a, b, 1.0).abs() <= 1 + 1e-5).all()
    torch.testing.assert_close(ssim_per_image(a, a, 1.0), torch.ones(n))


def test_quality__gradients_are_exact():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 2, 1, 12, 13, generator=generator, dtype=torch.float64)
    a.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ssim_per_image(x, b, 1.0), (a,))
    assert torch.autograd.gradcheck(lambda x: psnr_per_image(x, b, 1.0), (a,))


def test_quality__half_precision_is_computed_in_float32():
    a, b = random_pair(3, 32)
    result = ssim_per_image(a.bfloat16(), b.bfloat16(), 1.0)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, ssim_per_image(a.bfloat16().float(), b.bfloat16().float(), 1.0))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_ssim__autocast_does_not_reach_its_products(kind):
    a, b = smooth_pair(3, 32)
    with torch.autocast("cpu", dtype=kind):
        inside = ssim_per_image(a, b, 1.0)
    assert torch.equal(inside, ssim_per_image(a, b, 1.0))


def test_ssim__leaves_the_precision_of_others_as_it_was():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        ssim_per_image(*random_pair(1, 16), data_range=1.0)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_ssim__is_exact_on_a_device_that_trains_in_tf32():
    a, b = smooth_pair(3, 32)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = ssim_per_image(a.cuda(), b.cuda(), 1.0).cpu()
    finally:
        torch.set_float32_matmul_precision(before)
    np.testing.assert_allclose(found.numpy(), scikit_ssim(a, b), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "data_range", "message"),
    [
        (torch.zeros(1, 3, 16, 16), torch.zeros(1, 3, 16, 15), 1.0, "one shape"),
        (torch.zeros(3, 16, 16), torch.zeros(3, 16, 16), 1.0, "N, C, H, W"),
        (torch.zeros(1, 3, 10, 16), torch.zeros(1, 3, 10, 16), 1.0, "at least 11"),
        (torch.zeros(1, 1, 16, 16, dtype=torch.uint8), torch.zeros(1, 1, 16, 16), 1.0, "to_float"),
        (torch.zeros(1, 3, 16, 16), torch.zeros(1, 3, 16, 16), 0.0, "data_range"),
    ],
)
def test_ssim__refuses(a, b, data_range, message):
    with pytest.raises(ValueError, match=message):
        ssim_per_image(a, b, data_range)
