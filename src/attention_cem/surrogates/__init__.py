"""Surrogates: differentiable estimates of the conditional entropy H(z|y), usable in any training loop."""

from attention_cem.surrogates.alarm import SelfDeceptionAlarm
from attention_cem.surrogates.base import ConditionalEntropySurrogate, SurrogateOutput
from attention_cem.surrogates.closed_form import LeakageOutput
from attention_cem.surrogates.cross_attention import GatedCrossAttention
from attention_cem.surrogates.gated import GatedAttentionCEM, GatedAttentionPooling
from attention_cem.surrogates.hybrid import HybridCEM
from attention_cem.surrogates.kmeans import KMeansCEM
from attention_cem.surrogates.leakage import LinearLeakage
from attention_cem.surrogates.leakage_penalty import LinearLeakagePenalty
from attention_cem.surrogates.local_leakage import LocalLeakage
from attention_cem.surrogates.memory import ClassMemory
from attention_cem.surrogates.objectives import StudyOnlyWarning
from attention_cem.surrogates.registry import build_surrogate, register_surrogate, surrogate_names
from attention_cem.surrogates.slot_attention import SlotAttention
from attention_cem.surrogates.slot_cross import SlotCrossAttentionCEM
from attention_cem.surrogates.slot_features import SlotFeatures
from attention_cem.surrogates.slot_mixture import SlotMixtureCEM

for _surrogate in (SlotCrossAttentionCEM, GatedAttentionCEM, KMeansCEM, SlotMixtureCEM, HybridCEM):
    register_surrogate(_surrogate.kind, _surrogate)

__all__ = [
    "ClassMemory",
    "ConditionalEntropySurrogate",
    "GatedAttentionCEM",
    "GatedAttentionPooling",
    "GatedCrossAttention",
    "HybridCEM",
    "KMeansCEM",
    "LeakageOutput",
    "LinearLeakage",
    "LinearLeakagePenalty",
    "LocalLeakage",
    "SelfDeceptionAlarm",
    "SlotAttention",
    "SlotCrossAttentionCEM",
    "SlotFeatures",
    "SlotMixtureCEM",
    "StudyOnlyWarning",
    "SurrogateOutput",
    "build_surrogate",
    "register_surrogate",
    "surrogate_names",
]
