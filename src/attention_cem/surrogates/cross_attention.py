"""Gated cross-attention: each sample looks at the slots of its own class."""

import torch
from torch import Tensor, nn

from attention_cem.surrogates.base import require_positive_int
from attention_cem.surrogates.segments import class_mix, class_scores


class GatedCrossAttention(nn.Module):
    r"""Cross-attention with tanh gates (Alayrac et al., NeurIPS 2022), samples as queries, slots as keys and values.

    .. math::
        y &= x + \tanh(\alpha_\mathrm{xattn})\, W_o\, \mathrm{attn}(\mathrm{LN}_q x, \mathrm{LN}_{kv} S), \\
        \tilde x &= y + \tanh(\alpha_\mathrm{ffn})\, \mathrm{FFN}(\mathrm{LN}_\mathrm{ff}\, y),

    where attn splits its inputs into H heads and scales by the square root of a head's width. As in the source
    documents, queries, keys and values are the normalised inputs themselves; only the output is projected.

    Args:
        dim: d, must be divisible by ``num_heads``.
        num_heads: H.
        ffn_ratio: hidden width of the feed-forward part as a multiple of d.
        gate_init: start of both gates, before tanh.
    """

    def __init__(self, dim: int, num_heads: int = 4, ffn_ratio: float = 4.0, gate_init: float = 0.1) -> None:
        super().__init__()
        require_positive_int("num_heads", num_heads)
        if dim % num_heads:
            raise ValueError(f"the attention width must be divisible by num_heads, got {dim} and {num_heads}")
        self.num_heads = num_heads
        self.norm_query, self.norm_slots, self.norm_ffn = (nn.LayerNorm(dim) for _ in range(3))
        self.to_out = nn.Linear(dim, dim, bias=False)
        hidden = max(1, int(ffn_ratio * dim))
        self.ffn = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.gate_attention = nn.Parameter(torch.tensor(float(gate_init)))
        self.gate_ffn = nn.Parameter(torch.tensor(float(gate_init)))

    def forward(self, x: Tensor, slots: Tensor, row: Tensor) -> Tensor:
        """Enrich samples x (N, d) with the slots (R, S, d) of their classes: (N, d)."""
        query = self.norm_query(x).unflatten(-1, (self.num_heads, -1)).movedim(-2, 0)  # (H, N, d/H)
        memory = self.norm_slots(slots).unflatten(-1, (self.num_heads, -1)).movedim(-2, 0)  # (H, R, S, d/H)
        weights = (class_scores(query, memory, row) / query.shape[-1] ** 0.5).softmax(-1)
        context = class_mix(weights, memory, row).movedim(0, -2).flatten(-2)
        y = x + self.gate_attention.tanh() * self.to_out(context)
        return y + self.gate_ffn.tanh() * self.ffn(self.norm_ffn(y))
