"""Attention hooks: calls that compute attention inside a model's modules, and the direction in which each attends."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from ckaudit.contract.schema.manifest import AttentionDirection
from ckaudit.contract.schema.tensor_names import ATTENTION, CROSS, direction_by_name
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.hook import Hook, is_training_pass
from ckaudit.recorder.hooks.sdpa_sample import AttentionCall, fused_call, sampled, softmax_call
from ckaudit.recorder.stats.arrays import Array, is_on_accelerator, is_sharded, to_device, to_numpy

FUSED = functional.scaled_dot_product_attention
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads")
SOFTMAX = (functional.softmax, torch.softmax, torch.Tensor.softmax, torch.special.softmax)
PREFIX_QUERIES = 64  # queries checked for a prefix
IS_CAUSAL = ("is_causal", "causal")
# Names of the projections of attention modules, separate or fused.
PROJECTION = re.compile(
    r"(?:to_?|w_?|lin(?:ear)?_)?(q|k|v|query|key|value|queries|keys|values)(?:_?(?:proj|projection|lin|linear|layer))?"
)
PROJECTIONS = re.compile(r"qkv|query_key_value")
ATTENTION_WORD = re.compile(r"attn|attention")
CAUSAL_CLASS = re.compile(r"(?<!non)(?<!non_)causal")


class RunningModule(Struct):
    """A module that is currently running.

    Attributes:
        name: Name of the module.
        module: The module.
        has_switched: Whether the mode was switched when the module started.
    """

    name: str
    module: nn.Module
    has_switched: bool


class _Thread(threading.local):
    """The running modules of one thread: a backward pass that recomputes may run in a thread of its own."""

    def __init__(self) -> None:
        self.running: list[RunningModule] = []
        self.is_watching = False


class AttentionWatch:
    """Reports every call that computes attention with gradients, and the innermost module that makes it.

    These calls are `scaled_dot_product_attention`, and a softmax over the keys in an attention module: one whose name or class
    contains attention, or that lies in a module with query, key and value projections. Hooks tell which module runs. A torch
    function mode, active while one runs, sees the calls and passes them on unchanged. The mode is off without gradients and for
    an `nn.MultiheadAttention` in evaluation mode: torch does not use its faster kernels under a mode.

    Args:
        modules: The modules to watch, by name.
        guard: Keeps failures away from the forward pass.
        without: Names of modules whose attention is measured in another way.

    Attributes:
        expected: Number of heads of modules that probably compute attention, by name; 1 if a module does not say.
        ran: Names of modules that ran with gradients since the hooks were attached.
    """

    def __init__(self, modules: Mapping[str, nn.Module], guard: Guard, without: Sequence[str] = ()) -> None:
        self._modules = {name: module for name, module in modules.items() if _may_attend(name, module)}
        self._guard, self._without = guard, frozenset(without)
        self.expected = {name: heads_of(modules[name]) for name in _attending(self._modules) if name not in self._without}
        self.ran: set[str] = set()
        self._thread, self._handles = _Thread(), list[RemovableHandle]()
        self._mode = _Mode(self._called)
        self._see: Callable[[str, nn.Module, Callable[[], AttentionCall | None]], None] | None = None

    def attach(self, see: Callable[[str, nn.Module, Callable[[], AttentionCall | None]], None]) -> None:
        """Pass each call to `see`: the module's name, the module, and a function that returns the call."""
        self.detach()
        self._see, self.ran = see, set()
        for name, module in self._modules.items():
            self._handles.append(module.register_forward_pre_hook(Hook(self._entering(name, module))))
            # First of the module's hooks, as the pre-hook is the last: modes opened inside are closed inside.
            leave = Hook(self._leaving(module))
            self._handles.append(module.register_forward_hook(leave, prepend=True, always_call=True))

    def detach(self) -> None:
        """Remove the hooks and the mode."""
        self._see = None
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        # An interrupt skips the last hook of a module.
        self._thread.running.clear()
        self._switch(on=False)

    def _entering(self, name: str, module: nn.Module) -> Callable[[Any], None]:
        def enter(_inputs: Any) -> None:
            wanted = is_training_pass() and (module.training or not isinstance(module, nn.MultiheadAttention))
            if wanted:
                self.ran.add(name)
            with self._guard("watching for attention"):
                self._thread.running.append(RunningModule(name, module, wanted != self._thread.is_watching))
                self._switch(on=wanted)

        return enter

    def _leaving(self, module: nn.Module) -> Callable[[Any], None]:
        def leave(_output: Any) -> None:
            thread = self._thread
            # Another hook may have failed before this module was added.
            while any(one.module is module for one in thread.running):
                last = thread.running.pop()
                with self._guard("watching for attention"):
                    self._switch(on=thread.is_watching != last.has_switched)
                if last.module is module:
                    return

        return leave

    def _switch(self, *, on: bool) -> None:
        thread = self._thread
        if on and not thread.is_watching:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        # If the model left its own mode open above this one, both stay until that one is closed.
        while not on and _innermost_mode() is self._mode:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        thread.is_watching = on

    def _called(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        thread = self._thread
        if self._see is None or not thread.running or not thread.is_watching or not is_training_pass():
            return
        name, module = thread.running[-1].name, thread.running[-1].module
        with self._guard(f"recognising the attention of {name}"):
            # With a sharded tensor, a subset of the queries may need all ranks.
            if name in self._without or any(map(is_sharded, [*args, *kwargs.values()])):
                return
            if function is FUSED:
                self._see(name, module, lambda: fused_call(args, kwargs))
            elif self._is_within_attention(name, module) and _is_over_last(args, kwargs):
                heads = module.num_heads if isinstance(module, nn.MultiheadAttention) else None
                logits = args[0] if args else kwargs["input"]
                self._see(name, module, lambda: softmax_call(logits, heads))

    def _is_within_attention(self, name: str, module: nn.Module) -> bool:
        """Return whether a module or one around it is attention: it may leave the computation to a submodule of any name."""
        return _is_attention(name, module) or any(outer.name in self.expected for outer in self._thread.running)


class _Mode(TorchFunctionMode):
    """Passes every function on, and reports those that may compute attention."""

    def __init__(self, called: Callable[[Any, Sequence[Any], Mapping[str, Any]], None]) -> None:
        super().__init__()
        self._called = called

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call the function and report it."""
        kwargs = kwargs or {}
        # Under a mode, torch would compile a compiled function of the model again; so it must see no mode here.
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            with _calls_reported_to(self._called):
                return func(*args, **kwargs)
        output = func(*args, **kwargs)
        if func is FUSED or func in SOFTMAX:
            self._called(func, args, kwargs)
        return output


@contextmanager
def _calls_reported_to(called: Callable[[Any, Sequence[Any], Mapping[str, Any]], None]) -> Iterator[None]:
    """Report the calls inside a function of `torch.nn.functional`, which a mode sees as one call."""
    names = ("scaled_dot_product_attention", "softmax")
    originals = {name: getattr(functional, name) for name in names}

    def telling(function: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            output = function(*args, **kwargs)
            called(function, args, kwargs)
            return output

        return call

    try:
        for name, function in originals.items():
            setattr(functional, name, telling(function))
        yield
    finally:
        for name, function in originals.items():
            setattr(functional, name, function)


def _innermost_mode() -> TorchFunctionMode | None:
    mode: TorchFunctionMode | None = torch.overrides._get_current_function_mode()  # type: ignore[no-untyped-call]  # noqa: SLF001
    return mode


def heads_of(module: nn.Module) -> int:
    """Return the query heads of an attention module, from the module or its configuration; 1 if neither has them."""
    counts = (getattr(owner, name, None) for owner in (module, getattr(module, "config", None)) for name in HEADS)
    return next((count for count in counts if isinstance(count, int) and count > 0), 1)


def _may_attend(name: str, module: nn.Module) -> bool:
    # A model may have thousands of experts.
    is_own = not type(module).__module__.startswith("torch.nn.modules") and "expert" not in name.lower()
    return is_own or isinstance(module, nn.MultiheadAttention)


def _attending(modules: Mapping[str, nn.Module]) -> list[str]:
    """Return the names of the innermost attention modules, by class or submodules; a norm has no submodules."""
    large = {name: module for name, module in modules.items() if any(True for _ in module.children())}
    attending = [
        name
        for name, module in large.items()
        if ATTENTION_WORD.search(type(module).__name__.lower()) or _holds_projections(module)
    ]
    return [name for name in attending if not any(other != name and is_inside(other, name) for other in attending)]


def _holds_projections(module: nn.Module) -> bool:
    """Return whether a module has query, key and value projections among its children and parameters, separate or fused."""
    names = [name.lower() for name, _ in (*module.named_children(), *module.named_parameters(recurse=False))]
    roles = {match[1][0] for name in names if (match := PROJECTION.fullmatch(name))}
    return roles == {"q", "k", "v"} or any(map(PROJECTIONS.search, names))


def is_inside(name: str, outer: str) -> bool:
    """Return whether a module is the outer module or inside it; the name of a whole model is empty.

    >>> is_inside("blocks.1.attend", "blocks.1"), is_inside("blocks.10", "blocks.1"), is_inside("blocks", "")
    (True, False, True)
    """
    return name == outer or not outer or name.startswith(f"{outer}.")


def _is_attention(name: str, module: nn.Module) -> bool:
    return any(ATTENTION.search(part) for part in (*name.lower().split("."), type(module).__name__.lower()))


def _is_over_last(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    logits = args[0] if args else kwargs.get("input")
    return isinstance(logits, torch.Tensor) and dim in (-1, logits.ndim - 1)


# The direction of a layer's attention, from its module's attributes or from its probabilities.
def stated_direction(name: str, module: nn.Module) -> AttentionDirection | None:
    """Return the attention direction of a module by its attributes and its class; None if they do not say.

    The attributes are `is_cross_attention`, `is_causal`, `causal` and `is_decoder`. Attention of a decoder that is not causal is
    cross-attention to the encoder. The configuration is not used: its `is_decoder` is False by default, in decoders too.
    """
    kind = type(module).__name__.lower()
    crosses = _flag(module, "is_cross_attention")
    if crosses or (crosses is None and (direction_by_name(name) == "cross" or CROSS.search(kind))):
        return "cross"
    causal = next((flag for attribute in IS_CAUSAL if (flag := _flag(module, attribute)) is not None), None)
    decodes = _flag(module, "is_decoder")
    if causal or (causal is None and (decodes or CAUSAL_CLASS.search(kind))):
        return "causal"
    if causal is None and decodes is None:
        return None
    return "cross" if decodes else "bidirectional"


def seen_direction(
    stated: AttentionDirection | None, probabilities: Array, own: NDArray[np.intp], *, queries: int, is_certain: bool = False
) -> AttentionDirection | None:
    """Return the direction, corrected by the probabilities (B, H, n, K), which show cross-attention, a prefix or a causal mask.

    A kernel is often called as "not causal" with a mask that keeps the order; then the layer is causal or has a prefix.

    Args:
        stated: Direction that the module states.
        probabilities: Probabilities after softmax, of some queries.
        own: Index of the key at each query's own position, shape (n,).
        queries: Number of all queries of a sequence.
        is_certain: Whether the user stated "not causal".
    """
    if stated == "cross" or (stated == "bidirectional" and is_certain):
        return stated
    if stated is None and queries != probabilities.shape[3]:
        return "cross"
    rows = sampled(len(own), PREFIX_QUERIES)
    places = to_device(rows, probabilities.device) if is_on_accelerator(probabilities) else rows
    seen = to_numpy((probabilities[:, :, places] > 0).any(1))
    if has_prefix(seen, own[rows]):
        return "prefix"
    return "causal" if stated == "bidirectional" and keeps_order(seen, own[rows]) else stated


def keeps_order(seen: NDArray[np.bool_], own: NDArray[np.intp], *, min_queries: int = 3) -> bool:
    """Return whether no query sees a later key, and `min_queries` per sequence see their own key, which rules padding out.

    >>> order = np.arange(4)
    >>> keeps_order(np.tri(4, dtype=bool)[None], order), keeps_order(np.ones((1, 4, 4), bool), order)
    (True, False)
    """
    reach = np.where(seen, np.arange(seen.shape[2]), -1).max(2)  # (B, Q)
    return bool((reach <= own).all() and ((reach == own).sum(1) >= min_queries).all())


def has_prefix(seen: NDArray[np.bool_], own: NDArray[np.intp]) -> bool:
    """Return whether some first tokens are read in both directions and the later ones only in order.

    A query sees to the end of its group of tokens, and so does every other query of the group. Some query sees no further than
    itself, although others see later keys. A missing or shifted mask leaves no such query.

    Args:
        seen: Whether any head gives a key some weight, shape (B, Q, K).
        own: Index of the key at each query's own position, shape (Q,).

    >>> order = np.arange(4)
    >>> both_ways = np.broadcast_to(order < 2, (1, 4, 4))
    >>> has_prefix(both_ways | np.tri(4, dtype=bool), order), has_prefix(np.ones((1, 4, 4), bool), order)
    (True, False)
    """
    keys = np.arange(seen.shape[2])
    reach = np.where(seen, keys, -1).max(2)  # (B, Q)
    ahead = reach > own
    if not ahead.any():
        return False
    within = (own[None, None] > own[None, :, None]) & (own[None, None] <= reach[:, :, None])  # (B, Q, Q)
    agrees = ~within | (reach[:, None, :] == reach[:, :, None])
    in_order = (reach == own) & (own < reach.max(1, keepdims=True))
    return bool(agrees[ahead].all() and in_order[ahead.any(1)].any(1).all())


def _flag(module: nn.Module, name: str) -> bool | None:
    value = getattr(module, name, None)
    return value if isinstance(value, bool) else None
