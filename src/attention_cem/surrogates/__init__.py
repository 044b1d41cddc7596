"""Surrogates: differentiable estimates of the conditional entropy H(z|y), usable in any training loop."""

from attention_cem.surrogates.base import ConditionalEntropySurrogate, SurrogateOutput
from attention_cem.surrogates.cross_attention import GatedCrossAttention
from attention_cem.surrogates.gated import GatedAttentionCEM, GatedAttentionPooling
from attention_cem.surrogates.kmeans import KMeansCEM
from attention_cem.surrogates.registry import build_surrogate, register_surrogate, surrogate_names
from attention_cem.surrogates.slot_attention import SlotAttention
from attention_cem.surrogates.slot_cross import SlotCrossAttentionCEM

for _surrogate in (SlotCrossAttentionCEM, GatedAttentionCEM, KMeansCEM):
    register_surrogate(_surrogate.kind, _surrogate)

__all__ = [
    "ConditionalEntropySurrogate",
    "GatedAttentionCEM",
    "GatedAttentionPooling",
    "GatedCrossAttention",
    "KMeansCEM",
    "SlotAttention",
    "SlotCrossAttentionCEM",
    "SurrogateOutput",
    "build_surrogate",
    "register_surrogate",
    "surrogate_names",
]
