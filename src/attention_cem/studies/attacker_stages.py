"""The stages of the closed-form attacker that a client is trained against, with their shapes, for the flow chart."""

from __future__ import annotations

from math import prod

from attention_cem.studies.surrogate_stages import Stage
from attention_cem.surrogates.leakage import LinearLeakage
from attention_cem.surrogates.leakage_penalty import LinearLeakagePenalty
from attention_cem.surrogates.local_leakage import LocalLeakage


def attacker_stages(penalty: LinearLeakagePenalty, batch: int) -> tuple[Stage, ...]:
    """What the attacker of the defence ``linear_leakage`` does with a batch of so many images."""
    attacker = penalty.attacker
    image = attacker.image_dim
    first = _linear(attacker, batch) if isinstance(attacker, LinearLeakage) else _local(attacker, batch)
    return (
        *first,
        Stage(
            "Share recovered",
            "还原份额",
            ("of the images' variance", "within their classes, in [0, 1]", "gradient to z, W held fixed"),
            f"x̂ − x, {'all' if penalty.target_size is None else f'{penalty.target_size}×{penalty.target_size}'} pixels",
            (batch, image),
        ),
    )


def _linear(attacker: LinearLeakage, batch: int) -> tuple[Stage, ...]:
    beyond = []
    if attacker.random_features:
        beyond.append(f"+ {attacker.random_features} random features cos(P·z)")
    if attacker.attention is not None:
        down, across = attacker.attention.cuts
        beyond += [f"+ attention of {down}×{across} regions of z", f"to {attacker.attention.slots} slots each"]
    width = attacker.cov_zz.shape[0]
    return (
        Stage(
            "What the attacker sees",
            "攻击者看到的",
            (f"z + noise, σ {attacker.sigma:g}", *beyond),
            "u",
            (batch, width),
        ),
        _deviations(batch, width),
        Stage(
            "Attacker in closed form",
            "闭式攻击者",
            ("W = (C_uu + r·I)⁻¹ C_ux", f"C: about {_batches(attacker.momentum)} batches", _solved(attacker.following)),
            "W",
            (width, attacker.image_dim),
        ),
    )


def _local(attacker: LocalLeakage, batch: int) -> tuple[Stage, ...]:
    side, width = attacker.neighbourhood, prod(attacker.z_shape)
    return (
        _deviations(batch, width),
        Stage(
            "Linear guess",
            "线性猜测",
            (f"z with noise, σ {attacker.sigma:g}", "g = W₁ᵀ z, from all of z"),
            "g",
            (batch, attacker.image_dim),
        ),
        Stage(
            "Correction, place by place",
            "逐处修正",
            (
                f"u: {side}×{side} places of z and g",
                f"+ {attacker.random_features} random features",
                "x̂ = g + W₂ᵀ u, W₂ the same everywhere",
            ),
            "W₂",
            tuple(attacker.correction.cov_xz.T.shape),
        ),
    )


def _deviations(batch: int, width: int) -> Stage:
    lines = ("both, features and images,", "minus the mean of their class")
    return Stage("Within the class", "类内偏差", lines, "Δ", (batch, width))


def _batches(momentum: float) -> int:
    return round(1 / (1 - momentum))


def _solved(following: object) -> str:
    return "solved at every step" if following is None else "following the client step by step"
