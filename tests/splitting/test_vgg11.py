from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attention_cem.splitting import build_split_model
from attention_cem.splitting.backbones.vgg import VGG11


def test_vgg11_bn__client_is_that_of_the_protocol():
    client = build_split_model("vgg11_bn", 10, (3, 32, 32)).client
    assert sum(each.numel() for each in client.parameters()) == 85_256
    kinds = [type(each).__name__ for each in client.modules() if not list(each.children())]
    block = ["Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"]
    assert kinds == [*block, *block, "Conv2d", "Sigmoid"]
    z = client(torch.rand(2, 3, 32, 32))
    assert z.shape == (2, 8, 8, 8)
    assert z.min() > 0
    assert z.max() < 1


def test_vgg11_bn__server_is_that_of_the_protocol():
    server = build_split_model("vgg11_bn", 10, (3, 32, 32)).server
    convolutions = [each for each in server.modules() if isinstance(each, nn.Conv2d)]
    widths = [(each.in_channels, each.out_channels) for each in convolutions]
    assert widths == [(8, 128), (128, 256), (256, 256), (256, 512), (512, 512), (512, 512), (512, 512)]
    linear = [(each.in_features, each.out_features) for each in server.modules() if isinstance(each, nn.Linear)]
    assert linear == [(512, 512), (512, 512), (512, 10)]
    assert sum(isinstance(each, nn.MaxPool2d) for each in server.modules()) == 3


def test_vgg11__pooling_changes_nothing_at_32_px():
    def without_pooling(model: VGG11, x: Tensor) -> Tensor:
        return model.classifier(model.features(x).flatten(1))

    model = VGG11(10).eval()
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(model(x), without_pooling(model, x))


@pytest.mark.parametrize("image_shape", [(1, 32, 32), (3, 48, 48), (3, 64, 40)])
def test_vgg11_bn__other_images(image_shape):
    model = build_split_model("vgg11_bn", 7, image_shape)
    assert model(torch.rand(2, *image_shape)).shape == (2, 7)


def test_vgg11_bn__too_small_images_are_refused():
    with pytest.raises(ValueError, match="at least 32 px, got 28×28"):
        build_split_model("vgg11_bn", 10, (1, 28, 28))
