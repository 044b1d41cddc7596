"""A first layer that keeps the brightness and the slowest waves of an image from the client altogether."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from attention_cem.data.cosine_waves import cosine_waves


class BlindInput(nn.Module):
    r"""Take the :math:`k\times k` slowest cosine waves out of every channel, and the contrast if asked.

    .. math:: \hat x = x - W_h^\top(W_h\,x\,W_w^\top)W_w, \qquad \hat x \leftarrow
        \hat x \big/ \sqrt{\mathrm{mean}(\hat x^2)+\epsilon}\ \text{ (contrast)},

    with the rows of W the waves. What the client never sees cannot be read out of z: every function of
    :math:`\hat x` is independent of the coefficients taken out, given :math:`\hat x` (data processing). How much of
    them an attacker guesses from the rest of the picture is for an audit to say. Images vary most in their slowest
    waves, and a class depends little on them.

    Computed in full precision also under autocast: rounding would let through what is to be taken out.

    Args:
        height, width: of the images.
        frequencies: k; 1 takes out the mean of each channel.
        contrast: also divide by the root mean square of what is left, over all channels together.

    >>> blind = BlindInput(8, 8, frequencies=1)
    >>> dark, bright = torch.zeros(1, 3, 8, 8), torch.ones(1, 3, 8, 8)
    >>> torch.allclose(blind(dark), blind(bright), atol=1e-6)
    True
    """

    waves_h: Tensor
    waves_w: Tensor

    def __init__(self, height: int, width: int, frequencies: int, contrast: bool = False) -> None:
        super().__init__()
        if not 0 < frequencies < min(height, width):
            raise ValueError(
                f"frequencies must lie between 1 and {min(height, width) - 1} for {height}×{width} images, "
                f"got {frequencies}"
            )
        self.height, self.width, self.frequencies, self.contrast = height, width, frequencies, contrast
        self.register_buffer("waves_h", cosine_waves(frequencies, height))
        self.register_buffer("waves_w", cosine_waves(frequencies, width))

    def forward(self, images: Tensor) -> Tensor:
        """What is left of ``(N, C, H, W)`` float images."""
        if images.shape[-2:] != (self.height, self.width):
            raise ValueError(f"expected images of {self.height}×{self.width}, got {tuple(images.shape)}")
        device = images.device.type
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            images = images if images.dtype == torch.float64 else images.float()
            waves_h, waves_w = self.waves_h.to(images.dtype), self.waves_w.to(images.dtype)
            slow = waves_h.T @ (waves_h @ images @ waves_w.T) @ waves_w
            left = images - slow
            if self.contrast:
                left = left / (left.square().mean((1, 2, 3), keepdim=True) + 1e-4).sqrt()
            return left
