from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import bootstrap
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio, structural_similarity

from attention_cem.auditing import bootstrap_ci, score
from attention_cem.data import to_float


def images(kind: str, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    truth = torch.randint(256, (5, 3, size, size), generator=generator, dtype=torch.uint8)
    if kind == "smooth":
        ramp = torch.linspace(0, 255, size)
        truth = (ramp[:, None] * 0.5 + ramp[None] * 0.4).to(torch.uint8).expand(5, 3, size, size).contiguous()
    guess = (to_float(truth) + 0.1 * torch.rand(truth.shape, generator=generator)).clamp(0, 1)
    return guess, truth


@pytest.mark.parametrize("kind", ["random", "smooth"])
@pytest.mark.parametrize("size", [32, 64])
def test_score__equals_scikit_image(kind: str, size: int) -> None:
    guess, truth = images(kind, size)
    found = score(guess, truth)
    pairs = [(a.double().numpy(), b.double().numpy()) for a, b in zip(to_float(truth), guess, strict=True)]
    np.testing.assert_allclose(found.mse, [mean_squared_error(a, b) for a, b in pairs], atol=1e-5)
    np.testing.assert_allclose(found.psnr, [peak_signal_noise_ratio(a, b, data_range=1) for a, b in pairs], atol=1e-4)
    expected = [
        structural_similarity(
            a, b, data_range=1, channel_axis=0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
        )
        for a, b in pairs
    ]
    np.testing.assert_allclose(found.ssim, expected, atol=1e-5)


def test_score__many_images_are_scored_as_few_are() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(256, (1203, 3, 12, 12), generator=generator, dtype=torch.uint8)
    guess = torch.rand(1203, 3, 12, 12, generator=generator)
    found = score(guess, truth, torch.device("cpu"))
    last = score(guess[-7:], truth[-7:])
    assert found.ssim is not None and last.ssim is not None
    for whole, part in ((found.mse, last.mse), (found.psnr, last.psnr), (found.ssim, last.ssim)):
        assert len(whole) == 1203
        torch.testing.assert_close(whole[-7:], part)


def test_score__psnr_is_the_mean_of_per_image_values_not_that_of_the_mean() -> None:
    truth = torch.zeros(2, 3, 16, 16, dtype=torch.uint8)
    guess = torch.stack([torch.full((3, 16, 16), 0.1), torch.full((3, 16, 16), 0.01)])
    assert score(guess, truth).summary()["psnr"] == pytest.approx((20 + 40) / 2, abs=1e-4)


def test_score__small_images_have_no_ssim_and_nan_is_refused() -> None:
    truth = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    assert score(torch.zeros(2, 3, 8, 8), truth).summary()["ssim"] is None
    with pytest.raises(ValueError, match="diverged"):
        score(torch.full((2, 3, 8, 8), torch.nan), truth)


def test_bootstrap_ci__agrees_with_scipy() -> None:
    values = torch.rand(200, generator=torch.Generator().manual_seed(0)) ** 2
    low, high = bootstrap_ci(values)
    expected = bootstrap(
        (values.numpy(),), np.mean, method="percentile", n_resamples=5000, rng=np.random.default_rng(0)
    )
    width = expected.confidence_interval.high - expected.confidence_interval.low
    assert abs(low - expected.confidence_interval.low) < 0.1 * width
    assert abs(high - expected.confidence_interval.high) < 0.1 * width
