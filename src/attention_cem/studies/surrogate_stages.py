"""The stages of each surrogate with the shapes its tensors really have, for the flow chart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stage:
    """One step of an estimate of H(z|y).

    Args:
        title: in English.
        title_zh: in Chinese.
        lines: what is computed, one short formula a line.
        output: name of the result.
        shape: its shape.
    """

    title: str
    title_zh: str
    lines: tuple[str, ...]
    output: str
    shape: tuple[int, ...]


def stages_of(surrogate: Any, batch_size: int, num_classes: int) -> tuple[Stage, ...]:
    """The stages of a built surrogate; one of its own kind has a single stage under its name.

    Shapes are those of a batch that holds every class (or as many as it has samples).

    Args:
        surrogate: from ``build_surrogate``.
        batch_size: B.
        num_classes: C.
    """
    known: dict[str, Callable[[Any, int, int], tuple[Stage, ...]]] = {
        "slot_cross": _slot_cross,
        "slot_mixture": _slot_mixture,
        "gated": _gated,
        "kmeans": _kmeans,
        "hybrid": _hybrid,
    }
    kind = str(getattr(surrogate, "kind", type(surrogate).__name__))
    if kind not in known:
        return (Stage(kind, "自定义替代项", ("its own estimate of H(z|y)",), "rob_loss", ()),)
    return known[kind](surrogate, batch_size, num_classes)


def _slot_cross(surrogate: Any, batch: int, classes: int) -> tuple[Stage, ...]:
    rows, slots, width = min(classes, batch), surrogate.num_slots, surrogate.slot_dim
    projected = "" if width == surrogate.feature_dim else f" → {width}"
    attention = Stage(
        "Slot attention",
        "槽注意力",
        (
            f"x̂ = LayerNorm(z){projected}",
            f"{slots} slots compete for the samples",
            f"of their class, {surrogate.slot_attention.num_iterations} rounds (GRU)",
        ),
        "slots s",
        (rows, slots, width),
    )
    if surrogate.objective != "penalty":
        nats = Stage(
            "Slot statistics of raw z",
            "原始特征的槽统计",
            ("r = softmaxₖ(β·cos(x̂, sₖ))", "mean and variance of z per slot"),
            "μ, σ²",
            (rows, slots, surrogate.feature_dim),
        )
        return (attention, nats, _aggregation("nats above the noise", rows))
    return (
        attention,
        Stage(
            "Gated cross-attention",
            "门控交叉注意力",
            (
                f"samples ask the slots, {surrogate.cross_attention.num_heads} heads",
                "x̃ = x̂ + tanh(α₁)·attention",
                "x̃ ← x̃ + tanh(α₂)·FFN",
            ),
            "x̃",
            (batch, width),
        ),
        Stage(
            "Mixture statistics",
            "混合统计",
            ("r = softmaxₖ(β·cos(x̂, sₖ))", "μₖ, σₖ² of x̃ weighted by r", "gates: soft · SNR · margin φ"),
            "ψ",
            (rows, slots, width),
        ),
        _aggregation(
            "slots by mass, then class gate g", rows, f"zero while SNR gate > {surrogate.early_hard_thresh:g}"
        ),
    )


def _slot_mixture(surrogate: Any, batch: int, classes: int) -> tuple[Stage, ...]:
    memory = surrogate.memory
    places, bank, width, slots = memory.max_classes, memory.bank_size, surrogate.feature_dim, surrogate.num_slots
    return (
        Stage(
            "Class memory",
            "类别记忆库",
            (f"the last {bank} features of each class", "read before write, no gradient"),
            "memory",
            (places, bank, width),
        ),
        Stage(
            "Slot attention assigns",
            "槽注意力：只负责分配",
            (
                f"keys W·z, queries W·μₛ ({surrogate.key.shape[0]} wide)",
                "r = softmaxₛ(log πₛ − |k − q|²/2t²)",
                f"{surrogate.num_iterations} rounds",
            ),
            "r",
            (places, bank, slots),
        ),
        Stage(
            "Mixture of raw z",
            "原始特征的混合模型",
            ("πₛ, μₛ, Σₛ weighted by r", f"covariance: {surrogate.covariance}", "+ σₚ²·I of the noise"),
            "μ, Σ",
            (places, slots, width),
        ),
        Stage(
            "Likelihood",
            "似然",
            ("−log b(ẑ|y) of the batch's own z", "above the entropy of the noise,", "in nats per dimension"),
            "per sample",
            (batch,),
        ),
    )


def _gated(surrogate: Any, batch: int, classes: int) -> tuple[Stage, ...]:
    rows, width = min(classes, batch), surrogate.feature_dim
    statistics = (rows, width) if surrogate.form == "per_dim" else (rows,)
    return (
        Stage("Layer norm", "层归一化", ("x̂ = LayerNorm(z)",), "x̂", (batch, width)),
        Stage(
            "Gated attention pooling",
            "门控注意力池化",
            ("a = softmax over the class of", "w·[tanh(V·x̂) ⊙ sigmoid(U·x̂)]"),
            "a",
            (batch,),
        ),
        Stage(
            "Weighted statistics",
            "加权统计",
            ("μ = Σ a·x", "σ² = Σ a·(x − μ)²", f"on {surrogate.statistics_on} features"),
            "σ²",
            statistics,
        ),
        _aggregation("max(0, log σ² − log τ)", rows),
    )


def _kmeans(surrogate: Any, batch: int, classes: int) -> tuple[Stage, ...]:
    rows, clusters, width = surrogate.num_classes, surrogate.num_clusters, surrogate.feature_dim
    return (
        Stage(
            "k-means, once an epoch",
            "每轮一次 k-means",
            (f"{clusters} clusters in each class", "from all training features"),
            "centroids",
            (rows, clusters, width),
        ),
        Stage("Assignment", "分配", ("nearest centroid", "of the sample's own class"), "cluster", (batch,)),
        Stage(
            "Cluster variance",
            "簇内方差",
            ("batch blended with epoch", "weights π"),
            "v, π",
            # The reference form takes the mean over the dimensions.
            (rows, clusters) if surrogate.form == "reference" else (rows, clusters, width),
        ),
        Stage(
            "Class aggregation",
            "类别聚合",
            (
                "Σ π·max(0, log v − log τσ²)" if surrogate.form == "reference" else "Σ π(−log π + ½ log|Σ|)",
                "rob_loss = mean over classes",
            ),
            "L per class",
            (min(classes, batch),),
        ),
    )


def _hybrid(surrogate: Any, batch: int, classes: int) -> tuple[Stage, ...]:
    rows = min(classes, batch)
    limit = f"the {surrogate.quota} riskiest" if surrogate.threshold is None else f"risk above {surrogate.threshold:g}"
    refined = stages_of(surrogate.refine, batch, classes)[-2]
    return (
        Stage("Screening", "快速筛查", ("gated attention pooling,", "all classes, cheap"), "risk", (rows,)),
        Stage("Selection", "选择高风险类", (limit,), "chosen", (rows,)),
        Stage(
            f"Refinement: {refined.title}", f"细化：{refined.title_zh}", refined.lines, refined.output, refined.shape
        ),
        Stage(
            "Class aggregation", "类别聚合", ("rob_loss = refined classes", "+ screened others"), "L per class", (rows,)
        ),
    )


def _aggregation(first: str, rows: int, *others: str) -> Stage:
    lines = (first, "rob_loss = Σ (M/B)·L", *others)
    return Stage("Class aggregation", "类别聚合", lines, "L per class", (rows,))
