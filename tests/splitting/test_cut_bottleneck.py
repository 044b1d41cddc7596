from __future__ import annotations

import pytest
import torch
from torch import nn

from attention_cem.splitting import Bottleneck, build_split_model, split


def test_bottleneck__spatial_z_gets_3x3_convolutions():
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Flatten(), nn.Linear(16 * 64, 2)).eval()
    halves = split(model, at="0", bottleneck=Bottleneck(4), example=torch.zeros(1, 3, 8, 8))
    assert [name for name, _ in halves.named_parameters()] == [
        "client.body.0.weight",
        "client.body.0.bias",
        "client.bottleneck.reduce.weight",
        "client.bottleneck.reduce.bias",
        "server.expand.weight",
        "server.expand.bias",
        "server.body.2.weight",
        "server.body.2.bias",
    ]
    reduce = halves.client.get_submodule("bottleneck.reduce")
    assert reduce.kernel_size == (3, 3)
    x = torch.randn(2, 3, 8, 8)
    z = halves.client(x)
    assert z.shape == (2, 4, 8, 8)
    assert torch.equal(z, torch.sigmoid(reduce(model[0](x))))
    assert torch.equal(halves(x), model[2](model[1](halves.server.get_submodule("expand")(z))))
    assert not any(module.training for module in halves.modules())


def test_bottleneck__without_activation_z_is_the_layer_itself():
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    x = torch.randn(3, 4)
    halves = split(model, at="0", bottleneck=Bottleneck(2, "none"), example=x)
    reduce = halves.client.get_submodule("bottleneck.reduce")
    expand = halves.server.get_submodule("expand")
    assert torch.equal(halves.client(x), reduce(model[0](x)))
    assert torch.equal(halves(x), model[1](expand(reduce(model[0](x)))))


def test_bottleneck__tokens_keep_their_number():
    model = build_split_model("vit_small", 10, (3, 32, 32), bottleneck=Bottleneck(8))
    assert model.z_shape((3, 32, 32)) == (64, 8)


def test_bottleneck__follows_the_dtype_of_the_model():
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)).double()
    x = torch.randn(3, 4, dtype=torch.double)
    assert split(model, at="0", bottleneck=Bottleneck(2), example=x)(x).dtype == torch.double


def test_bottleneck__bad_arguments():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Bottleneck(0)
    with pytest.raises(ValueError, match="'relu'"):
        Bottleneck(8, "relu")
    with pytest.raises(ValueError, match=r"got \(2, 3, 4, 5\)"):
        Bottleneck(8).layers((2, 3, 4, 5))
    with pytest.raises(ValueError, match="needs example"):
        split(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), at="0", bottleneck=Bottleneck(2))
