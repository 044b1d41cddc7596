"""Attention-CEM: split inference whose features reveal the class and little else.

Public names are imported on first use, so that ``import attention_cem`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attention_cem.surrogates import (
        ConditionalEntropySurrogate,
        GatedAttentionCEM,
        GatedAttentionPooling,
        GatedCrossAttention,
        KMeansCEM,
        SlotAttention,
        SlotCrossAttentionCEM,
        SurrogateOutput,
    )
    from attention_cem.training import backward_at_cut, detach_at_cut

__version__ = "0.1.0"

_HOME = {
    "ConditionalEntropySurrogate": "surrogates",
    "GatedAttentionCEM": "surrogates",
    "GatedAttentionPooling": "surrogates",
    "GatedCrossAttention": "surrogates",
    "KMeansCEM": "surrogates",
    "SlotAttention": "surrogates",
    "SlotCrossAttentionCEM": "surrogates",
    "SurrogateOutput": "surrogates",
    "backward_at_cut": "training",
    "detach_at_cut": "training",
}

__all__ = [
    "ConditionalEntropySurrogate",
    "GatedAttentionCEM",
    "GatedAttentionPooling",
    "GatedCrossAttention",
    "KMeansCEM",
    "SlotAttention",
    "SlotCrossAttentionCEM",
    "SurrogateOutput",
    "__version__",
    "backward_at_cut",
    "detach_at_cut",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"attention_cem.{_HOME[name]}"), name)
    raise AttributeError(f"module 'attention_cem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
