r"""Upper bounds on what a release tells about z, and the floor they put under any attacker's error.

Theorems 1 and 2 are those of Xia et al., CVPR 2025, arXiv 2503.00383.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from attention_cem.attacks.subset import spread_positions
from attention_cem.auditing.mixture import DiagonalMixture, best_mixture, moments
from attention_cem.auditing.noise_channel import NoisyRelease

ASSUMPTIONS = {
    "theorem2_leakage": "nats; assumes that z before the noise is a mixture of diagonal Gaussians and the noise is "
    "Gaussian; moments taken on held-out images",
    "information_upper_bound": "nats; I(z; ẑ) ≤ −E[log q(ẑ)] − h(ẑ|z) for any density q, here a mixture fitted to "
    "other images; the expectation is a mean over held-out images, its 95 % upper end is given as well",
    "relative_mse_floor": "exp(−2·I/d), d pixels: least error of any attacker as a share of the images' entropy power "
    "(Theorem 1), which is itself at most the error of one who sees no release; uses the information upper bound",
    "dfil": "trace of the Fisher information of the release about the pixels, per pixel; Gaussian noise; "
    "Hutchinson's estimate; mean over held-out images",
    "dfil_mse_floor": "mean of 1/dFIL: least MSE of any unbiased attacker (Cramér–Rao); attackers that use a prior, "
    "like trained inverters, can do better",
}


@dataclass(frozen=True)
class InformationBounds:
    """Figures in nats; see ``ASSUMPTIONS``. None where the noise does not allow the bound."""

    theorem2_leakage: float | None
    information_upper_bound: float
    information_upper_end: float
    relative_mse_floor: float
    components: int


def theorem2_leakage(mixture: DiagonalMixture, noise_variance: float) -> float:
    r"""Σ_k π_k (−log π_k + ½ log |Σ_k + Σ_p| / |Σ_p|) in nats, Σ_p = noise_variance · I.

    >>> one = DiagonalMixture(torch.ones(1), torch.zeros(1, 2), torch.ones(1, 2))
    >>> round(theorem2_leakage(one, 1.0), 4), round(math.log(2), 4)
    (0.6931, 0.6931)
    """
    if noise_variance <= 0:
        raise ValueError(f"Theorem 2 needs noise: without it the leakage is unbounded, got variance {noise_variance}")
    within = 0.5 * torch.log1p(mixture.variances / noise_variance).sum(1)
    weights = mixture.weights[mixture.weights > 0]
    return float((weights * (within[mixture.weights > 0] - weights.log())).sum())


def likelihood_bound(mixture: DiagonalMixture, release: NoisyRelease) -> tuple[float, float]:
    r"""−mean log q(ẑ) − mean h(ẑ|z) on held-out releases, and its 95 % upper end (normal approximation).

    Cross-entropy is never below entropy, so the bound holds for any q; a poor q makes it loose, not wrong.
    """
    surplus = -mixture.log_prob(release.noisy.flatten(1).double()) - release.conditional_entropy.double()
    error = float(surplus.std() / math.sqrt(len(surplus))) if len(surplus) > 1 else math.inf
    return float(surplus.mean()), float(surplus.mean()) + 1.6449 * error


def relative_mse_floor(information: float, pixels: int) -> float:
    """exp(−2·I/d) of Theorem 1, at most 1.

    >>> relative_mse_floor(0.0, 3072)
    1.0
    """
    return min(1.0, math.exp(-2 * max(information, 0.0) / pixels))


def information_bounds(
    fit: NoisyRelease, held_out: NoisyRelease, pixels: int, components: tuple[int, ...], seed: int = 0
) -> InformationBounds:
    """Fit on one set of images, bound on another.

    Args:
        fit: release of the images the mixtures are fitted to.
        held_out: release of other images.
        pixels: numbers per image, C·H·W.
        components: numbers of mixture components to choose from.
        seed: of the fits.
    """
    noisy_fit = fit.noisy.flatten(1).double()
    # Images may be listed class by class: of every class some choose the number of components.
    choosing = torch.zeros(len(noisy_fit), dtype=torch.bool, device=noisy_fit.device)
    choosing[spread_positions(len(noisy_fit), max(1, len(noisy_fit) // 4)).to(choosing.device)] = True
    density = best_mixture(noisy_fit[~choosing], noisy_fit[choosing], components, seed)
    bound, upper_end = likelihood_bound(density, held_out)
    leakage = None
    if fit.gaussian_variance is not None:
        clean_fit, clean_held = fit.clean.flatten(1).double(), held_out.clean.flatten(1).double()
        clean = best_mixture(clean_fit[~choosing], clean_fit[choosing], components, seed)
        # Variances of the fitted images shrink with every component; those of held-out images do not.
        on_held_out = moments(clean_held, clean.responsibilities(clean_held), floor=0.0)
        leakage = theorem2_leakage(on_held_out, fit.gaussian_variance)
    floor = relative_mse_floor(upper_end, pixels)
    return InformationBounds(leakage, bound, upper_end, floor, len(density.weights))
