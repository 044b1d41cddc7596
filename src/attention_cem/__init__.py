"""Attention-CEM: split inference whose features reveal the class and little else.

Public names are imported on first use, so that ``import attention_cem`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attention_cem.surrogates import (
        ClassMemory,
        ConditionalEntropySurrogate,
        GatedAttentionCEM,
        GatedAttentionPooling,
        GatedCrossAttention,
        HybridCEM,
        KMeansCEM,
        LinearLeakage,
        SelfDeceptionAlarm,
        SlotAttention,
        SlotCrossAttentionCEM,
        SlotMixtureCEM,
        SurrogateOutput,
        build_surrogate,
    )
    from attention_cem.training import backward_at_cut, detach_at_cut

__version__ = "0.1.0"

_HOME = {
    "ClassMemory": "surrogates",
    "ConditionalEntropySurrogate": "surrogates",
    "GatedAttentionCEM": "surrogates",
    "GatedAttentionPooling": "surrogates",
    "GatedCrossAttention": "surrogates",
    "HybridCEM": "surrogates",
    "KMeansCEM": "surrogates",
    "LinearLeakage": "surrogates",
    "SelfDeceptionAlarm": "surrogates",
    "SlotAttention": "surrogates",
    "SlotCrossAttentionCEM": "surrogates",
    "SlotMixtureCEM": "surrogates",
    "SurrogateOutput": "surrogates",
    "build_surrogate": "surrogates",
    "backward_at_cut": "training",
    "detach_at_cut": "training",
}

__all__ = [
    "ClassMemory",
    "ConditionalEntropySurrogate",
    "GatedAttentionCEM",
    "GatedAttentionPooling",
    "GatedCrossAttention",
    "HybridCEM",
    "KMeansCEM",
    "LinearLeakage",
    "SelfDeceptionAlarm",
    "SlotAttention",
    "SlotCrossAttentionCEM",
    "SlotMixtureCEM",
    "SurrogateOutput",
    "__version__",
    "backward_at_cut",
    "build_surrogate",
    "detach_at_cut",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"attention_cem.{_HOME[name]}"), name)
    raise AttributeError(f"module 'attention_cem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
