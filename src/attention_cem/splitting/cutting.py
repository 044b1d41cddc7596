"""Cut any traceable model at a named layer: `split(model, at="features.7")`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attention_cem.splitting.bottleneck import Bottleneck
from attention_cem.splitting.partition import CrossingError, Partition, partition
from attention_cem.splitting.split_model import SplitModel, evaluating
from attention_cem.splitting.tracing import without_constants


@dataclass(frozen=True)
class Cut:
    """A place where a model can be cut: layer name, shape of one sample's z, size of the client half."""

    name: str
    z_shape: tuple[int, ...]
    client_parameters: int


def split(
    model: nn.Module,
    at: str,
    *,
    bottleneck: Bottleneck | None = None,
    example: Tensor | None = None,
) -> SplitModel:
    """Cut `model` behind the layer called `at`: z is that layer's output.

    The halves hold the model's own parameters and buffers (not copies) under their own names, in the mode
    (train or eval) each layer is in. Where layers behind the cut may work in place, they work on a copy of z.

    Args:
        model: any module whose forward can be traced by torch.fx in the modules around `at`; all other
            modules stay whole and may do anything.
        at: name of a layer as in `model.named_modules()`.
        bottleneck: optional pair of layers to put at the cut (needs `example` for the width of z).
        example: a batch of inputs; when given, the halves are checked to give the whole model's output.

    Raises:
        ValueError: unknown, unused or repeatedly called layer; control flow that depends on data; a skip
            connection or a shared weight across the cut; halves that do not reproduce the model.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> halves = split(model, at="1", example=torch.zeros(2, 4))
    >>> halves.client(torch.zeros(2, 4)).shape
    torch.Size([2, 8])
    >>> halves.server.get_submodule("2").weight is model[2].weight
    True
    """
    with without_constants(model):
        try:
            divided = partition(model, at)
        except CrossingError as error:
            raise ValueError(f"{error}. {_nearby(model, at)}") from None
        client: nn.Module = divided.client()
        server: nn.Module = divided.server()
    if example is not None:
        _check_equal(model, client, server, at, example)
    if bottleneck is not None:
        if example is None:
            raise ValueError("split(..., bottleneck=...) needs example=<a batch of inputs> for the width of z")
        client, server = _narrowed(client, server, bottleneck, example)
    halves = SplitModel(client, server)
    originals = {id(each) for each in model.modules()}
    for each in halves.modules():
        if id(each) not in originals:
            each.training = model.training
    return halves


def list_cuts(model: nn.Module, example: Tensor) -> list[Cut]:
    """Every layer name `split` accepts, in the order of `model.named_modules()`.

    Args:
        model: the whole model.
        example: a batch of inputs; the model is run on it once, in eval mode.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> list_cuts(model, torch.zeros(2, 4))
    [Cut(name='0', z_shape=(8,), client_parameters=40), Cut(name='1', z_shape=(8,), client_parameters=40)]
    """
    divided, obstacle = _partitions(model)
    if not divided and obstacle is not None:
        raise ValueError(f"{type(model).__name__} has no layer to cut at: {obstacle}") from obstacle
    outputs: dict[str, Any] = {}

    def keep(name: str, module: nn.Module, args: Any, output: Any) -> None:
        outputs[name] = output

    handles = [model.get_submodule(name).register_forward_hook(partial(keep, name)) for name in divided]
    try:
        with evaluating(model), torch.no_grad():
            model(example)
    finally:
        for handle in handles:
            handle.remove()
    return [
        Cut(name, tuple(outputs[name].shape[1:]), each.client_parameters())
        for name, each in divided.items()
        if isinstance(outputs[name], Tensor)
    ]


def _partitions(model: nn.Module) -> tuple[dict[str, Partition], ValueError | None]:
    """All possible cuts by layer name, and the first obstacle met."""
    found: dict[str, Partition] = {}
    first_obstacle: ValueError | None = None
    with without_constants(model):
        for name, _ in model.named_modules():
            if not name:
                continue
            try:
                found[name] = partition(model, name)
            except ValueError as error:
                first_obstacle = first_obstacle or error
    return found, first_obstacle


def _nearby(model: nn.Module, at: str) -> str:
    """The valid cuts just before and just behind a layer at which the model cannot be cut."""
    valid, _ = _partitions(model)
    names = [name for name, _ in model.named_modules()]
    here = names.index(at) if at in names else 0
    # A module around the layer comes before it in the list but ends behind it.
    around = [name for name in valid if at.startswith(f"{name}.")]
    earlier = [name for name in names[:here] if name in valid and name not in around]
    later = [name for name in names[here + 1 :] if name in valid]
    suggestions = earlier[-1:] + (around[-1:] or later[:1])
    if not suggestions:
        return "No layer of this model can be cut without such a crossing."
    return "Cut at " + " or ".join(repr(name) for name in suggestions) + " instead."


def _check_equal(model: nn.Module, client: nn.Module, server: nn.Module, at: str, example: Tensor) -> None:
    with evaluating(model), evaluating(client), evaluating(server), torch.no_grad():
        whole = model(example)
        z = client(example)
        if not isinstance(z, Tensor):
            raise ValueError(f"layer '{at}' returns a {type(z).__name__}; z must be one tensor, cut elsewhere")
        try:
            torch.testing.assert_close(server(z), whole, rtol=1e-6, atol=1e-6, equal_nan=True)
        except AssertionError as error:
            raise ValueError(
                f"the halves cut at '{at}' do not reproduce the whole model in eval mode "
                f"(is its forward random, or does it change state?): {error}"
            ) from None
        except TypeError:
            raise ValueError(
                f"{type(model).__name__} returns a {type(whole).__name__}, which cannot be compared; let its forward "
                "return a tensor, or leave example out"
            ) from None


def _narrowed(
    client: nn.Module, server: nn.Module, bottleneck: Bottleneck, example: Tensor
) -> tuple[nn.Module, nn.Module]:
    with evaluating(client), torch.no_grad():
        z = client(example)
    client_side, server_side = bottleneck.layers(z.shape[1:])
    narrow_client, wide_server = nn.Sequential(), nn.Sequential()
    narrow_client.add_module("body", client)
    narrow_client.add_module("bottleneck", client_side.to(z))
    wide_server.add_module("expand", server_side.to(z))
    wide_server.add_module("body", server)
    return narrow_client, wide_server
