"""Defences of the feature at the cut, gathered in one `DefenceStack` that every phase of a run calls."""

from .base import ClientDefence, Defence, FeatureDefence, PenaltyDefence, Stage
from .noise import GaussianNoise, LaplaceNoise
from .registry import build_defence, register_defence
from .stack import DefenceStack, build_stack

__all__ = [
    "ClientDefence",
    "Defence",
    "DefenceStack",
    "FeatureDefence",
    "GaussianNoise",
    "LaplaceNoise",
    "PenaltyDefence",
    "Stage",
    "build_defence",
    "build_stack",
    "register_defence",
]
