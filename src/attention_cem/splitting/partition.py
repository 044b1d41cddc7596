"""Divide a traced forward at one node into two graphs, and say plainly when that is impossible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, fx, nn

from attention_cem.nearest_names import did_you_mean
from attention_cem.splitting.tracing import trace_around


class CrossingError(ValueError):
    """Values other than z pass from before the cut to behind it."""


@dataclass(frozen=True)
class Partition:
    """The nodes of each half in the order they run; `cut` ends the client and is the server's input."""

    model: nn.Module
    cut: fx.Node
    client_nodes: tuple[fx.Node, ...]
    server_nodes: tuple[fx.Node, ...]

    def client(self) -> fx.GraphModule:
        """The half up to the cut; it holds the model's own tensors under their own names."""
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self.client_nodes:
            copies[node] = graph.node_copy(node, lambda each: copies[each])
        graph.output(copies[self.cut])
        return _graph_module(self.model, graph, "Client")

    def server(self) -> fx.GraphModule:
        """The half behind the cut, a function of z alone."""
        graph = fx.Graph()
        z = graph.placeholder("z")
        if any(_writes(self.model, node) or _is_own_code(self.model, node) for node in self.server_nodes):
            # Written to, directly or through a view, z would change under the eyes of whoever else holds it (a
            # surrogate, a defence, an attack).
            z = graph.call_method("clone", (z,))
        copies = {self.cut: z}
        for node in self.server_nodes:
            copies[node] = graph.node_copy(node, lambda each: copies[each])
        return _graph_module(self.model, graph, "Server")

    def client_parameters(self) -> int:
        """Number of parameters of the client."""
        state = _state(self.model, self.client_nodes).values()
        return sum(each.numel() for each in {id(e): e for e in state}.values() if isinstance(each, nn.Parameter))


def partition(model: nn.Module, at: str) -> Partition:
    """Trace `model` around the layer `at` and divide the graph behind it; ValueError names any obstacle."""
    layer = _layer(model, at)
    graph = trace_around(model, at)
    calls = [n for n in graph.nodes if n.op == "call_module" and model.get_submodule(str(n.target)) is layer]
    if not calls:
        raise ValueError(f"layer '{at}' is never called by the model's forward; cut at a layer that is used")
    if len(calls) > 1:
        raise ValueError(
            f"layer '{at}' is called {len(calls)} times, so its output is not one place; "
            "cut at a layer that is called once"
        )
    cut = calls[0]
    output = next(n for n in graph.nodes if n.op == "output")
    before = _needed_for(cut)
    behind = _needed_for(output, stop=cut)
    if cut not in behind:
        raise ValueError(f"the model's output does not depend on layer '{at}'; cut at a layer that is used")
    behind.discard(cut)
    _check_something_left(behind, output, at)
    depends_on_input = _depending_on_input(graph)
    if cut not in depends_on_input:
        raise ValueError(f"layer '{at}' does not depend on the model's input; cut at a layer that does")
    _add_writes(model, graph, cut, before, behind)
    crossing = [
        n for n in graph.nodes if n in behind and n in depends_on_input and (n in before or n.op == "placeholder")
    ]
    if crossing:
        names = ", ".join(_describe(node) for node in crossing)
        raise CrossingError(
            f"cannot cut at '{at}': besides its output, {names} would have to pass to the server "
            f"({_why(crossing, behind)})"
        )
    divided = Partition(
        model,
        cut,
        tuple(n for n in graph.nodes if n in before),
        tuple(n for n in graph.nodes if n in behind),
    )
    _check_nothing_shared(divided, at)
    return divided


def _layer(model: nn.Module, at: str) -> nn.Module:
    if not isinstance(at, str):
        raise ValueError(f"at must be the name of a layer, as model.named_modules() gives it, got {at!r}")
    known = [name for name, _ in model.named_modules() if name]
    try:
        layer = model.get_submodule(at)
    except AttributeError:
        raise ValueError(f"{type(model).__name__} has no layer '{at}'{did_you_mean(at, known, limit=3)}") from None
    if layer is model:
        raise ValueError(f"cannot cut behind the whole model (at={at!r}); name a layer inside it")
    return layer


def _needed_for(end: fx.Node, stop: fx.Node | None = None) -> set[fx.Node]:
    """`end` and everything it is computed from, not looking behind `stop`."""
    found: set[fx.Node] = set()
    pending = [end]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            if node is not stop:
                pending.extend(node.all_input_nodes)
    return found


def _depending_on_input(graph: fx.Graph) -> set[fx.Node]:
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" or any(each in found for each in node.all_input_nodes):
            found.add(node)
    return found


def _add_writes(model: nn.Module, graph: fx.Graph, cut: fx.Node, before: set[fx.Node], behind: set[fx.Node]) -> None:
    """Add to a half what writes in place and whose result is not used, as `x.relu_()` on a line of its own."""
    for node in graph.nodes:
        if node in before or node in behind or not _writes(model, node):
            continue
        needed = _needed_for(node, stop=cut)
        read = {each.target for each in needed if each.op == "get_attr"}
        # a counter of calls touches nothing but itself: it goes where it is read
        counted = not needed & (before | behind) and any(n.op == "get_attr" and n.target in read for n in behind)
        if counted or needed & {cut, *behind}:
            behind |= needed - {cut}
        else:
            before |= needed


def _check_something_left(behind: set[fx.Node], output: fx.Node, at: str) -> None:
    if behind == {output}:
        raise ValueError(f"layer '{at}' is the model's last: nothing is left for the server; cut earlier")


def _describe(node: fx.Node) -> str:
    if node.op == "placeholder":
        return f"the input '{node.target}'"
    if node.op == "call_module":
        return f"the output of '{node.target}'"
    called = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return f"the value '{node.name}' (result of {called})"


def _why(crossing: list[fx.Node], behind: set[fx.Node]) -> str:
    users = [user for node in crossing for user in node.users if user in behind]
    if all(_asks_size(user) for user in users):
        return "only its size is asked for behind the cut: ask the feature there for it, or write .flatten(1)"
    return "a skip connection crosses the cut"


def _asks_size(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in ("size", "dim")
    return node.target is getattr and node.args[1] == "shape"


def _check_nothing_shared(divided: Partition, at: str) -> None:
    model = divided.model
    on_client = {id(each): name for name, each in _state(model, divided.client_nodes).items()}
    shared = [name for name, each in _state(model, divided.server_nodes).items() if id(each) in on_client]
    if shared:
        raise ValueError(
            f"cannot cut at '{at}': {', '.join(repr(name) for name in shared)} would belong to both halves "
            "(a layer or weight used on both sides); cut where each weight is used on one side only"
        )


def _state(model: nn.Module, nodes: Iterable[fx.Node]) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for node in nodes:
        target = str(node.target)
        if node.op == "call_module":
            layer = model.get_submodule(target)
            state.update((f"{target}.{name}", each) for name, each in layer.named_parameters())
            state.update((f"{target}.{name}", each) for name, each in layer.named_buffers())
        elif node.op == "get_attr":
            owner, _, name = target.rpartition(".")
            attribute = getattr(model.get_submodule(owner), name)
            if isinstance(attribute, Tensor):
                state[target] = attribute
    return state


def _writes(model: nn.Module, node: fx.Node) -> bool:
    """Whether the node is known to write into what it is given."""
    if node.op == "call_module":
        return any(getattr(each, "inplace", False) for each in model.get_submodule(str(node.target)).modules())
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return bool(node.kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__"))


def _is_own_code(model: nn.Module, node: fx.Node) -> bool:
    """Whether the node calls a module that is not torch's, which may write into what it is given and not say so."""
    if node.op != "call_module":
        return False
    kinds = {type(each) for each in model.get_submodule(str(node.target)).modules()}
    return any(kind.__module__.split(".")[0] != "torch" for kind in kinds)


def _graph_module(model: nn.Module, graph: fx.Graph, half: str) -> fx.GraphModule:
    module = fx.GraphModule(model, graph, class_name=f"{type(model).__name__}{half}")
    for node in graph.nodes:
        if node.op == "get_attr":
            owner, _, name = str(node.target).rpartition(".")
            # fx registers every buffer as persistent; one kept out of the state dict must stay out of it.
            if name in model.get_submodule(owner)._non_persistent_buffers_set:
                module.get_submodule(owner)._non_persistent_buffers_set.add(name)
    return module
