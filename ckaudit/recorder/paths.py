"""Which operator of the forward pass reads each parameter, and which node of the backward graph fills its gradient."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
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


class PathTrace:
    """Looks at the graph that one forward pass leaves behind; nothing of the pass itself is touched.

    Args:
        model: The model.
        hookable: Whether it may be hooked; without, nothing is seen.
    """

    def __init__(self, model: nn.Module, *, hookable: bool) -> None:
        self._model = model
        self._nodes: dict[int, list[str]] = {}
        self._handle = model.register_forward_hook(Hook(self._look)) if hookable else None

    def close(self) -> None:
        """Stop looking."""
        if self._handle is not None:
            self._handle.remove()

    def describe(self, table: Mapping[str, TensorFacts]) -> dict[str, TensorFacts]:
        """Return the table of tensors with operator and node of each that was seen; several are joined by commas."""
        named = dict(self._model.named_parameters(remove_duplicate=False))
        found = {name: self._nodes.get(id(named[name]), []) for name in table if name in named}
        return {
            name: replace(facts, operator=_joined(map(operator_of, nodes)), backward=_joined(nodes))
            if (nodes := found.get(name))
            else facts
            for name, facts in table.items()
        }

    def _look(self, output: Any) -> None:
        if not self._nodes and torch.is_grad_enabled():
            self._nodes = readers(tensors_in(output))


def readers(outputs: Iterable[Tensor]) -> dict[int, list[str]]:
    """Return the names of the nodes that fill each leaf's gradient, by the leaf's id, views and casts passed over."""
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


def _above(leaf: Any, parents: Mapping[Any, list[Any]]) -> list[str]:
    """Return the nodes that a leaf's gradient comes from, in the order of the walk; a relay only where nothing stands above."""
    found: dict[str, None] = {}
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
            found[node.name()] = None
    return sorted(found)


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


def _joined(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
