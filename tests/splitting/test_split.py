from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional as F

from attention_cem.splitting import SplitModel, get_backbone, list_cuts, split

IMAGE_SHAPE = (3, 32, 32)


class UserBlock(nn.Module):
    """A residual block as people write it: one shared in-place ReLU, a skip, a layer reused."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.conv1(x))
        out = self.norm(self.conv2(out))
        out += x
        return self.relu(out)


class UserResidualModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.block1 = UserBlock(8)
        self.block2 = UserBlock(8)
        self.scale = nn.Parameter(torch.full((1, 8, 1, 1), 0.5))
        self.register_buffer("shift", torch.full((1, 8, 1, 1), 0.1), persistent=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor, temperature: float = 2.0, mask: Tensor | None = None) -> Tensor:
        x = self.relu(self.stem(x))
        x = self.block1(x)
        x = x * self.scale.exp() + 2 * self.shift
        if mask is not None:
            x = x * mask
        x = self.block2(x)
        x = F.dropout(x.mean(dim=(2, 3)), 0.5, training=self.training)
        x = x.view(x.size(0), -1)
        return self.head(x) / temperature


def randomised(model: nn.Module) -> nn.Module:
    """Batch-norm statistics away from 0 and 1, so that a lost buffer shows."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model.eval()


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        *(("vgg11_bn", cut) for cut in ("features.0", "features.7", "classifier.2")),
        *(("resnet20", cut) for cut in ("stem.1", "stage2", "stage3.0")),
        *(("mobilenet_v2", cut) for cut in ("features.0", "features.4.layers.3", "features.10")),
        *(("vit_small", cut) for cut in ("tokens", "blocks.1", "norm")),
        *(("tiny_cnn", cut) for cut in ("features.3", "features.7", "pool")),
    ],
)
def test_split__backbones_are_reproduced(name, cut):
    torch.manual_seed(0)
    model = randomised(get_backbone(name).build(10, IMAGE_SHAPE))
    x = torch.randn(2, *IMAGE_SHAPE)
    halves = split(model, at=cut)
    with torch.no_grad():
        torch.testing.assert_close(halves(x), model(x), rtol=0, atol=1e-6)
    sizes = [sum(p.numel() for p in half.parameters()) for half in (halves.client, halves.server)]
    assert sum(sizes) == sum(p.numel() for p in model.parameters())
    assert min(sizes) > 0


@pytest.mark.parametrize("cut", ["stem", "block1", "block2"])
def test_split__user_residual_model_is_reproduced(cut):
    torch.manual_seed(0)
    model = randomised(UserResidualModel())
    x = torch.randn(2, *IMAGE_SHAPE)
    with torch.no_grad():
        torch.testing.assert_close(split(model, at=cut, example=x)(x), model(x), rtol=0, atol=1e-6)


def test_split__gradients_equal_those_of_the_whole():
    model = UserResidualModel().eval()
    x = torch.randn(2, *IMAGE_SHAPE)
    model(x).square().sum().backward()
    whole = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    split(model, at="block1")(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, whole[name], rtol=1e-6, atol=1e-6)


def test_split__parameters_and_buffers_are_the_models_own_under_their_names():
    model = UserResidualModel()
    halves = split(model, at="block1")
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    found = dict(halves.named_parameters()) | dict(halves.named_buffers())
    assert {name.split(".", 1)[1] for name in found} == set(own)
    for name, tensor in found.items():
        assert tensor is own[name.split(".", 1)[1]]


def test_split__non_persistent_buffer_stays_out_of_the_state_dict():
    model = UserResidualModel()
    state = split(model, at="block1").state_dict()
    assert {name.split(".", 1)[1] for name in state} == set(model.state_dict())


def test_split__model_is_left_as_it_was():
    class WithConstant(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x * torch.tensor(2.0)) + torch.arange(3)

    model = WithConstant(nn.Linear(4, 4), nn.Linear(4, 3)).train()
    model[1].eval()
    attributes = set(vars(model))
    halves = split(model, at="0", example=torch.randn(2, 4))
    assert set(vars(model)) == attributes
    assert (model.training, model[0].training, model[1].training) == (True, True, False)
    assert torch.equal(halves(torch.ones(1, 4)), model(torch.ones(1, 4)))


@pytest.mark.parametrize("training", [True, False])
def test_split__mode_is_that_of_the_model(training):
    model = UserResidualModel().train(training)
    halves = split(model, at="block1", example=torch.randn(2, *IMAGE_SHAPE))
    assert all(module.training == training for module in halves.modules())


def test_split__a_frozen_layer_stays_frozen():
    model = UserResidualModel().train()
    model.block1.norm.eval()
    halves = split(model, at="block1", example=torch.randn(2, *IMAGE_SHAPE))
    assert halves.training
    assert not halves.client.get_submodule("block1.norm").training


def test_split__functional_dropout_follows_the_mode():
    """Tracing bakes `self.training` into the graph; the halves must still switch."""
    torch.manual_seed(0)
    model = UserResidualModel().eval()
    halves = split(model, at="block1")
    x = torch.randn(2, *IMAGE_SHAPE)
    assert torch.equal(halves(x), halves(x))
    halves.train()
    assert not torch.equal(halves(x), halves(x))
    halves.eval()
    assert torch.equal(halves(x), halves(x))


def test_split__in_place_layer_behind_the_cut_does_not_change_z():
    model = UserResidualModel().eval()
    halves = split(model, at="stem")
    z = halves.client(torch.randn(2, *IMAGE_SHAPE)).detach()
    before = z.clone()
    halves.server(z)
    assert before.min() < 0
    assert torch.equal(z, before)


class InPlace(nn.Module):
    """Layers for forwards that work in place in ways people write."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(4 * 8 * 8, 5)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("centre", torch.zeros(4, 1, 1))


class ThroughAView(InPlace):
    def forward(self, x: Tensor) -> Tensor:
        z = self.second(self.first(x)).flatten(1)
        return self.head(self.relu(z))


class ThroughALayer(InPlace):
    def __init__(self) -> None:
        super().__init__()
        self.rest = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        z = self.second(self.first(x))
        for layer in self.rest:
            z = layer(z)
        return self.head(z)


class Clamped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clamp_(min=0)


class ThroughOwnCode(InPlace):
    def __init__(self) -> None:
        super().__init__()
        self.clamped = Clamped()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.clamped(self.second(self.first(x))).flatten(1))


@pytest.mark.parametrize("kind", [ThroughAView, ThroughALayer, ThroughOwnCode])
def test_split__what_works_in_place_farther_behind_the_cut_does_not_change_z(kind):
    # broke: only the layer right behind the cut was looked at, so that a ReLU behind .flatten(1) wrote into z
    halves = split(kind().eval(), at="second")
    z = halves.client(torch.randn(2, 3, 8, 8)).detach().requires_grad_()
    before = z.detach().clone()
    halves.server(z).sum().backward()
    assert before.min() < 0
    assert torch.equal(z, before)


class ResultUnused(InPlace):
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x.relu_()
        shortcut = x = self.second(x)
        self.relu(x)
        x = x.flatten(1)
        x.add_(shortcut.abs().flatten(1))
        return self.head(x)


@pytest.mark.parametrize("cut", ["first", "second"])
def test_split__an_in_place_operation_whose_result_is_not_used_is_kept(cut):
    # broke: `x.relu_()` on a line of its own was left out of the halves
    model, x = ResultUnused().eval(), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(split(model, at=cut)(x), model(x))


class Remembering(InPlace):
    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        x = self.first(x) - self.centre
        z = self.second(x)
        self.centre.lerp_(x.detach().mean((0, 2, 3)).view(4, 1, 1), 0.1)
        return self.head(z.flatten(1))


class CountingBehind(InPlace):
    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        return self.head(self.second(self.first(x)).flatten(1)) * self.seen


@pytest.mark.parametrize("kind", [Remembering, CountingBehind])
def test_split__buffers_that_forward_writes_to_are_written_to_by_the_halves(kind):
    # broke: they stayed as they were, without a word
    torch.manual_seed(0)
    model, x = kind(), torch.randn(2, 3, 8, 8)
    halves = split(copy.deepcopy(model), at="second")
    for _ in range(3):
        torch.testing.assert_close(halves(x), model(x))
    found = {name.split(".", 1)[1]: value for name, value in halves.named_buffers()}
    assert float(found["seen"]) == 3
    for name, value in found.items():
        torch.testing.assert_close(value, dict(model.named_buffers())[name])


def test_split__survives_to_deepcopy_and_a_safetensors_round_trip():
    torch.manual_seed(0)
    first = split(randomised(UserResidualModel()), at="block1").to(torch.float64)
    x = torch.randn(2, *IMAGE_SHAPE, dtype=torch.float64)
    expected = first(x)
    assert expected.dtype == torch.float64
    assert torch.equal(copy.deepcopy(first)(x), expected)
    second = split(UserResidualModel().eval(), at="block1").to(torch.float64)
    assert not torch.equal(second(x), expected)
    second.load_state_dict(load(save(first.state_dict())))
    assert torch.equal(second(x), expected)


def test_split__untraceable_parts_that_do_not_hold_the_cut_stay_whole():
    class Moody(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    model = nn.Sequential(nn.Linear(4, 4), Moody(), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    assert torch.equal(split(model, at="0", example=x)(x), model(x))


def test_split_model__z_shape_leaves_the_client_untouched():
    client = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4))
    before = copy.deepcopy(client.state_dict())
    assert SplitModel(client, nn.Identity()).z_shape(IMAGE_SHAPE) == (4, 15, 15)
    assert client.training
    assert all(torch.equal(before[name], each) for name, each in client.state_dict().items())


def test_list_cuts__every_listed_cut_works_and_is_described():
    model = randomised(UserResidualModel())
    x = torch.randn(2, *IMAGE_SHAPE)
    cuts = list_cuts(model, x)
    assert [cut.name for cut in cuts] == ["stem", "relu", "block1", "block2", "head"]
    for cut in cuts:
        halves = split(model, at=cut.name, example=x)
        assert halves.client(x).shape[1:] == cut.z_shape
        assert sum(p.numel() for p in halves.client.parameters()) == cut.client_parameters


def test_list_cuts__a_layer_that_returns_no_tensor_is_left_out():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = nn.Linear(4, 4)
            self.lstm = nn.LSTM(4, 4, batch_first=True)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(self.before(x))[0])

    assert [cut.name for cut in list_cuts(Recurrent(), torch.randn(2, 3, 4))] == ["before"]
    with pytest.raises(ValueError, match="'lstm' returns a tuple; z must be one tensor"):
        split(Recurrent(), at="lstm", example=torch.randn(2, 3, 4))
