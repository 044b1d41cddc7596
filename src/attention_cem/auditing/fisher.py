r"""Diagonal Fisher information leakage (dFIL) of a noisy release about the pixels.

For ẑ = f(x) + N(0, σ²I) the Fisher information about x is JᵀJ/σ², J the Jacobian of f, and

.. math:: \text{dFIL}(x) = \frac{1}{d}\operatorname{tr}\frac{J^\top J}{\sigma^2},

whose inverse bounds the MSE of any unbiased attacker from below (Maeng et al., arXiv 2305.04146; Guo et al.,
arXiv 2201.12383). The trace is estimated by Hutchinson's method: E‖Jᵀv‖² over random signs v.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def fisher_leakage(
    encode: Callable[[Tensor], Tensor],
    images: Tensor,
    noise_variance: float,
    *,
    probes: int = 16,
    generator: torch.Generator | None = None,
) -> Tensor:
    """dFIL of each image, ``(N,)``.

    Args:
        encode: images ``(N, C, H, W)`` → noise-free features ``(N, ...)``, each image by itself (evaluation mode).
        images: ``(N, C, H, W)`` in [0, 1].
        noise_variance: σ².
        probes: random sign vectors per image.
        generator: their source, on the images' device.

    >>> double = lambda x: 2 * x  # JᵀJ = 4 I
    >>> fisher_leakage(double, torch.rand(2, 1, 4, 4), noise_variance=0.5)
    tensor([8., 8.])
    """
    if noise_variance <= 0:
        raise ValueError(f"without noise the Fisher information is infinite, got variance {noise_variance}")
    if probes < 1:
        raise ValueError(f"at least one probe is needed, got {probes}")
    features, pull_back, *_ = torch.func.vjp(encode, images)
    bits = torch.randint(2, (probes, *features.shape), generator=generator, device=features.device)
    signs = (2 * bits - 1).to(features.dtype)
    (gradients,) = torch.func.vmap(pull_back)(signs)  # (probes, N, C, H, W)
    trace = gradients.square().flatten(2).sum(2).mean(0)
    return trace.detach() / (images[0].numel() * noise_variance)
