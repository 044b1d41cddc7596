"""The words a recipe may use: layers, functions and methods that touch nothing but tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from attention_cem.data.pixels import Normalise
from attention_cem.splitting import BlindInput

_LAYER_NAMES = [
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose2d",
    "Dropout",
    "Dropout2d",
    "ELU",
    "Flatten",
    "GELU",
    "GroupNorm",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "Identity",
    "InstanceNorm2d",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MaxPool2d",
    "Mish",
    "PReLU",
    "PixelShuffle",
    "PixelUnshuffle",
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "Unflatten",
    "Upsample",
    "ZeroPad2d",
]
LAYERS: dict[str, type[nn.Module]] = {name: getattr(nn, name) for name in _LAYER_NAMES} | {
    "BlindInput": BlindInput,
    "Normalise": Normalise,
}

_TORCH_NAMES = [
    "abs",
    "add",
    "bmm",
    "cat",
    "chunk",
    "clamp",
    "div",
    "einsum",
    "exp",
    "flatten",
    "log",
    "matmul",
    "mean",
    "mul",
    "permute",
    "pow",
    "relu",
    "reshape",
    "sigmoid",
    "softmax",
    "split",
    "sqrt",
    "squeeze",
    "stack",
    "sub",
    "sum",
    "tanh",
    "transpose",
    "unsqueeze",
    "var",
]
_FUNCTIONAL_NAMES = [
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "avg_pool2d",
    "dropout",
    "elu",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "interpolate",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "max_pool2d",
    "mish",
    "normalize",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "relu",
    "relu6",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
_OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "neg", "matmul", "getitem", "pow"]
FUNCTIONS: dict[str, Callable[..., Any]] = (
    {f"torch.{name}": getattr(torch, name) for name in _TORCH_NAMES}
    | {f"torch.nn.functional.{name}": getattr(F, name) for name in _FUNCTIONAL_NAMES}
    | {f"operator.{name}": getattr(operator, name) for name in _OPERATORS}
    | {"getattr": getattr}
)
NAME_OF_FUNCTION = {id(function): name for name, function in FUNCTIONS.items()}
METHODS = frozenset(
    [
        "abs",
        "add",
        "chunk",
        "clamp",
        "clone",
        "contiguous",
        "dim",
        "div",
        "exp",
        "expand",
        "flatten",
        "float",
        "log",
        "matmul",
        "mean",
        "mul",
        "permute",
        "pow",
        "relu",
        "repeat",
        "reshape",
        "sigmoid",
        "size",
        "softmax",
        "split",
        "sqrt",
        "square",
        "squeeze",
        "sub",
        "sum",
        "tanh",
        "transpose",
        "unbind",
        "unflatten",
        "unsqueeze",
        "var",
        "view",
    ]
)
ATTRIBUTES = frozenset({"shape", "ndim"})  # getattr on anything else could reach outside the tensor
