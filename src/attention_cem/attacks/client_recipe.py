"""A client as plain data: a list of steps in JSON plus named tensors; read without running anybody's code.

Every step is one of ``input``, ``layer`` (a ``torch.nn`` class, its arguments and the prefix of its weights),
``function`` and ``method`` (names as in torch) or ``tensor`` (a stored parameter). ``inputs`` and ``options`` are
the positional and keyword arguments; ``{"step": i}`` stands for the result of step i, ``{"slice": [a, b, c]}``
for a slice, ``{"dtype": "float32"}`` for a type and ``{"ellipsis": true}`` for ``...``.
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from attention_cem.attacks.recipe_vocabulary import ATTRIBUTES, FUNCTIONS, LAYERS, METHODS, NAME_OF_FUNCTION
from attention_cem.splitting.split_model import evaluating

RECIPE_VERSION = 1


class _LayerTracer(fx.Tracer):
    """Traces down to the layers the recipe knows; everything around them becomes steps."""

    proxy_buffer_attributes = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in LAYERS.values()


_LARGEST_NUMBER = 2**40  # in what a recipe computes of shapes


def client_recipe(client: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Describe a client in evaluation mode as plain data and tensors.

    Args:
        client: a module built of the layers and functions listed in `recipe_vocabulary`, traceable by torch.fx.

    Returns:
        The recipe, fit for JSON, and the tensors it names.

    Raises:
        ValueError: the client does something the recipe has no word for; the message names it.

    >>> recipe, tensors = client_recipe(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sigmoid()))
    >>> [step["kind"] for step in recipe["steps"]], sorted(tensors)
    (['input', 'layer', 'layer'], ['0.bias', '0.weight'])
    >>> x = torch.rand(2, 3, 8, 8)
    >>> build_client(recipe, tensors)(x).shape
    torch.Size([2, 8, 6, 6])
    """
    if type(client) in LAYERS.values():
        client = nn.Sequential(client)  # a layer is only a step where it is called by another module
    with evaluating(client):
        try:
            graph = _LayerTracer().trace(client)
        except Exception as error:
            raise ValueError(
                f"{type(client).__name__} cannot be written as a recipe of layers: {error}. "
                "Write the challenge with white_box=False, or build the client of torch.nn layers"
            ) from error
        steps: list[dict[str, Any]] = []
        tensors: dict[str, Tensor] = {}
        place: dict[fx.Node, int] = {}
        for node in graph.nodes:
            if node.op == "output":
                return {"version": RECIPE_VERSION, "steps": steps, "output": _encoded(node.args[0], place)}, tensors
            step, named = _step_of(node, client, place)
            tensors.update(named)
            place[node] = len(steps)
            steps.append(step)
    raise ValueError(f"{type(client).__name__} has no output")


def build_client(recipe: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> RebuiltClient:
    """Rebuild the client from what :func:`client_recipe` returned; frozen, in evaluation mode.

    Raises:
        ValueError: a recipe of another version, an unknown layer or function, a missing or misshapen tensor.
    """
    if recipe.get("version") != RECIPE_VERSION:
        raise ValueError(f"this recipe has version {recipe.get('version')!r}, expected {RECIPE_VERSION}")
    steps = recipe.get("steps")
    if not isinstance(steps, list) or not steps or "output" not in recipe:
        raise ValueError("a recipe needs a list of steps and an output")
    for index, step in enumerate(steps):
        _check_step(step, index)
    _check_references(recipe["output"], len(steps))
    return RebuiltClient(recipe, tensors).eval().requires_grad_(False)


class RebuiltClient(nn.Module):
    """Runs a recipe step by step. No code is generated: a hostile recipe can at most name unknown steps."""

    def __init__(self, recipe: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._steps: list[Mapping[str, Any]] = list(recipe["steps"])
        self._output = recipe["output"]
        self.layers = nn.ModuleDict()
        self.tensors = nn.ParameterDict()
        by_weights: dict[str, nn.Module] = {}
        for index, step in enumerate(self._steps):
            if step["kind"] == "layer":
                prefix = step["weights"]
                if prefix not in by_weights:
                    by_weights[prefix] = _built_layer(step, tensors)
                self.layers[str(index)] = by_weights[prefix]
            elif step["kind"] == "tensor":
                self.tensors[str(index)] = nn.Parameter(_named_tensor(tensors, step["weights"]), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images in, z out, as the client the recipe was made of."""
        results: list[Any] = []
        for index, step in enumerate(self._steps):
            kind = step["kind"]
            if kind == "input":
                results.append(x)
                continue
            if kind == "tensor":
                results.append(self.tensors[str(index)])
                continue
            inputs = _decoded(step["inputs"], results)
            options = {key: _decoded(value, results) for key, value in step["options"].items()}
            if kind == "layer":
                results.append(self.layers[str(index)](*inputs, **options))
            elif kind == "function":
                results.append(_called(step["function"], inputs, options))
            else:
                results.append(getattr(inputs[0], step["method"])(*inputs[1:], **options))
        return _decoded(self._output, results)


def _called(name: str, inputs: list[Any], options: Mapping[str, Any]) -> Any:
    """A function's result; of operators without a tensor only what shapes need: small whole numbers."""
    plain = name.startswith("operator.") and not any(isinstance(each, Tensor) for each in inputs)
    if plain and name != "operator.getitem":
        numbers = all(isinstance(each, int | float) and abs(each) <= _LARGEST_NUMBER for each in inputs)
        if name == "operator.pow" or not numbers:
            raise ValueError(
                f"the recipe calls {name} on {inputs!r:.100}, where a tensor or small numbers are expected"
            )
    return FUNCTIONS[name](*inputs, **options)


def _step_of(
    node: fx.Node, client: nn.Module, place: Mapping[fx.Node, int]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if node.op == "placeholder":
        if place and any(each.op == "placeholder" for each in place):
            raise ValueError(f"{type(client).__name__} takes several inputs; a client has one")
        return {"kind": "input"}, {}
    if node.op == "get_attr":
        tensor: Any = client
        for part in str(node.target).split("."):
            tensor = getattr(tensor, part)
        return {"kind": "tensor", "weights": str(node.target)}, {str(node.target): tensor.detach().clone()}
    call = {
        "inputs": _encoded(list(node.args), place),
        "options": {key: _encoded(value, place) for key, value in node.kwargs.items()},
    }
    if node.op == "call_module":
        path = str(node.target)
        layer = client.get_submodule(path)
        state = {f"{path}.{key}": value.detach().clone() for key, value in layer.state_dict().items()}
        head = {"kind": "layer", "layer": type(layer).__name__, "arguments": _arguments(layer), "weights": path}
        return {**head, **call}, state
    if node.op == "call_method":
        step = {"kind": "method", "method": str(node.target), **call}
    else:
        name = NAME_OF_FUNCTION.get(id(node.target))
        if name is None:
            raise ValueError(
                f"{type(client).__name__} calls {getattr(node.target, '__name__', node.target)}, which a recipe "
                "cannot name; write the challenge with white_box=False"
            )
        step = {"kind": "function", "function": name, **call}
    _check_step(step, len(place))
    return step, {}


def _arguments(layer: nn.Module) -> dict[str, Any]:
    """Constructor arguments, read back from the attributes that torch's layers keep them in."""
    arguments: dict[str, Any] = {}
    for name in inspect.signature(type(layer).__init__).parameters:
        if name in ("self", "device", "dtype") or not hasattr(layer, name):
            continue
        value = getattr(layer, name)
        if name == "bias":
            value = value is not None
        elif name == "inplace":
            value = False
        elif isinstance(value, Tensor):
            value = value.flatten().tolist()
        arguments[name] = _encoded(value, {})
    return arguments


def _encoded(value: Any, place: Mapping[fx.Node, int]) -> Any:
    if isinstance(value, fx.Node):
        return {"step": place[value]}
    if isinstance(value, (list, tuple)):
        return [_encoded(each, place) for each in value]
    if isinstance(value, slice):
        return {"slice": [_encoded(each, place) for each in (value.start, value.stop, value.step)]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if value is Ellipsis:
        return {"ellipsis": True}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"a recipe cannot hold a {type(value).__name__}; write the challenge with white_box=False")


def _decoded(value: Any, results: list[Any]) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(each, results) for each in value)
    if not isinstance(value, dict):
        return value
    if "step" in value:
        return results[value["step"]]
    if "slice" in value:
        return slice(*_decoded(value["slice"], results))
    if "dtype" in value and isinstance(found := getattr(torch, str(value["dtype"]), None), torch.dtype):
        return found
    if "ellipsis" in value:
        return Ellipsis
    raise ValueError(f"a recipe's value must be plain, a step, a slice or a dtype, got {value!r}")


def _check_step(step: Any, index: int) -> None:
    if not isinstance(step, Mapping) or step.get("kind") not in ("input", "layer", "function", "method", "tensor"):
        raise ValueError(f"step {index} of the recipe is of no known kind: {step!r:.200}")
    kind = step["kind"]
    if kind in ("layer", "tensor") and not isinstance(step.get("weights"), str):
        raise ValueError(f"step {index} of the recipe must name its weights")
    if kind in ("input", "tensor"):
        return
    if not isinstance(step.get("inputs"), list) or not isinstance(step.get("options"), dict):
        raise ValueError(f"step {index} of the recipe must list its inputs and options")
    _check_references([step["inputs"], *step["options"].values()], index)
    if kind == "layer" and not isinstance(step.get("arguments"), dict):
        raise ValueError(f"step {index} of the recipe must name the arguments of its layer")
    if kind == "method" and not step["inputs"]:
        raise ValueError(f"step {index} of the recipe calls a method of nothing")
    known: Container[Any] = {"layer": set(LAYERS), "function": set(FUNCTIONS), "method": METHODS}[kind]
    if not isinstance(step.get(kind), str) or step[kind] not in known:
        raise ValueError(f"step {index} of the recipe names the {kind} {step.get(kind)!r}, which is not supported")
    attribute = step["inputs"][1] if step.get("function") == "getattr" and len(step["inputs"]) == 2 else None
    if step.get("function") == "getattr" and (not isinstance(attribute, str) or attribute not in ATTRIBUTES):
        raise ValueError(f"step {index} of the recipe reads the attribute {attribute!r}; only shape and ndim may be")


def _check_references(value: Any, index: int) -> None:
    """Every step a value names must come before step ``index``."""
    if isinstance(value, list):
        for each in value:
            _check_references(each, index)
    elif isinstance(value, dict) and "step" in value:
        place = value["step"]
        if type(place) is not int or not 0 <= place < index:
            raise ValueError(f"step {index} of the recipe uses the result of step {place!r}, which is not known yet")
    elif isinstance(value, dict) and "slice" in value:
        _check_references(value["slice"], index)


def _built_layer(step: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> nn.Module:
    arguments = {str(key): _decoded(value, []) for key, value in step["arguments"].items()}
    if {"device", "dtype"} & set(arguments):
        raise ValueError(f"layer {step['weights']!r} ({step['layer']}) must not choose its device or dtype")
    try:
        # On the meta device a hostile size costs nothing; the stored tensors then bring the memory.
        with torch.device("meta"):
            layer = LAYERS[step["layer"]](**arguments)
        state = {key: _named_tensor(tensors, f"{step['weights']}.{key}") for key in layer.state_dict()}
        layer.load_state_dict(state, assign=True)
    except (TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"layer {step['weights']!r} ({step['layer']}) cannot be rebuilt: {error}") from error
    return layer


def _named_tensor(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise ValueError(f"the recipe names the tensor {name!r}, which is not stored")
    return tensors[name]
