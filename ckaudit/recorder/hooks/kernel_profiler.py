"""The kernels that ran for each parameter in one profiled step."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from msgspec.structs import replace
from torch import nn
from torch.profiler import ProfilerActivity, profile

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.recorder.hooks.autograd_trace import GradientNode, PathTrace, operator_of

# Operators of ATen that move no element.
FREE = frozenset(
    f"aten::{name}"
    for name in """
    t transpose permute view _unsafe_view reshape _reshape_alias as_strided expand expand_as select slice split narrow unsqueeze
    squeeze detach alias resolve_conj resolve_neg empty empty_like empty_strided new_empty lift_fresh numpy_T
    """.split()  # noqa: SIM905  one word a line would take five times the room
)


class KernelWatch:
    """Profiles one forward and backward pass, from construction to `stop`.

    PyTorch numbers the operators of a forward pass, and a node of the backward graph has the number of its operator. So the
    kernels of one tensor are known exactly, not by name or shape. A CPU's kernels have no names; ATen operators stand for them.

    Args:
        model: The model.
        hookable: Whether the model may be hooked; if not, nothing is found.

    Raises:
        RuntimeError: If another profiler is running: there is only one, and it would lose its data.
    """

    def __init__(self, model: nn.Module, *, hookable: bool) -> None:
        if torch._C._autograd._profiler_enabled():  # noqa: SLF001  there is no public name
            raise RuntimeError("another profile is being taken")
        on_device = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        self._profiler = profile(activities=[ProfilerActivity.CPU, *on_device])
        self._profiler.start()
        self._paths = PathTrace(model, hookable=hookable, names=())

    def stop(self, table: Mapping[str, TensorFacts]) -> dict[str, TensorFacts]:
        """Stop, and return the tensor table with the kernels of each tensor that was seen."""
        self._paths.close()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        self._profiler.stop()
        numbered: dict[int, list[Any]] = {}
        for event in self._profiler.events() or ():  # type: ignore[no-untyped-call]
            numbered.setdefault(event.sequence_nr, []).append(event)
        kernels = {name: kernels_for(self._paths.readers_of(name), numbered) for name in table}
        return {name: replace(facts, kernels=kernels[name]) if kernels[name] else facts for name, facts in table.items()}


def kernels_for(readers: Iterable[GradientNode], numbered: Mapping[int, list[Any]]) -> list[str]:
    """Return the kernels of a tensor's operators, forward before backward, each once.

    Args:
        readers: Nodes of the backward graph that compute the tensor's gradient.
        numbered: Events of the profiler by sequence number.
    """
    kernels: dict[str, None] = {}
    for reader in readers:
        events = numbered.get(reader.number, [])
        operator = operator_of(reader.node)
        forward = [event for event in events if event.name.removeprefix("aten::").lstrip("_") == operator]
        backward = [event for event in events if event.name == reader.node]
        for event in (*forward, *backward):
            inside = [*_with_descendants(event)]
            on_device = [kernel.name for inner in inside for kernel in inner.kernels]
            working = [inner.name for inner in inside if inner.name.startswith("aten::") and inner.name not in FREE]
            kernels |= dict.fromkeys(on_device or working)
    return list(kernels)


def _with_descendants(event: Any) -> Iterator[Any]:
    """Yield an event and all events inside it."""
    yield event
    for child in event.cpu_children:
        yield from _with_descendants(child)
