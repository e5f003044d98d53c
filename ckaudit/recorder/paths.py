"""Which operator of the forward pass reads each parameter, and which node of the backward graph fills its gradient."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn

from ckaudit.contract.manifest import TensorFacts
from ckaudit.recorder.hooks import Hook

# What only hands a weight on: views, and the casts of mixed precision.
RELAYS = re.compile(
    r"(T|Transpose|Permute|View|UnsafeView|ReshapeAlias|AsStrided|Expand|Select|Slice|Split|SplitWithSizes|Unbind|Squeeze"
    r"|Unsqueeze|Alias|ToCopy|Clone|Diagonal|ViewAsReal)Backward\d+"
)
NODE = re.compile(r"(?P<operator>\w+?)Backward(?P<number>\d*)")


class Reader(Struct, frozen=True):
    """A node of the backward graph that fills a parameter's gradient.

    Attributes:
        node: Its name.
        number: Its place in the order of the forward pass, which the operator has too.
    """

    node: str
    number: int


class PathTrace:
    """Looks at the graph that one forward pass leaves behind; nothing of the pass itself is touched.

    Args:
        model: The model.
        hookable: Whether it may be hooked; without, nothing is seen.
    """

    def __init__(self, model: nn.Module, *, hookable: bool) -> None:
        self._named = dict(model.named_parameters(remove_duplicate=False))
        self._readers: dict[int, list[Reader]] = {}
        self._handle = model.register_forward_hook(Hook(self._look)) if hookable else None

    def close(self) -> None:
        """Stop looking."""
        if self._handle is not None:
            self._handle.remove()

    def readers_of(self, name: str) -> list[Reader]:
        """Return the nodes that fill a parameter's gradient, in the order of the forward pass."""
        return self._readers.get(id(self._named.get(name)), [])

    def describe(self, table: Mapping[str, TensorFacts]) -> dict[str, TensorFacts]:
        """Return the table of tensors with operator and node of each that was seen; several are joined by commas."""
        return {name: _told(facts, self.readers_of(name)) for name, facts in table.items()}

    def _look(self, output: Any) -> None:
        if not self._readers and torch.is_grad_enabled():
            self._readers = readers(tensors_in(output))


def _told(facts: TensorFacts, found: list[Reader]) -> TensorFacts:
    if not found:
        return facts
    nodes = dict.fromkeys(reader.node for reader in found)
    return replace(facts, operator=", ".join(dict.fromkeys(map(operator_of, nodes))), backward=", ".join(nodes))


def readers(outputs: Iterable[Tensor]) -> dict[int, list[Reader]]:
    """Return the nodes that fill each leaf's gradient, by the leaf's id; views and casts are passed over."""
    waiting = [node for output in outputs if (node := output.grad_fn) is not None]
    # The set also keeps the nodes alive: a node that is looked up again would else be another object.
    seen = set(waiting)
    parents: dict[Any, list[Any]] = {}
    leaves: list[Any] = []
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            leaves.append(node)
        for child, _ in node.next_functions:
            if child is None:
                continue
            parents.setdefault(child, []).append(node)
            if child not in seen:
                seen.add(child)
                waiting.append(child)
    return {id(leaf.variable): _above(leaf, parents) for leaf in leaves}


def _above(leaf: Any, parents: Mapping[Any, list[Any]]) -> list[Reader]:
    """Return the nodes that a leaf's gradient comes from, in the order of the forward pass; a relay only at the very top."""
    found: set[Any] = set()
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
            found.add(node)
    ordered = sorted(found, key=lambda node: node._sequence_nr())  # noqa: SLF001
    return [Reader(node.name(), node._sequence_nr()) for node in ordered]  # noqa: SLF001


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
    """Return the tensors among what a model put out, however deep in lists and mappings."""
    if isinstance(output, Tensor):
        return [output]
    parts = output.values() if hasattr(output, "values") else output if isinstance(output, tuple | list) else ()
    return [tensor for part in parts for tensor in tensors_in(part)]
