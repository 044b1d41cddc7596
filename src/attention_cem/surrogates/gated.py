"""GatedAttentionCEM: gated attention pooling picks the samples, their weighted variance is the penalty."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attention_cem.surrogates.base import (
    ConditionalEntropySurrogate,
    SurrogateOutput,
    require_choice,
    require_positive,
    require_positive_int,
)
from attention_cem.surrogates.objectives import OBJECTIVES, assigned_nats, warn_if_penalty
from attention_cem.surrogates.segments import (
    ClassSegments,
    class_softmax,
    class_sum,
    class_weighted_sum,
    segment_classes,
    within_class_spread,
)


class GatedAttentionPooling(nn.Module):
    r"""Attention weights within each class (Ilse, Tomczak and Welling, ICML 2018).

    .. math:: a = \mathrm{softmax}_\text{class}\; w^\top[\tanh(V x) \odot \mathrm{sigmoid}(U x)]

    Args:
        dim: D. hidden: rows of V and U; default ``min(512, max(64, D // 4))``.
    """

    def __init__(self, dim: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = min(512, max(64, dim // 4)) if hidden is None else require_positive_int("hidden", hidden)
        self.value_and_gate = nn.Linear(dim, 2 * hidden, bias=False)  # the rows of V, then those of U
        self.score = nn.Linear(hidden, 1, bias=False)

    def logits(self, x: Tensor) -> Tensor:
        """Attention logits (N,) of samples (N, D)."""
        value, gate = self.value_and_gate(x).chunk(2, -1)
        return self.score(value.tanh() * gate.sigmoid()).squeeze(-1)

    def forward(self, x: Tensor, segments: ClassSegments) -> Tensor:
        """Weights (N,) that sum to one within each row of ``segments``."""
        return class_softmax(self.logits(x), segments)


class GatedAttentionCEM(ConditionalEntropySurrogate):
    r"""Attention-weighted variance of each class above a threshold.

    With pooling weights a over the layer-normed features :math:`\hat x` of a class, two forms:

    - ``per_dim``: :math:`\sigma^2_d=\sum_m a_m(\hat x_{md}-\mu_d)^2`,
      :math:`L_c=\mathrm{mean}_d\max(0,\log(\sigma^2_d+\gamma)-\log\tau)`,
      :math:`\tau=\text{var\_threshold}\cdot\sigma^2+\gamma`;
    - ``trace``: :math:`v=\sum_m a_m\lVert z_m-\mu\rVert^2`,
      :math:`L_c=\max(0,\log(v+\varepsilon)-\log(\tau+\varepsilon))`,
      :math:`\tau=\text{var\_threshold}\cdot\sigma^2`;

    and :math:`\mathrm{rob\_loss}=\sum_c \tfrac MB L_c` over the classes with at least two samples. This is the method
    as its source documents state it. Trained on its own penalty the pooling collapses onto one sample.

    Args:
        feature_dim: D, values per sample at the cut.
        form: ``"per_dim"`` or ``"trace"``.
        statistics_on: ``"normed"`` or ``"raw"`` features; default: normed for ``per_dim``, raw for ``trace``.
        reg_strength: σ, standard deviation of the noise at the cut.
        var_threshold: see τ above. threshold: τ itself, overrides ``var_threshold * σ²``.
        eps: γ or ε above.
        hidden: hidden width of the pooling.
        layer_norm: normalise features before pooling (affine, learnable).
        objective: what the pooling is trained for. ``"penalty"`` is the documents' (for study: it deceives itself).
            With ``"adversary"`` it seeks the weights under which the class spreads most, with ``"likelihood"`` those
            that explain it best, with ``"frozen"`` nothing; the loss is then the nats of raw z above the noise
            (:func:`~attention_cem.surrogates.objectives.assigned_nats`), with weights mixed with uniform ones.
        mix_uniform: share of the uniform weights in that mix, so that no sample can carry everything.
        variance_floor: the noise variance those nats are measured above; default σ².
        label_space: a promise that labels are 0 … label_space - 1; saves sorting them.

    >>> surrogate = GatedAttentionCEM(feature_dim=16)
    >>> out = surrogate(torch.randn(8, 16), torch.tensor([0, 0, 0, 1, 1, 1, 1, 2]))
    >>> int(out.diagnostics["active_classes"]), int(out.diagnostics["skipped_classes"])
    (2, 1)
    """

    kind: ClassVar[str] = "gated"

    def __init__(
        self,
        feature_dim: int,
        *,
        form: str = "per_dim",
        statistics_on: str | None = None,
        reg_strength: float = 0.025,
        var_threshold: float = 0.125,
        threshold: float | None = None,
        eps: float = 1e-6,
        hidden: int | None = None,
        layer_norm: bool = True,
        objective: str = "penalty",
        mix_uniform: float = 0.5,
        variance_floor: float | None = None,
        label_space: int | None = None,
    ) -> None:
        super().__init__(feature_dim, label_space)
        self.form = require_choice("form", form, ("per_dim", "trace"))
        default = "normed" if form == "per_dim" else "raw"
        self.statistics_on = require_choice("statistics_on", statistics_on or default, ("normed", "raw"))
        self.eps = require_positive("eps", eps)
        if threshold is None:
            sigma = require_positive("reg_strength", reg_strength)
            threshold = require_positive("var_threshold", var_threshold) * sigma**2
        self.log_threshold = math.log(require_positive("threshold", threshold) + self.eps)
        self.objective = require_choice("objective", objective, OBJECTIVES)
        warn_if_penalty(type(self).__name__, objective)
        if not 0 <= mix_uniform <= 1:
            raise ValueError(f"mix_uniform must lie in [0, 1], got {mix_uniform!r}")
        self.mix_uniform = mix_uniform
        floor = reg_strength**2 if variance_floor is None else variance_floor
        self.noise_variance = require_positive("variance_floor", floor)
        self.norm = nn.LayerNorm(feature_dim) if layer_norm else nn.Identity()
        self.pooling = GatedAttentionPooling(feature_dim, hidden)

    def estimate(self, z: Tensor, y: Tensor, only: Tensor | None = None) -> SurrogateOutput:
        """The loss of features (N, D) with labels (N,)."""
        return self.estimate_by_class(z, y, only)[0]

    def estimate_by_class(
        self, z: Tensor, y: Tensor, only: Tensor | None = None
    ) -> tuple[SurrogateOutput, Tensor, ClassSegments]:
        """As `estimate`; also what each class adds to the loss, (R,) with gradient, and which samples are whose."""
        segments = segment_classes(y, 2, only, self.label_space)
        if self.objective == "penalty":
            normed = self.norm(z)
            weight = self.pooling(normed, segments)
            features = normed if self.statistics_on == "normed" else z
            excess = self.excess(pooled_variance(weight, features, segments, self.form))
            class_loss = excess.clamp_min(0).mean(-1)  # (R,)
        else:
            size = segments.size.clamp_min(1).to(z.dtype).index_select(0, segments.row)
            weight = self.pooling(self.norm(z.detach()), segments)
            weight = (1 - self.mix_uniform) * weight + self.mix_uniform / size
            class_loss = assigned_nats(z, weight.unsqueeze(1), segments, self.noise_variance, self.objective)
            excess = class_loss.detach().unsqueeze(1)
        intra_mse, visible = within_class_spread(z, segments)
        share = segments.size.to(z.dtype) / max(z.shape[0], 1) * segments.active
        terms = share * class_loss.masked_fill(~segments.active, 0)

        with torch.no_grad():
            num_active = segments.active.sum()
            effective = 1 / class_sum(weight.square(), segments.row, segments.num_rows).clamp_min(1e-12)
            mean = 1 / num_active.clamp_min(1)
            diagnostics = {
                "active_classes": num_active,
                "skipped_classes": segments.num_classes - num_active,
                "threshold_share": ((excess > 0).to(z.dtype).mean(-1) * segments.active).sum() * mean,
                "effective_samples": (effective * segments.active).sum() * mean,
                "largest_weight": weight.amax() if weight.numel() else weight.sum(),
                "attention": weight.detach(),
                "class_label": segments.label,
                "class_active": segments.active,
                "class_loss": class_loss.detach(),
            }
        return SurrogateOutput(terms.sum() + visible, intra_mse, diagnostics), terms, segments

    def excess(self, variance: Tensor) -> Tensor:
        """Log variance above the threshold, before it is cut at zero."""
        return (variance + self.eps).log() - self.log_threshold


def pooled_variance(weight: Tensor, features: Tensor, segments: ClassSegments, form: str) -> Tensor:
    """Variance of ``features`` (N, D) around the weighted class means: (R, D) for per_dim, (R, 1) for trace."""
    row, rows = segments.row, segments.num_rows
    # The derivative with respect to the mean is the weighted sum of deviations from it, which is zero.
    mean = class_weighted_sum(weight.detach(), features.detach(), row, rows)
    if form == "trace":
        deviation = features - mean.index_select(0, row)
        return class_sum(weight * torch.linalg.vecdot(deviation, deviation), row, rows).unsqueeze(-1)
    return VarianceAround.apply(features, weight, mean, row)


class VarianceAround(torch.autograd.Function):
    """Weighted variance per class and dimension around given means, in half the passes that autograd would need."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, mean: Tensor, row: Tensor) -> Tensor:
        """Features (N, D), weights (N,), means (R, D), rows (N,) → (R, D)."""
        deviation = mean.index_select(0, row).sub_(features)  # the sign does not matter to a square
        ctx.save_for_backward(deviation, weight, row)
        return class_sum(deviation.square().mul_(weight.unsqueeze(-1)), row, mean.shape[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Gradients of the features and the weights; that of the means is zero where the weights sum to one."""
        deviation, weight, row = ctx.saved_tensors
        slope = gradient.index_select(0, row).mul_(deviation)
        of_weight = torch.linalg.vecdot(slope, deviation)
        return slope.mul_((-2 * weight).unsqueeze(-1)), of_weight, None, None
