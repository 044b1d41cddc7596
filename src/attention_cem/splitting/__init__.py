"""Cut any model into a client and a server; own backbones; inverters for what passes between the halves."""

from attention_cem.splitting.blind_input import BlindInput
from attention_cem.splitting.bottleneck import Bottleneck
from attention_cem.splitting.cutting import Cut, list_cuts, split
from attention_cem.splitting.inverters import INVERTER_PRESETS, ResidualInverter, build_inverter
from attention_cem.splitting.registry import (
    Backbone,
    backbone_names,
    build_split_model,
    get_backbone,
    register_backbone,
)
from attention_cem.splitting.split_model import SplitModel, evaluating, z_shape_of

__all__ = [
    "INVERTER_PRESETS",
    "Backbone",
    "BlindInput",
    "Bottleneck",
    "Cut",
    "ResidualInverter",
    "SplitModel",
    "backbone_names",
    "build_inverter",
    "build_split_model",
    "evaluating",
    "get_backbone",
    "list_cuts",
    "register_backbone",
    "split",
    "z_shape_of",
]
