"""Surrogates: differentiable estimates of the conditional entropy H(z|y), usable in any training loop."""

from attention_cem.surrogates.base import ConditionalEntropySurrogate, SurrogateOutput
from attention_cem.surrogates.cross_attention import GatedCrossAttention
from attention_cem.surrogates.gated import GatedAttentionCEM, GatedAttentionPooling
from attention_cem.surrogates.kmeans import KMeansCEM
from attention_cem.surrogates.slot_attention import SlotAttention
from attention_cem.surrogates.slot_cross import SlotCrossAttentionCEM

__all__ = [
    "ConditionalEntropySurrogate",
    "GatedAttentionCEM",
    "GatedAttentionPooling",
    "GatedCrossAttention",
    "KMeansCEM",
    "SlotAttention",
    "SlotCrossAttentionCEM",
    "SurrogateOutput",
]
