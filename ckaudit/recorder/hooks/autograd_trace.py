"""The forward operator that reads each parameter, and the node of the backward graph that computes its gradient."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import torch
from msgspec import UNSET, Struct
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.recorder.hooks.hook import Hook

# Nodes that only pass a weight on: views, and the casts of mixed precision.
RELAYS = re.compile(
    r"(T|Transpose|Permute|View|UnsafeView|ReshapeAlias|AsStrided|Expand|Select|Slice|Split|SplitWithSizes|Unbind|Squeeze"
    r"|Unsqueeze|Alias|ToCopy|Clone|Diagonal|ViewAsReal)Backward\d+"
)
LAYERS = re.compile(r"(Convolution|Addmm|Add|Linear|ThnnConv2D|MkldnnConvolution)Backward\d*")
BATCH_NORM = re.compile(r"(Native|Cudnn|Miopen)?BatchNorm(WithUpdate)?Backward\d*")
NORMS = re.compile(rf"{BATCH_NORM.pattern}|(Native)?(Layer|Group)NormBackward\d*|(Fused)?RmsNormBackward\d*")
SCALES = re.compile(rf"MulBackward\d*|{NORMS.pattern}")
NODE = re.compile(r"(?P<operator>\w+?)Backward(?P<number>\d*)")


class GradientNode(Struct, frozen=True):
    """A node of the backward graph that computes a parameter's gradient.

    Attributes:
        node: Name of the node.
        number: Sequence number in the forward pass, which the operator shares.
        is_taken_out: Whether a normalization that follows removes the effect of a bias or a scale.
    """

    node: str
    number: int
    is_taken_out: bool = False


MAX_CALLS = 64
"""Calls of submodules whose outputs are kept if the model itself is not called; more calls are the steps of a recurrence."""


class PathTrace:
    """Reads the graph of one forward pass, without changing the pass.

    If a training calls submodules and never the model, as a Lightning `training_step` may, the graph of their outputs is read.

    Args:
        model: The model.
        hookable: Whether the model may be hooked; if not, nothing is seen.
        names: Names of submodules that may be hooked too; None: all.
    """

    def __init__(self, model: nn.Module, *, hookable: bool, names: Container[str] | None = None) -> None:
        self._named = dict(model.named_parameters(remove_duplicate=False))
        self._readers: dict[int, list[GradientNode]] = {}
        self._unused_branches: frozenset[str] = frozenset()
        self._taken: dict[str, list[Any]] = {}
        self._of_parts: list[Any] = []
        self._depth = 0
        self._handles: list[RemovableHandle] = []
        if not hookable:
            return
        self._handles.append(model.register_forward_hook(Hook(self._trace_forward)))
        for part in [part for name, part in _parts(model) if names is None or name in names]:
            self._handles.append(part.register_forward_pre_hook(Hook(self._enter)))
            self._handles.append(part.register_forward_hook(Hook(self._leave)))

    @property
    def unused_branches(self) -> frozenset[str]:
        """Modules whose input is on the path to the output but whose output is not."""
        self._trace_parts()
        return self._unused_branches

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def readers_of(self, name: str) -> list[GradientNode]:
        """Return the nodes that compute a parameter's gradient, in the order of the forward pass."""
        self._trace_parts()
        return self._readers.get(id(self._named.get(name)), [])

    def describe(self, table: Mapping[str, TensorFacts]) -> dict[str, TensorFacts]:
        """Return the tensor table with operator and node of each tensor that was seen; several are joined by commas."""
        return {name: _with_operators(facts, self.readers_of(name)) for name, facts in table.items()}

    def take(self, name: str, inputs: Any) -> None:
        """Keep the graph nodes of a module's inputs until the pass ends; the module has parameters."""
        if self._handles and name not in self._taken and not self._readers and torch.is_grad_enabled():
            self._taken[name] = [node for tensor in tensors_in(inputs) if (node := tensor.grad_fn) is not None]

    def _enter(self, _inputs: Any) -> None:
        self._depth += 1

    def _leave(self, output: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and not self._readers and len(self._of_parts) < MAX_CALLS and torch.is_grad_enabled():
            self._of_parts += [node for tensor in tensors_in(output) if (node := tensor.grad_fn) is not None]

    def _trace_forward(self, output: Any) -> None:
        self._depth, self._of_parts = 0, []  # a submodule that raised never decreased the depth
        if not self._readers and torch.is_grad_enabled():
            self._trace_graph([node for tensor in tensors_in(output) if (node := tensor.grad_fn) is not None])

    def _trace_parts(self) -> None:
        nodes, self._of_parts = self._of_parts, []
        if nodes and not self._readers:
            self._trace_graph(nodes)

    def _trace_graph(self, ends: list[Any]) -> None:
        taken, self._taken = self._taken, {}
        nodes = graph_of(ends)
        self._readers = readers(nodes)
        read = {name.rpartition(".")[0] for name, tensor in self._named.items() if id(tensor) in self._readers}
        # A frozen module has no leaf in the graph, even if its output is used.
        trained = {name.rpartition(".")[0] for name, tensor in self._named.items() if tensor.requires_grad}
        self._unused_branches = frozenset(name for name in trained - read if name in taken and _reaches(taken[name], nodes))


def _parts(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that a training may call instead of the model, with names: its children, and those of module lists."""
    for name, part in model.named_children():
        if isinstance(part, nn.ModuleList | nn.ModuleDict):
            yield from _parts(part, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", part


def _with_operators(facts: TensorFacts, readers: list[GradientNode]) -> TensorFacts:
    if not readers:
        return facts
    nodes = dict.fromkeys(reader.node for reader in readers)
    if facts.no_gradient is UNSET and all(reader.is_taken_out for reader in readers):
        facts = replace(facts, no_gradient="taken_out_by_norm")
    return replace(facts, operator=", ".join(dict.fromkeys(map(operator_of, nodes))), backward=", ".join(nodes))


def graph_of(ends: Iterable[Any]) -> dict[Any, list[Any]]:
    """Return every node of the backward graph of the ends, each with the nodes that pass a gradient to it."""
    waiting = [*dict.fromkeys(ends)]
    # The mapping also keeps the nodes alive: otherwise a node looked up again would be another object.
    parents: dict[Any, list[Any]] = {node: [] for node in waiting}
    while waiting:
        node = waiting.pop()
        for child, _ in node.next_functions:
            if child is None:
                continue
            if child not in parents:
                parents[child] = []
                waiting.append(child)
            parents[child].append(node)
    return parents


def readers(parents: Mapping[Any, list[Any]]) -> dict[int, list[GradientNode]]:
    """Return the nodes that compute each leaf's gradient, by the leaf's id; views and casts are skipped."""
    return {id(leaf.variable): _above(leaf, parents) for leaf in parents if hasattr(leaf, "variable")}


def _reaches(nodes: Iterable[Any], graph: Mapping[Any, list[Any]]) -> bool:
    """Return whether the nodes' inputs reach a part of the graph; a shared weight alone does not count."""
    waiting, seen = [*nodes], set[Any]()
    while waiting:
        node = waiting.pop()
        if node in seen or hasattr(node, "variable"):
            continue
        if node in graph:
            return True
        seen.add(node)
        waiting += [child for child, _ in node.next_functions if child is not None]
    return False


def _above(leaf: Any, parents: Mapping[Any, list[Any]]) -> list[GradientNode]:
    """Return the nodes that a leaf's gradient comes from, in forward order; a view or cast only if nothing is above it."""
    sources: set[Any] = set()
    waiting, seen = list(parents.get(leaf, [])), set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        above = parents.get(node, []) if RELAYS.fullmatch(node.name()) else []
        if above:
            waiting += above
        else:
            sources.add(node)
    ordered = sorted(sources, key=lambda node: node._sequence_nr())  # noqa: SLF001
    is_small = leaf.variable.ndim < 2
    return [
        GradientNode(node.name(), node._sequence_nr(), is_small and _is_taken_out(node, leaf.variable.numel(), parents))  # noqa: SLF001
        for node in ordered
    ]


def _is_taken_out(node: Any, elements: int, parents: Mapping[Any, list[Any]]) -> bool:
    """Return whether only normalizations read a node's output, and remove the effect of its bias or scale.

    A normalization over the batch, or over groups of one channel, subtracts a mean that contains the bias, and divides by a
    deviation that contains the scale. Any normalization removes a scale that is a single number.
    """
    is_scale = SCALES.fullmatch(node.name()) is not None
    if not is_scale and not LAYERS.fullmatch(node.name()):
        return False
    waiting, seen = list(parents.get(node, [])), set[Any]()
    has_norm = False
    while waiting:
        above = waiting.pop()
        if above in seen:
            continue
        seen.add(above)
        if RELAYS.fullmatch(above.name()):
            waiting += parents.get(above, [])
        elif _takes_out(above, elements) or (is_scale and elements == 1 and NORMS.fullmatch(above.name())):
            has_norm = True
        else:
            return False
    return has_norm


def _takes_out(norm: Any, channels: int) -> bool:
    if BATCH_NORM.fullmatch(norm.name()):
        shape = norm._input_metadata[0].shape  # noqa: SLF001
        # An instance normalization is a batch normalization of a batch of one, with the channels of all rows side by side.
        return bool(getattr(norm, "_saved_training", True)) and len(shape) > 1 and int(shape[1]) % channels == 0
    if norm.name().startswith("NativeGroupNormBackward"):
        return bool(norm._saved_group == norm._saved_C == channels)  # noqa: SLF001
    return False


def operator_of(node: str) -> str:
    """Return the forward operator whose backward is this node.

    >>> operator_of("NativeLayerNormBackward0"), operator_of("MyOwnBackward")
    ('native_layer_norm', 'MyOwn')
    """
    match = NODE.fullmatch(node)
    if not match:
        return node
    return re.sub(r"(?<!^)(?=[A-Z])", "_", match["operator"]).lower() if match["number"] else match["operator"]


def tensors_in(output: Any) -> list[Tensor]:
    """Return the tensors in a model's output, at any depth of lists and mappings."""
    if isinstance(output, Tensor):
        return [output]
    parts = output.values() if hasattr(output, "values") else output if isinstance(output, tuple | list) else ()
    return [tensor for part in parts for tensor in tensors_in(part)]
