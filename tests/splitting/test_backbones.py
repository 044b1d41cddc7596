from __future__ import annotations

import pytest
import torch

from attention_cem.splitting import (
    backbone_names,
    build_split_model,
    get_backbone,
    list_cuts,
    register_backbone,
    registry,
)
from attention_cem.splitting.backbones.mobilenet import MobileNetV2
from attention_cem.splitting.backbones.resnet import ResNet20
from attention_cem.splitting.backbones.tiny_cnn import TinyCNN
from attention_cem.splitting.backbones.vit import PatchTokens, SelfAttention


def parameter_count(module: torch.nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def test_resnet20__size_as_published():
    """0.27 million (arXiv 1512.03385, table 6); 269,722 without parameters in the shortcuts."""
    assert parameter_count(ResNet20(10)) == 269_722


def test_mobilenet_v2__size_as_published():
    """About 3.5 million for 1000 classes at width 1.0 (arXiv 1801.04381 counts 3.4)."""
    assert parameter_count(MobileNetV2(1000)) == 3_504_872


def test_self_attention__equals_torch_multihead_attention():
    torch.manual_seed(0)
    own = SelfAttention(width=16, heads=4)
    reference = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    reference.in_proj_weight.data.copy_(own.qkv.weight)
    reference.in_proj_bias.data.copy_(own.qkv.bias)
    reference.out_proj.load_state_dict(own.project.state_dict())
    tokens = torch.randn(2, 9, 16)
    expected = reference(tokens, tokens, tokens, need_weights=False)[0]
    torch.testing.assert_close(own(tokens), expected, rtol=1e-5, atol=1e-6)


def test_patch_tokens__run_row_by_row():
    layer = PatchTokens((1, 4, 8), patch=4, width=1)
    torch.nn.init.constant_(layer.project.weight, 1 / 16)
    torch.nn.init.zeros_(layer.project.bias)
    torch.nn.init.zeros_(layer.position)
    image = torch.cat([torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4)], dim=3)
    torch.testing.assert_close(layer(image).flatten(), torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match="do not tile"):
        PatchTokens((1, 5, 8), patch=4, width=1)


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet20", "tiny_cnn", "vgg11_bn", "vit_small"])
@pytest.mark.parametrize("image_shape", [(3, 32, 32), (1, 48, 40)])
def test_build_split_model__own_backbones_train(name, image_shape):
    torch.manual_seed(0)
    model = build_split_model(name, 6, image_shape)
    assert model.training
    logits = model(torch.rand(2, *image_shape))
    assert logits.shape == (2, 6)
    torch.nn.functional.cross_entropy(logits, torch.tensor([0, 5])).backward()
    assert all(each.grad is not None for each in model.parameters())


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet20", "tiny_cnn", "vgg11_bn", "vit_small"])
def test_list_cuts__holds_the_default_cut(name):
    backbone = get_backbone(name)
    cuts = list_cuts(backbone.build(4, (3, 32, 32)), torch.zeros(1, 3, 32, 32))
    assert backbone.default_cut in {cut.name for cut in cuts}
    assert len(cuts) >= 3


def test_tiny_cnn__client_of_the_face_demonstration():
    model = build_split_model("tiny_cnn", 40, (1, 64, 64))
    assert model.z_shape((1, 64, 64)) == (8, 16, 16)
    assert parameter_count(model) < 400_000


def test_build_split_model__cut_and_bottleneck_can_be_chosen():
    model = build_split_model("tiny_cnn", 4, (3, 32, 32), cut="features.3", bottleneck=None)
    assert model.z_shape((3, 32, 32)) == (32, 16, 16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vgg11", 10, (3, 32, 32)), "unknown backbone 'vgg11'; did you mean 'vgg11_bn'"),
        (("tiny_cnn", 0, (3, 32, 32)), "num_classes must be at least 1"),
        (("tiny_cnn", 10, (32, 32)), "image_shape must be"),
        (("tiny_cnn", 10, (3, 32, 4)), "at least 8 px"),
        (("tiny_cnn", 10, (3, 32, 32), "features.70"), "did you mean 'features.7'"),
    ],
)
def test_build_split_model__bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_split_model(*arguments)


def test_register_backbone__user_backbone_by_name(monkeypatch):
    monkeypatch.setattr(registry, "_BACKBONES", dict(registry._BACKBONES))

    @register_backbone("my_net", default_cut="features.3")
    def my_net(num_classes, image_shape):
        return TinyCNN(num_classes, image_shape[0])

    assert "my_net" in backbone_names()
    assert build_split_model("my_net", 3, (1, 16, 16)).z_shape((1, 16, 16)) == (8, 8, 8)
    with pytest.raises(ValueError, match="'my_net' is registered already"):
        register_backbone("my_net", default_cut="pool")(my_net)
    with pytest.raises(ValueError, match="'vgg11_bn' is registered already"):
        register_backbone("vgg11_bn", default_cut="pool")(my_net)
