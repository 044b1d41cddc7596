"""Defences of the feature at the cut, gathered in one `DefenceStack` that every phase of a run calls."""

from .adversarial_inverter import AdversarialInverter
from .base import ClientDefence, Defence, FeatureDefence, PenaltyDefence, Stage
from .channel_pruning import ChannelPruning, prunable_filters
from .distance_correlation import DistanceCorrelation, distance_correlation
from .gaussian_mechanism import gaussian_delta, gaussian_sigma
from .information_bottleneck import InformationBottleneck
from .local_dp import LocalDP
from .noise import GaussianNoise, LaplaceNoise
from .registry import build_defence, register_defence
from .sparsity import FeatureDropout, TopKPruning
from .stack import DefenceStack, build_stack, model_context

__all__ = [
    "AdversarialInverter",
    "ChannelPruning",
    "ClientDefence",
    "Defence",
    "DefenceStack",
    "DistanceCorrelation",
    "FeatureDefence",
    "FeatureDropout",
    "GaussianNoise",
    "InformationBottleneck",
    "LaplaceNoise",
    "LocalDP",
    "PenaltyDefence",
    "Stage",
    "TopKPruning",
    "build_defence",
    "build_stack",
    "distance_correlation",
    "gaussian_delta",
    "gaussian_sigma",
    "model_context",
    "prunable_filters",
    "register_defence",
]
