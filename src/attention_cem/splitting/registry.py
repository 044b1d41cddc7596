"""Backbones by name, and `build_split_model`, which makes one and cuts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TypeVar

import torch
from torch import nn

from attention_cem.nearest_names import did_you_mean
from attention_cem.splitting.bottleneck import Bottleneck
from attention_cem.splitting.cutting import split
from attention_cem.splitting.split_model import SplitModel

_Build = TypeVar("_Build", bound=Callable[[int, Sequence[int]], nn.Module])
_OWN_FOLDER = "attention_cem.splitting.backbones"
_OWN_BACKBONES = {
    "mobilenet_v2": f"{_OWN_FOLDER}.mobilenet",
    "resnet20": f"{_OWN_FOLDER}.resnet",
    "tiny_cnn": f"{_OWN_FOLDER}.tiny_cnn",
    "vgg11_bn": f"{_OWN_FOLDER}.vgg",
    "vit_small": f"{_OWN_FOLDER}.vit",
}


@dataclass(frozen=True)
class Backbone:
    """A named builder `(num_classes, image_shape) -> nn.Module`, where it is cut, how small images may be."""

    name: str
    build: Callable[[int, Sequence[int]], nn.Module]
    default_cut: str
    smallest_image: int


_BACKBONES: dict[str, Backbone] = {}


def register_backbone(name: str, *, default_cut: str, smallest_image: int = 1) -> Callable[[_Build], _Build]:
    """Decorator: make a builder `(num_classes, image_shape) -> nn.Module` available by name.

    Args:
        name: how configurations call it; a name in use raises ValueError.
        default_cut: layer behind which `build_split_model` cuts unless told otherwise.
        smallest_image: least height and width the network accepts.
    """

    def register(build: _Build) -> _Build:
        # Own backbones are imported on first use; their names are taken before that.
        if name in _BACKBONES or _OWN_BACKBONES.get(name, build.__module__) != build.__module__:
            raise ValueError(f"a backbone named '{name}' is registered already; choose another name")
        _BACKBONES[name] = Backbone(name, build, default_cut, smallest_image)
        return build

    return register


def get_backbone(name: str) -> Backbone:
    """The backbone registered under `name`; an unknown name raises with the nearest match."""
    if name in _OWN_BACKBONES:
        import_module(_OWN_BACKBONES[name])
    if name not in _BACKBONES:
        raise ValueError(f"unknown backbone '{name}'{did_you_mean(name, backbone_names(), limit=3)}")
    return _BACKBONES[name]


def backbone_names() -> list[str]:
    """Names of all backbones, own and registered, in alphabetical order.

    >>> backbone_names()
    [...'mobilenet_v2', ...'resnet20', ...'tiny_cnn', ...'vgg11_bn', ...'vit_small'...]
    """
    return sorted({*_OWN_BACKBONES, *_BACKBONES})


def build_split_model(
    name: str,
    num_classes: int,
    image_shape: Sequence[int],
    cut: str | None = None,
    bottleneck: Bottleneck | None = Bottleneck(8, "sigmoid"),  # noqa: B008 (frozen)
) -> SplitModel:
    """Make a backbone and cut it; the halves are checked to equal the whole before the bottleneck goes in.

    Args:
        name: one of `backbone_names()`.
        num_classes: width of the output.
        image_shape: (C, H, W) of the images.
        cut: layer behind which to cut; None takes the backbone's own.
        bottleneck: layers at the cut; None for a bare cut.

    >>> model = build_split_model("vgg11_bn", 10, (3, 32, 32))
    >>> model.z_shape((3, 32, 32)), sum(p.numel() for p in model.client.parameters())
    ((8, 8, 8), 85256)
    """
    backbone = get_backbone(name)
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    if len(image_shape) != 3 or min(image_shape) < 1:
        raise ValueError(f"image_shape must be (channels, height, width), got {tuple(image_shape)}")
    if min(image_shape[1:]) < backbone.smallest_image:
        raise ValueError(
            f"backbone '{name}' needs images of at least {backbone.smallest_image} px, "
            f"got {image_shape[1]}×{image_shape[2]}; choose a shallower backbone or larger images"
        )
    example = torch.zeros(2, *image_shape)
    model = backbone.build(num_classes, image_shape)
    return split(model, cut or backbone.default_cut, bottleneck=bottleneck, example=example)
