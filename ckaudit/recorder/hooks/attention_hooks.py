"""Attention hooks: calls that compute attention, caught inside a model's modules, and the direction in which each attends."""

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
PREFIX_QUERIES = 64  # looked at for a prefix
IS_CAUSAL = ("is_causal", "causal")
# What a module that computes attention calls its projections, apart or in one.
PROJECTION = re.compile(
    r"(?:to_?|w_?|lin(?:ear)?_)?(q|k|v|query|key|value|queries|keys|values)(?:_?(?:proj|projection|lin|linear|layer))?"
)
PROJECTIONS = re.compile(r"qkv|query_key_value")
ATTENTION_WORD = re.compile(r"attn|attention")
CAUSAL_CLASS = re.compile(r"(?<!non)(?<!non_)causal")


class RunningModule(Struct):
    """A module that runs now.

    Attributes:
        name: Its name.
        module: The module.
        has_switched: Whether the mode was switched when it began.
    """

    name: str
    module: nn.Module
    has_switched: bool


class _Thread(threading.local):
    """What runs in one thread: a backward pass that recomputes may have threads of its own."""

    def __init__(self) -> None:
        self.running: list[RunningModule] = []
        self.is_watching = False


class AttentionWatch:
    """Tells of every call that computes attention with gradients, and of the innermost module that runs meanwhile.

    That is `scaled_dot_product_attention`, and a softmax over the keys in a module whose name or class speaks of attention, or
    that lies in one with projections to query, key and value.
    Hooks say which module runs; a function mode of torch, which exists while one does, sees the calls and passes them on
    as they are. The mode stays away where gradients are off and from a frozen `nn.MultiheadAttention`: torch has faster
    kernels for those, which it does not use under a mode.

    Args:
        modules: The modules to watch, by name.
        guard: Keeps failures away from the forward pass.
        without: Names of modules whose attention is seen in another way.

    Attributes:
        expected: Modules that probably compute attention, by name, with their heads; 1 where they do not say.
        ran: Names of the modules that ran with gradients since hooks were attached.
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
        """Tell `see` of each call: name and module, and how to get hold of it."""
        self.detach()
        self._see, self.ran = see, set()
        for name, module in self._modules.items():
            self._handles.append(module.register_forward_pre_hook(Hook(self._entering(name, module))))
            # First of its hooks, as the other was the last: what is opened inside is closed inside.
            leave = Hook(self._leaving(module))
            self._handles.append(module.register_forward_hook(leave, prepend=True, always_call=True))

    def detach(self) -> None:
        """Take hooks and mode away."""
        self._see = None
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        # An interrupt leaves modules without their last hook.
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
            # Another hook may have failed before this module was noted.
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
        # Where the model left a mode of its own open above this one, both stay until that one is gone.
        while not on and _innermost_mode() is self._mode:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        thread.is_watching = on

    def _called(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        thread = self._thread
        if self._see is None or not thread.running or not thread.is_watching or not is_training_pass():
            return
        name, module = thread.running[-1].name, thread.running[-1].module
        with self._guard(f"recognising the attention of {name}"):
            # Of a sharded tensor a part of the queries may need all ranks.
            if name in self._without or any(map(is_sharded, [*args, *kwargs.values()])):
                return
            if function is FUSED:
                self._see(name, module, lambda: fused_call(args, kwargs))
            elif self._is_within_attention(name, module) and _is_over_last(args, kwargs):
                heads = module.num_heads if isinstance(module, nn.MultiheadAttention) else None
                logits = args[0] if args else kwargs["input"]
                self._see(name, module, lambda: softmax_call(logits, heads))

    def _is_within_attention(self, name: str, module: nn.Module) -> bool:
        """Return whether a module, or one around it, is attention: it may leave the computation to a part of any name."""
        return _is_attention(name, module) or any(outer.name in self.expected for outer in self._thread.running)


class _Mode(TorchFunctionMode):
    """Passes every function on, and tells of those that may compute attention."""

    def __init__(self, called: Callable[[Any, Sequence[Any], Mapping[str, Any]], None]) -> None:
        super().__init__()
        self._called = called

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call the function, and tell of it."""
        kwargs = kwargs or {}
        # A function that the model has compiled is compiled again under a mode: it has to find nothing here.
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
    """Tell of the calls inside a function of `torch.nn.functional`, which to a mode is one piece."""
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
    """Return the query heads of an attention module, as it or its configuration says; 1 where neither does."""
    counts = (getattr(owner, name, None) for owner in (module, getattr(module, "config", None)) for name in HEADS)
    return next((count for count in counts if isinstance(count, int) and count > 0), 1)


def _may_attend(name: str, module: nn.Module) -> bool:
    # There may be thousands of experts.
    is_own = not type(module).__module__.startswith("torch.nn.modules") and "expert" not in name.lower()
    return is_own or isinstance(module, nn.MultiheadAttention)


def _attending(modules: Mapping[str, nn.Module]) -> list[str]:
    """Return the names of the innermost modules that are attention by their class or their parts; a norm has no parts."""
    large = {name: module for name, module in modules.items() if any(True for _ in module.children())}
    attending = [
        name
        for name, module in large.items()
        if ATTENTION_WORD.search(type(module).__name__.lower()) or _holds_projections(module)
    ]
    return [name for name in attending if not any(other != name and is_inside(other, name) for other in attending)]


def _holds_projections(module: nn.Module) -> bool:
    """Return whether a module has query, key and value among its own parts and parameters, apart or in one."""
    names = [name.lower() for name, _ in (*module.named_children(), *module.named_parameters(recurse=False))]
    roles = {match[1][0] for name in names if (match := PROJECTION.fullmatch(name))}
    return roles == {"q", "k", "v"} or any(map(PROJECTIONS.search, names))


def is_inside(name: str, outer: str) -> bool:
    """Return whether a module of this name is the outer one or a part of it; the name of a whole model is empty.

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


# Which way a layer's attention is to look, as its module states it or a prefix in its probabilities shows it.
def stated_direction(name: str, module: nn.Module) -> AttentionDirection | None:
    """Return which way the attention of a module is to look, by its attributes and its class; None where they do not say.

    Attributes that say so are `is_cross_attention`, `is_causal`, `causal` and `is_decoder`. A decoder's attention that is
    not causal is the one that looks across to the encoder. A configuration is not asked: its `is_decoder` is False by
    default, in decoders too.
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
    """Return the direction in the light of the probabilities (B, H, n, K): those of a cross-attention or of a prefix.

    "Not causal" is often said to the kernel alone, while a mask keeps the order: then the layer is causal, or has a prefix.

    Args:
        stated: What is known beforehand.
        probabilities: After softmax, of some queries.
        own: Index of the key at the place of each of them, shape (n,).
        queries: How many queries a sequence has in all.
        is_certain: Whether "not causal" is the user's own word.
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
    """Return whether no query sees a later key, and `min_queries` of each sequence see their own: no padding looks like that.

    >>> order = np.arange(4)
    >>> keeps_order(np.tri(4, dtype=bool)[None], order), keeps_order(np.ones((1, 4, 4), bool), order)
    (True, False)
    """
    reach = np.where(seen, np.arange(seen.shape[2]), -1).max(2)  # (B, Q)
    return bool((reach <= own).all() and ((reach == own).sum(1) >= min_queries).all())


def has_prefix(seen: NDArray[np.bool_], own: NDArray[np.intp]) -> bool:
    """Return whether some tokens are read both ways and those after them in order only.

    A query sees to the end of its own group of tokens; every other query of that group sees as far; and somewhere a query
    ends at itself although there are keys behind it that others see. A mask that is missing or shifted leaves no such query.

    Args:
        seen: Whether any head gives a key something, shape (B, Q, K).
        own: Index of the key at each query's own place, shape (Q,).

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
