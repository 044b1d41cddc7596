from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

from attention_cem.attacks.client_recipe import build_client, client_recipe
from attention_cem.data import Normalise
from attention_cem.splitting import Bottleneck, backbone_names, build_split_model


@pytest.mark.parametrize("name", backbone_names())
@pytest.mark.parametrize("bottleneck", [Bottleneck(8), None])
def test_client_recipe__every_backbone_survives_json(name: str, bottleneck: Bottleneck | None) -> None:
    torch.manual_seed(0)
    client = build_split_model(name, 10, (3, 32, 32), bottleneck=bottleneck).client
    for module in client.modules():  # statistics that a fresh network has not: a recipe must carry them
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    recipe, tensors = client_recipe(client)
    rebuilt = build_client(json.loads(json.dumps(recipe)), tensors)
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(rebuilt(x), client.eval()(x))


def test_client_recipe__keeps_the_callers_mode_and_own_layers() -> None:
    client = nn.Sequential(Normalise([0.5] * 3, [0.25] * 3), nn.Conv2d(3, 4, 3), nn.Dropout(0.5)).train()
    recipe, tensors = client_recipe(client)
    assert client.training
    x = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(build_client(recipe, tensors)(x), client.eval()(x))


def test_client_recipe__rebuilt_client_gives_gradients_to_pixels_only() -> None:
    recipe, tensors = client_recipe(nn.Conv2d(3, 4, 3))
    rebuilt = build_client(recipe, tensors)
    x = torch.rand(1, 3, 8, 8, requires_grad=True)
    rebuilt(x).sum().backward()
    assert x.grad is not None and bool((x.grad != 0).any())
    assert not any(parameter.requires_grad for parameter in rebuilt.parameters())


class _Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class _Unknown(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x)


@pytest.mark.parametrize(("client", "told"), [(_Branching(), "white_box=False"), (_Unknown(), "svdvals")])
def test_client_recipe__says_what_it_cannot_write(client: nn.Module, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        client_recipe(client)


HOSTILE = [
    ({"kind": "function", "function": "os.system", "inputs": ["true"], "options": {}}, "not supported"),
    ({"kind": "method", "method": "__reduce__", "inputs": [{"step": 0}], "options": {}}, "not supported"),
    ({"kind": "function", "function": "getattr", "inputs": [{"step": 0}, "__class__"], "options": {}}, "__class__"),
    ({"kind": "method", "method": "relu", "inputs": [{"step": 1}], "options": {}}, "not known yet"),
    ({"kind": "method", "method": "relu", "inputs": [], "options": {}}, "method of nothing"),
    ({"kind": "import", "inputs": [], "options": {}}, "no known kind"),
    ({"kind": "layer", "layer": "Module", "arguments": {}, "weights": "a", "inputs": [], "options": {}}, "not supp"),
    ({"kind": "layer", "layer": "Linear", "arguments": {"in_features": 10**9, "out_features": 10**9}, "weights": "a",
      "inputs": [{"step": 0}], "options": {}}, "not stored"),
    ({"kind": "layer", "layer": "Linear", "arguments": {"in_features": 9, "out_features": 9, "device": "cpu"},
      "weights": "a", "inputs": [{"step": 0}], "options": {}}, "must not choose its device or dtype"),
    ({"kind": "function", "function": ["x"], "inputs": [], "options": {}}, "not supported"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "told"), HOSTILE)
def test_build_client__refuses_hostile_steps(step: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build_client({"version": 1, "steps": [{"kind": "input"}, step], "output": {"step": 1}}, {})


@pytest.mark.parametrize(
    ("name", "inputs"), [("pow", [7, 10**9]), ("mul", [[0], 10**12]), ("mul", [2**50, 2**50]), ("add", ["a", "b"])]
)
def test_rebuilt_client__computes_nothing_large_without_a_tensor(name: str, inputs: list) -> None:
    step = {"kind": "function", "function": f"operator.{name}", "inputs": inputs, "options": {}}
    client = build_client({"version": 1, "steps": [{"kind": "input"}, step], "output": {"step": 0}}, {})
    with pytest.raises(ValueError, match="a tensor or small numbers are expected"):
        client(torch.zeros(1, 3, 4, 4))


def test_build_client__refuses_misshapen_weights_and_other_versions() -> None:
    recipe, tensors = client_recipe(nn.Sequential(nn.Conv2d(3, 4, 3)))
    with pytest.raises(ValueError, match="cannot be rebuilt"):
        build_client(recipe, {**tensors, "0.weight": torch.zeros(1)})
    later = {**copy.deepcopy(recipe), "version": 99}
    with pytest.raises(ValueError, match="version 99"):
        build_client(later, tensors)
