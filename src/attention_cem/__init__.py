"""Attention-CEM: split inference whose features reveal the class and little else.

Public names are imported on first use, so that ``import attention_cem`` costs nothing.
"""

from typing import TYPE_CHECKING

from attention_cem.lazy_names import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from attention_cem.surrogates import ClassMemory as ClassMemory
    from attention_cem.surrogates import ConditionalEntropySurrogate as ConditionalEntropySurrogate
    from attention_cem.surrogates import GatedAttentionCEM as GatedAttentionCEM
    from attention_cem.surrogates import GatedAttentionPooling as GatedAttentionPooling
    from attention_cem.surrogates import GatedCrossAttention as GatedCrossAttention
    from attention_cem.surrogates import HybridCEM as HybridCEM
    from attention_cem.surrogates import KMeansCEM as KMeansCEM
    from attention_cem.surrogates import LinearLeakage as LinearLeakage
    from attention_cem.surrogates import LocalLeakage as LocalLeakage
    from attention_cem.surrogates import SelfDeceptionAlarm as SelfDeceptionAlarm
    from attention_cem.surrogates import SlotAttention as SlotAttention
    from attention_cem.surrogates import SlotCrossAttentionCEM as SlotCrossAttentionCEM
    from attention_cem.surrogates import SlotFeatures as SlotFeatures
    from attention_cem.surrogates import SlotMixtureCEM as SlotMixtureCEM
    from attention_cem.surrogates import SurrogateOutput as SurrogateOutput
    from attention_cem.surrogates import build_surrogate as build_surrogate
    from attention_cem.training import backward_at_cut as backward_at_cut
    from attention_cem.training import detach_at_cut as detach_at_cut
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "surrogates": [
                "ClassMemory",
                "ConditionalEntropySurrogate",
                "GatedAttentionCEM",
                "GatedAttentionPooling",
                "GatedCrossAttention",
                "HybridCEM",
                "KMeansCEM",
                "LinearLeakage",
                "LocalLeakage",
                "SelfDeceptionAlarm",
                "SlotAttention",
                "SlotCrossAttentionCEM",
                "SlotFeatures",
                "SlotMixtureCEM",
                "SurrogateOutput",
                "build_surrogate",
            ],
            "training": ["backward_at_cut", "detach_at_cut"],
        },
        present=["__version__"],
    )
