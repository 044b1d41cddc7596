r"""How close two images are: MSE, PSNR and SSIM, one number per image.

All functions take two float tensors of shape ``(N, C, H, W)`` and return ``(N,)``. They are differentiable,
never pool a batch, and compute in float32 at least, whatever autocast says. The peak-to-peak range of the
pixels is never guessed: ``data_range`` is mandatory where a definition needs it (1 for images in [0, 1]).

Reference for SSIM: Wang, Bovik, Sheikh, Simoncelli, *Image quality assessment: from error visibility to
structural similarity*, IEEE TIP 13(4), 2004.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attention_cem.data.exact_products import exact_products

WINDOW_SIZE = 11
WINDOW_SIGMA = 1.5


def mse_per_image(a: Tensor, b: Tensor) -> Tensor:
    r"""Mean squared error, :math:`\frac{1}{CHW}\sum_{chw}(a - b)^2`, of each image.

    Example:
        >>> mse_per_image(torch.zeros(2, 3, 4, 4), torch.full((2, 3, 4, 4), 0.5))
        tensor([0.2500, 0.2500])
    """
    a, b = as_comparable(a, b)
    return (a - b).square().flatten(1).mean(1)


def psnr_per_image(a: Tensor, b: Tensor, data_range: float) -> Tensor:
    r"""Peak signal-to-noise ratio, :math:`10\log_{10}(\text{data\_range}^2/\text{MSE})`, of each image in dB.

    Two equal images have infinite PSNR, which is returned as it is: a mean over images that contains one
    says so.

    Example:
        >>> psnr_per_image(torch.zeros(1, 3, 4, 4), torch.full((1, 3, 4, 4), 0.1), data_range=1.0)
        tensor([20.])
    """
    _check_data_range(data_range)
    return 10 * torch.log10(data_range**2 / mse_per_image(a, b))


def ssim_per_image(a: Tensor, b: Tensor, data_range: float) -> Tensor:
    r"""Structural similarity of each image: per channel over the valid region, then the mean of the channels.

    .. math::
        \text{SSIM} = \operatorname{mean}\frac{(2\mu_a\mu_b + c_1)(2\sigma_{ab} + c_2)}
                                              {(\mu_a^2 + \mu_b^2 + c_1)(\sigma_a^2 + \sigma_b^2 + c_2)}

    where the moments are weighted by an 11×11 Gaussian window with σ = 1.5 that sums to one,
    :math:`c_1 = (0.01\,\text{data\_range})^2` and :math:`c_2 = (0.03\,\text{data\_range})^2`. Only windows
    that lie wholly inside the image count. It is scikit-image's ``structural_similarity`` with
    ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False``.

    Args:
        a: images ``(N, C, H, W)``, H and W at least 11.
        b: images to compare with, the same shape.
        data_range: difference between the largest and the smallest value a pixel can have.

    Example:
        >>> image = torch.linspace(0, 1, 256).reshape(1, 1, 16, 16)
        >>> ssim_per_image(image, image, data_range=1.0)
        tensor([1.])
    """
    _check_data_range(data_range)
    a, b = as_comparable(a, b)
    if min(a.shape[-2:]) < WINDOW_SIZE:
        raise ValueError(f"SSIM needs images of at least {WINDOW_SIZE}×{WINDOW_SIZE}, got shape {tuple(a.shape)}")
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2

    # Covariances do not change under a shift. Removing each image's mean first spares E[x²] − E[x]² most
    # of its cancellation, which in float32 would otherwise show against c2.
    shift_a, shift_b = a.mean((-2, -1), keepdim=True), b.mean((-2, -1), keepdim=True)
    a, b = a - shift_a, b - shift_b
    mean_a, mean_b, square_a, square_b, product = _gaussian_window(torch.stack([a, b, a * a, b * b, a * b]))
    variance_a, variance_b = square_a - mean_a.square(), square_b - mean_b.square()
    covariance = product - mean_a * mean_b
    mean_a, mean_b = mean_a + shift_a, mean_b + shift_b

    luminance = (2 * mean_a * mean_b + c1) / (mean_a.square() + mean_b.square() + c1)
    structure = (2 * covariance + c2) / (variance_a + variance_b + c2)
    return (luminance * structure).flatten(1).mean(1)


def _gaussian_window(x: Tensor) -> Tensor:
    """Weighted mean over every window inside ``(..., H, W)``; the result is ten rows and columns smaller.

    Two products with the window's weights in a band, faster than sums of shifted slices; convolutions on a CUDA device
    may round to TF32.
    """
    down, across = (_band(x.shape[dim], x) for dim in (-2, -1))
    with exact_products(x.device):
        return down @ (x @ across.T)


def _band(length: int, like: Tensor) -> Tensor:
    """(length - 10, length): each row has the window's weights one place further on."""
    place = torch.arange(length, dtype=like.dtype, device=like.device)
    offset = place - WINDOW_SIZE // 2 - place[: length - WINDOW_SIZE + 1, None]
    weight = torch.exp(-offset.square() / (2 * WINDOW_SIGMA**2)) * (offset.abs() <= WINDOW_SIZE // 2)
    return weight / weight.sum(1, keepdim=True)


def as_comparable(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two image batches in one precision, float32 at least; a ValueError says what is wrong with them."""
    if a.shape != b.shape or a.ndim != 4:
        raise ValueError(
            f"expected two image batches of one shape (N, C, H, W), got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    if not (a.is_floating_point() and b.is_floating_point()):
        raise ValueError(f"expected float images, got {a.dtype} and {b.dtype}; to_float turns uint8 into [0, 1] floats")
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    return a.to(dtype), b.to(dtype)


def _check_data_range(data_range: float) -> None:
    if not 0 < data_range < float("inf"):
        raise ValueError(f"data_range must be positive and finite (1 for images in [0, 1]), got {data_range}")
