"""SlotCrossAttentionCEM: the documents' slot + gated cross-attention estimate of H(z|y)."""

import math
from collections.abc import Collection
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_cem.surrogates import gates
from attention_cem.surrogates.base import (
    ConditionalEntropySurrogate,
    SurrogateOutput,
    logger,
    require_choice,
    require_positive,
    require_positive_int,
)
from attention_cem.surrogates.cross_attention import GatedCrossAttention
from attention_cem.surrogates.noise import counter_normal
from attention_cem.surrogates.objectives import OBJECTIVES, assigned_nats, slot_statistics, warn_if_penalty
from attention_cem.surrogates.scalars import register_scalars
from attention_cem.surrogates.segments import (
    ClassSegments,
    class_scores,
    class_sum,
    segment_classes,
    within_class_spread,
)
from attention_cem.surrogates.slot_attention import SlotAttention

MAX_UNPROJECTED_DIM = 4096


class SlotCrossAttentionCEM(ConditionalEntropySurrogate):
    r"""Log-variance of each class around attention slots, behind several learned gates.

    Per class with M of the batch's B samples: layer-normed features :math:`\hat x` give slots s (slot attention)
    and enriched features :math:`\tilde x` (gated cross-attention). With responsibilities
    :math:`r_{mk} = \mathrm{softmax}_k(\beta\cos(\hat x_m, s_k))`, masses :math:`w_k=\sum_m r_{mk}` and the weighted
    means :math:`\mu_k` and variances :math:`\sigma^2_k` of :math:`\tilde x`,

    .. math::
        L_c = \frac1d\sum_d\sum_k \tilde w_k\; g^\mathrm{soft}_{kd}\; g^\mathrm{snr}_{kd}\; \phi_{kd}, \qquad
        \mathrm{rob\_loss} = \sum_c \tfrac{M}{B}\, g_c\, L_c,

    with the gates of :mod:`attention_cem.surrogates.gates`. This is the method as its source documents state it,
    defects included: layer-normed features have means near zero, so the "SNR" gate stays near one and the early
    shut-off keeps the loss at zero; and gates trained on the penalty learn to close. Use it to reproduce and
    study; `SlotMixtureCEM` is the sound version.

    Args:
        feature_dim: D, values per sample at the cut.
        num_slots: S. num_iterations: T. num_heads: H.
        slot_dim: width the attention works in; features are projected when it differs from D. Needed above
            4,096 values, where D × D attention weights would not fit.
        reg_strength: σ, standard deviation of the noise at the cut.
        var_threshold, eps: the variance threshold is ``var_threshold * σ² + eps``.
        variance_floor: lower clamp of the slot variances.
        assign_temp (β), slot_power (γ_slot), snr_thresh (τ), snr_sharp (α), softplus_beta, margin_m, class_gate_a,
            class_gate_b: start values of the scalars.
        learnable: which of these scalars are learned: True, False or a collection of their names.
        assign_on: take the cosine of responsibilities with ``"input"`` features or ``"enriched"`` ones.
        min_count: classes with fewer samples in the batch are skipped.
        early_shut_steps, early_hard_thresh, early_gate_thresh: the loss is exactly zero for the first calls, and
            while the running mean of the SNR gate or of the soft gate lies above its threshold.
        gate_momentum: share of the old value in those running means.
        gate_hidden: hidden width of the soft gate; see :class:`~attention_cem.surrogates.gates.DimensionGate`.
        objective: what the attention is trained for. ``"penalty"`` is the documents' (for study: it deceives itself);
            with ``"likelihood"``, ``"adversary"`` or ``"frozen"`` the slots only assign samples, and the loss is the
            nats of raw z above the noise (:func:`~attention_cem.surrogates.objectives.assigned_nats`), no gates.
        seed: of the slots' start noise.
        label_space: a promise that labels are 0 … label_space - 1; saves sorting them.
        log_every: a ``[CEM-GATE]`` line through :mod:`logging` (level INFO) at most once in so many calls.

    >>> surrogate = SlotCrossAttentionCEM(64, early_shut_steps=0, early_hard_thresh=1, early_gate_thresh=1)
    >>> z, y = torch.randn(32, 1, 8, 8, requires_grad=True), torch.arange(32) % 4
    >>> out = surrogate(z, y)
    >>> out.rob_loss.backward()
    >>> z.grad.shape, int(out.diagnostics["active_classes"])
    (torch.Size([32, 1, 8, 8]), 4)
    """

    kind: ClassVar[str] = "slot_cross"
    assign_temp: Tensor
    slot_power: Tensor
    snr_thresh: Tensor
    snr_sharp: Tensor
    softplus_beta: Tensor
    margin_m: Tensor
    class_gate_a: Tensor
    class_gate_b: Tensor
    seed: Tensor
    shut_calls: Tensor
    gate_calls: Tensor
    running_snr_gate: Tensor
    running_soft_gate: Tensor

    def __init__(
        self,
        feature_dim: int,
        *,
        num_slots: int = 8,
        num_iterations: int = 3,
        num_heads: int = 4,
        slot_dim: int | None = None,
        reg_strength: float = 0.025,
        var_threshold: float = 0.125,
        eps: float = 1e-6,
        variance_floor: float = 1e-4,
        assign_temp: float = 12.0,
        slot_power: float = 2.5,
        snr_thresh: float = 0.25,
        snr_sharp: float = 14.0,
        softplus_beta: float = 1.5,
        margin_m: float = 0.05,
        class_gate_a: float = 12.0,
        class_gate_b: float = 0.04,
        learnable: bool | Collection[str] = True,
        assign_on: str = "input",
        min_count: int = 3,
        early_shut_steps: int = 100,
        early_hard_thresh: float = 0.5,
        early_gate_thresh: float = 0.6,
        gate_momentum: float = 0.9,
        gate_hidden: int | None = None,
        objective: str = "penalty",
        seed: int = 0,
        log_every: int = 100,
        label_space: int | None = None,
    ) -> None:
        super().__init__(feature_dim, label_space)
        require_positive_int("num_slots", num_slots)
        require_positive_int("num_iterations", num_iterations)
        require_positive_int("min_count", min_count)
        require_positive_int("log_every", log_every)
        if slot_dim is None and feature_dim > MAX_UNPROJECTED_DIM:
            raise ValueError(
                f"feature_dim is {feature_dim}: attention weights of {feature_dim} x {feature_dim} would not fit; "
                "pass slot_dim (for example 512)"
            )
        width = feature_dim if slot_dim is None else require_positive_int("slot_dim", slot_dim)
        if not 0 <= gate_momentum < 1:
            raise ValueError(f"gate_momentum must lie in [0, 1), got {gate_momentum!r}")
        if early_shut_steps < 0:
            raise ValueError(f"early_shut_steps must not be negative, got {early_shut_steps!r}")
        sigma = require_positive("reg_strength", reg_strength)
        self.eps = require_positive("eps", eps)
        self.log_threshold = math.log(require_positive("var_threshold", var_threshold) * sigma**2 + self.eps)
        self.variance_floor = require_positive("variance_floor", variance_floor)
        self.noise_variance = sigma**2
        self.objective = require_choice("objective", objective, OBJECTIVES)
        warn_if_penalty(type(self).__name__, objective)
        self.assign_on = require_choice("assign_on", assign_on, ("input", "enriched"))
        self.min_count, self.log_every, self.gate_momentum = min_count, log_every, gate_momentum
        self.early_shut_steps = early_shut_steps
        self.early_hard_thresh, self.early_gate_thresh = early_hard_thresh, early_gate_thresh
        self.num_slots, self.slot_dim = num_slots, width

        self.projection = nn.Linear(feature_dim, width, bias=False) if width != feature_dim else nn.Identity()
        if isinstance(self.projection, nn.Linear):
            # orthonormal rows keep a projected dimension's variance on the scale of a feature's
            nn.init.orthogonal_(self.projection.weight)
        self.slot_attention = SlotAttention(width, num_slots, num_iterations)
        self.cross_attention = GatedCrossAttention(width, num_heads)
        self.dimension_gate = gates.DimensionGate(width, gate_hidden)
        register_scalars(
            self,
            {
                "assign_temp": assign_temp,
                "slot_power": slot_power,
                "snr_thresh": snr_thresh,
                "snr_sharp": snr_sharp,
                "softplus_beta": softplus_beta,
                "margin_m": margin_m,
                "class_gate_a": class_gate_a,
                "class_gate_b": class_gate_b,
            },
            learnable,
        )
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        for name in ("shut_calls", "gate_calls"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))
        for name in ("running_snr_gate", "running_soft_gate"):
            self.register_buffer(name, torch.zeros(()))
        self._logged_calls = 0

    def estimate(self, z: Tensor, y: Tensor, only: Tensor | None = None) -> SurrogateOutput:
        """The loss of features (N, D) with labels (N,)."""
        segments = segment_classes(y, self.min_count, only, self.label_space)
        if self.objective != "penalty":
            return self._assigned_estimate(z, segments)
        x = self.projection(F.layer_norm(z, (self.feature_dim,)))
        noise = counter_normal(self.seed, self.calls, (self.num_slots, self.slot_dim), z.dtype)
        slots = self.slot_attention(x, segments.row, segments.num_rows, noise)
        enriched = self.cross_attention(x, slots, segments.row)
        assigned = self.responsibilities(x if self.assign_on == "input" else enriched, slots, segments)
        mass, mean, variance = slot_statistics(assigned, enriched, segments)
        variance = variance.clamp_min(self.variance_floor)
        log_variance = variance.log()

        soft = self.dimension_gate(log_variance)
        snr = gates.snr_gate(mean, variance, self.snr_thresh, self.snr_sharp, self.eps)
        excess = gates.softplus_margin(log_variance, self.log_threshold, self.margin_m, self.softplus_beta)
        weight = gates.slot_weights(mass, segments.size, self.slot_power)
        class_loss = (weight.unsqueeze(-1) * soft * snr * excess).sum(1).mean(-1)  # (R,)
        intra_mse, visible = within_class_spread(z, segments)
        share = segments.size.to(z.dtype) / max(z.shape[0], 1) * segments.active
        gated_loss = gates.class_gate(share, self.class_gate_a, self.class_gate_b) * class_loss
        loss = (share * gated_loss.masked_fill(~segments.active, 0)).sum() + visible

        above = (log_variance > self.log_threshold).to(z.dtype).mean((1, 2))
        usage = mass / segments.size.clamp_min(1).unsqueeze(-1)
        with torch.no_grad():
            # () tensors; averages run over the active classes
            means = {
                "soft_gate_mean": soft.mean((1, 2)),
                "snr_gate_mean": snr.mean((1, 2)),
                "threshold_share": above,
                "slot_usage_entropy": torch.special.entr(usage).sum(-1),
            }
            num_active = segments.active.sum()
            diagnostics = {
                name: (value * segments.active).sum() / num_active.clamp_min(1) for name, value in means.items()
            }
            shut = self._shut_off(diagnostics["snr_gate_mean"], diagnostics["soft_gate_mean"], num_active > 0)
            diagnostics |= {
                "active_classes": num_active,
                "skipped_classes": segments.num_classes - num_active,
                "running_snr_gate": self.running_snr_gate.clone(),
                "running_soft_gate": self.running_soft_gate.clone(),
                "shut_off": shut,
                "shutoff_share": self.shut_calls / self.calls.clamp_min(1),
                "class_label": segments.label,
                "class_active": segments.active,
                "class_loss": gated_loss.detach(),
            }
        self._log(diagnostics)
        return SurrogateOutput(loss * (~shut).to(loss.dtype), intra_mse, diagnostics)

    def _assigned_estimate(self, z: Tensor, segments: ClassSegments) -> SurrogateOutput:
        x = self.projection(F.layer_norm(z.detach(), (self.feature_dim,)))
        noise = counter_normal(self.seed, self.calls, (self.num_slots, self.slot_dim), z.dtype)
        slots = self.slot_attention(x, segments.row, segments.num_rows, noise)
        source = x if self.assign_on == "input" else self.cross_attention(x, slots, segments.row)
        assigned = self.responsibilities(source, slots, segments)
        class_loss = assigned_nats(z, assigned, segments, self.noise_variance, self.objective)
        intra_mse, visible = within_class_spread(z, segments)
        share = segments.size.to(z.dtype) / max(z.shape[0], 1)
        loss = (share * class_loss.masked_fill(~segments.active, 0)).sum() + visible
        with torch.no_grad():
            num_active = segments.active.sum()
            usage = class_sum(assigned, segments.row, segments.num_rows) / segments.size.clamp_min(1).unsqueeze(-1)
            entropy = (torch.special.entr(usage).sum(-1) * segments.active).sum() / num_active.clamp_min(1)
            diagnostics = {
                "active_classes": num_active,
                "skipped_classes": segments.num_classes - num_active,
                "slot_usage_entropy": entropy,
                "class_label": segments.label,
                "class_active": segments.active,
                "class_loss": class_loss.detach(),
            }
        return SurrogateOutput(loss, intra_mse, diagnostics)

    def responsibilities(self, x: Tensor, slots: Tensor, segments: ClassSegments) -> Tensor:
        """Soft assignment (N, S) of samples to the slots of their class."""
        cosine = class_scores(F.normalize(x, dim=-1), F.normalize(slots, dim=-1), segments.row)
        return (self.assign_temp * cosine).softmax(-1)

    def _shut_off(self, snr: Tensor, soft: Tensor, measured: Tensor) -> Tensor:
        if self.training:
            keep = torch.where(self.gate_calls > 0, self.gate_momentum, 0.0)
            for running, current in ((self.running_snr_gate, snr), (self.running_soft_gate, soft)):
                running.copy_(torch.where(measured, keep * running + (1 - keep) * current, running))
            self.gate_calls.add_(measured.to(torch.int64))
        this_call = self.calls if self.training else self.calls + 1  # evaluation counts no calls
        shut = (
            (this_call <= self.early_shut_steps)
            | (self.running_snr_gate > self.early_hard_thresh)
            | (self.running_soft_gate > self.early_gate_thresh)
        )
        if self.training:
            self.shut_calls.add_(shut.to(torch.int64))
        return shut

    def _log(self, diagnostics: dict[str, Tensor]) -> None:
        # Reading values waits for the device, so this happens only where somebody listens.
        if torch.compiler.is_compiling() or not self.training or not logger.isEnabledFor(20):
            return
        self._logged_calls += 1
        if self._logged_calls % self.log_every == 1 or self.log_every == 1:
            logger.info(
                "[CEM-GATE] call %d: %s, shut off on %.0f %% of calls; SNR gate %.3f (limit %.2f), "
                "soft gate %.3f (limit %.2f), classes active %d, skipped %d",
                int(self.calls),
                "shut off" if bool(diagnostics["shut_off"]) else "active",
                100 * float(diagnostics["shutoff_share"]),
                float(self.running_snr_gate),
                self.early_hard_thresh,
                float(self.running_soft_gate),
                self.early_gate_thresh,
                int(diagnostics["active_classes"]),
                int(diagnostics["skipped_classes"]),
            )
