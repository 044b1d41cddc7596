"""A flat graph of a model's forward in which one named layer is a single node.

Only the modules that *contain* the layer are traced into; all others stay whole. What they do inside
(control flow, custom kernels) is then no obstacle, and parameters keep their names.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

_TORCH_FOLDER = str(Path(torch.__file__).parent)
_CONSTANT_PREFIX = "_tensor_constant"


class _LayerTracer(fx.Tracer):
    """Traces into the given modules only, with the first argument of forward as the one input."""

    # Without this, arithmetic on a buffer runs once at tracing time and its result is baked in.
    proxy_buffer_attributes = True

    def __init__(self, traced_into: list[nn.Module]) -> None:
        super().__init__()
        self._traced_into = {id(module) for module in traced_into}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return id(m) not in self._traced_into

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        first, *others = list(inspect.signature(root_fn).parameters.values())[1:]
        args: list[Any] = [self.root, self.create_proxy("placeholder", first.name, (), {})]
        args += [other.default for other in others if other.kind is other.POSITIONAL_OR_KEYWORD]
        return root_fn, args


def enclosing_modules(model: nn.Module, layer: str) -> list[nn.Module]:
    """The modules around `layer`, outermost (the model itself) first."""
    parts = layer.split(".")
    return [model.get_submodule(".".join(parts[:depth])) for depth in range(len(parts))]


def trace_around(model: nn.Module, layer: str) -> fx.Graph:
    """Graph of `model.forward` in which `layer` is one `call_module` node; ValueError if that fails."""
    _check_one_input(model)
    around = enclosing_modules(model, layer)
    # The second trace must find the model as the first did, or it names its constants differently.
    with without_constants(model):
        in_evaluation = _trace(model, around, training=False)
        constants = _constants(model)
    in_training = _trace(model, around, training=True)
    _check_same_constants(constants, _constants(model), model)
    _keep_training_flag(in_training, in_evaluation, model)
    return in_training


@contextmanager
def without_constants(model: nn.Module) -> Iterator[None]:
    """Tracing stores constants it meets as attributes of the model; remove those on leaving the block."""
    before = set(vars(model))
    try:
        yield
    finally:
        for name in _constants(model).keys() - before:
            delattr(model, name)


def _constants(model: nn.Module) -> dict[str, Tensor]:
    return {name: each for name, each in vars(model).items() if name.startswith(_CONSTANT_PREFIX)}


def _check_same_constants(first: dict[str, Tensor], second: dict[str, Tensor], model: nn.Module) -> None:
    """Tensors made in forward without the input become constants of the halves; they must not vary."""
    varying = [name for name in first.keys() & second.keys() if not torch.equal(first[name], second[name])]
    if varying:
        raise ValueError(
            f"{type(model).__name__} cannot be cut here: its forward makes a tensor that differs from call to "
            f"call (shape {tuple(first[varying[0]].shape)}; random?). Move that into a submodule of its own."
        )


def _check_one_input(model: nn.Module) -> None:
    if isinstance(getattr(model, "_orig_mod", None), nn.Module):
        raise ValueError(
            "torch.compile's module cannot be cut: cut the model itself, then compile the halves, "
            "torch.compile(halves.client) and torch.compile(halves.server)"
        )
    kinds = inspect.Parameter
    parameters = list(inspect.signature(type(model).forward).parameters.values())[1:]
    if not parameters or parameters[0].kind in (kinds.VAR_POSITIONAL, kinds.KEYWORD_ONLY, kinds.VAR_KEYWORD):
        raise ValueError(f"{type(model).__name__}.forward must take the input as a named positional argument")
    required = [
        each.name
        for each in parameters
        if each.default is kinds.empty and each.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    ]
    if len(required) > 1:
        raise ValueError(
            f"{type(model).__name__}.forward needs the inputs {required}; a split model has one input. "
            "Wrap the model in a module whose forward takes the image alone."
        )


def _trace(model: nn.Module, around: list[nn.Module], *, training: bool) -> fx.Graph:
    modes = [module.training for module in around]
    for module in around:
        module.training = training
    try:
        return _LayerTracer(around).trace(model)
    except Exception as error:
        raise ValueError(_obstacle(model, error)) from error
    finally:
        for module, mode in zip(around, modes, strict=True):
            module.training = mode


def _obstacle(model: nn.Module, error: Exception) -> str:
    """Where the trace stopped: the last line of the model's own code, and why."""
    ignored = (_TORCH_FOLDER, __file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(ignored) and not frame.filename.startswith("<")
    ]
    where = ""
    if frames:
        last = frames[-1]
        where = f" at {Path(last.filename).name}:{last.lineno} in {last.name}: `{last.line}`"
    if isinstance(error, fx.proxy.TraceError) or "proxy" in str(error).lower():
        why = "its forward has data-dependent control flow"
        advice = "Move that line into a submodule that does not contain the cut, or cut at a module around it."
    else:
        why = f"tracing its forward raised {type(error).__name__} ({error})"
        advice = "The forward must run on symbolic values outside the submodules it calls."
    return f"{type(model).__name__} cannot be cut here: {why}{where}. {advice}"


def _keep_training_flag(in_training: fx.Graph, in_evaluation: fx.Graph, model: nn.Module) -> None:
    """Replace values baked from `self.training`, as in `F.dropout(x, training=self.training)`, by lookups."""
    pairs = list(zip(in_training.nodes, in_evaluation.nodes, strict=False))
    same_length = len(in_training.nodes) == len(in_evaluation.nodes)
    if not same_length or any((a.op, a.target) != (b.op, b.target) for a, b in pairs):
        raise ValueError(
            f"{type(model).__name__} cannot be cut here: its forward calls different layers in training and "
            "in evaluation. Move the part that differs into a submodule of its own."
        )
    flag: fx.Node | None = None
    for node, twin in pairs:
        if _names(node.args) == _names(twin.args) and _names(node.kwargs) == _names(twin.kwargs):
            continue
        if flag is None:
            with in_training.inserting_before(next(iter(in_training.nodes))):
                flag = in_training.create_node("get_attr", "training")
        node.args = _with_flag(node.args, twin.args, flag, model)
        node.kwargs = _with_flag(node.kwargs, twin.kwargs, flag, model)


def _names(argument: Any) -> str:
    # The two graphs hold different Node objects with equal names, and repr of a Node is its name.
    return repr(argument)


def _with_flag(training: Any, evaluation: Any, flag: fx.Node, model: nn.Module) -> Any:
    if isinstance(training, dict):
        return {key: _with_flag(training[key], evaluation[key], flag, model) for key in training}
    if isinstance(training, (tuple, list)):
        pairs = zip(training, evaluation, strict=True)
        return type(training)(_with_flag(a, b, flag, model) for a, b in pairs)
    if _names(training) == _names(evaluation):
        return training
    if training is True and evaluation is False:
        return flag
    raise ValueError(
        f"{type(model).__name__} cannot be cut here: its forward uses {training!r} in training and "
        f"{evaluation!r} in evaluation. Move that into a submodule of its own."
    )
