"""Calls of torch's loss functions while a checkpoint is due: the arguments of each call, from any caller."""

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ckaudit.contract.schema.loss_functions import LossFunctionStats, LossTermStats
from ckaudit.recorder.hooks.hook import are_hooks_paused, is_training_pass
from ckaudit.recorder.stats.loss_stats import KINDS, LossTotal, TargetPool, loss_call

MAX_POOLS = 8  # loss functions of one model whose targets are counted

_lock, _thread = threading.Lock(), threading.local()
_watches: list["LossWatch"] = []
_replaced: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
_by_name: list[tuple[dict[str, Any], str]] = []
_beneath: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}

_INNER: Any = torch._C._nn  # noqa: SLF001  no public name reaches whoever holds a function under a name of its own
_TAKES = ("input", "target", "weight", "reduction", "ignore_index", "label_smoothing")
_BENEATH = {
    "cross_entropy": ("cross_entropy_loss", _TAKES),
    "nll_loss": ("nll_loss_nd", _TAKES[:5]),
    "binary_cross_entropy": ("binary_cross_entropy", _TAKES[:4]),
    "mse_loss": ("mse_loss", _TAKES[:2]),
    "l1_loss": ("l1_loss", _TAKES[:2]),
    "smooth_l1_loss": ("smooth_l1_loss", _TAKES[:2]),
}
"""The function in `torch._C._nn` that a function of `torch.nn.functional` calls, and the names of its positional arguments."""
_READ = frozenset({"input", "target", "ignore_index", "label_smoothing"})


class LossWatch:
    """Watches calls of `cross_entropy` and similar functions with gradients, in the model or outside, between attach and detach.

    While a watch is attached, the functions in `torch.nn.functional`, and in modules that imported them by name, are replaced by
    wrappers that pass every call on unchanged. The inner functions that most of them call are wrapped too, for callers that hold
    them under another name. Loss functions of a kernel library and compiled ones are not seen.

    Args:
        run_guarded: Runs one measurement, named by its first argument, and keeps its failure away from the training.

    Attributes:
        classes: The targets of the first call among those whose statistics `detach` returned, unchanged, if they are classes.
        terms: All loss functions of the step, by name and number of classes, if there are several.
    """

    def __init__(self, run_guarded: Callable[[str, Callable[[], None]], None]) -> None:
        self._run_guarded = run_guarded
        self._totals: dict[tuple[str, int], LossTotal] = {}
        self._pools: dict[tuple[str, int], TargetPool] = {}
        self._outputs: dict[tuple[str, int], weakref.ref[Any]] = {}
        self._classes: dict[tuple[str, int], Tensor] = {}
        self.classes: Tensor | None = None
        self.terms: dict[str, LossTermStats] = {}

    def attach(self) -> None:
        """Observe calls from now on."""
        self._totals.clear()
        self._outputs.clear()
        with _lock:
            if not _watches:
                _wrap_functions()
            if self not in _watches:
                _watches.append(self)

    def detach(self) -> LossFunctionStats | None:
        """Stop observing, and return the statistics of the loss function with most targets; None if no call was seen."""
        with _lock:
            if self in _watches:
                _watches.remove(self)
                if not _watches:
                    _unwrap_functions()
        totals, self._totals = self._totals, {}
        classes, self._classes = self._classes, {}
        for key, total in totals.items():
            if key in self._pools:
                self._pools[key] = self._pools[key].merged(total.pool)
            elif len(self._pools) < MAX_POOLS:
                self._pools[key] = total.pool
        self.classes, self.terms = None, {}
        if not totals:
            return None
        stats = {key: total.stats(self._pools.get(key, total.pool)) for key, total in totals.items()}
        if len(stats) > 1:
            self.terms = {f"{function}/{columns}": _term(stats[function, columns]) for function, columns in sorted(stats)}
        key = max(totals, key=lambda key: totals[key].pool.rows)
        self.classes = classes.get(key)
        return stats[key]

    def observe(self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Observe one call."""
        self._run_guarded(f"what {function} is given", lambda: self._add_call(function, args, kwargs))

    def _add_call(self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        call = loss_call(function, args, kwargs)
        if call is None:
            return
        key, total, outputs = (function, call.columns), LossTotal.of(call), args[0] if args else next(iter(kwargs.values()))
        if key in self._outputs and self._outputs[key]() is outputs:
            total.is_mixed = True  # a second call has other targets for the same outputs
        self._outputs[key] = weakref.ref(outputs)
        targets = args[1] if len(args) > 1 else kwargs.get("target")
        if isinstance(targets, Tensor) and not targets.is_floating_point():
            self._classes.setdefault(key, targets)
        if key in self._totals:
            self._totals[key].add(total)
        else:
            self._totals[key] = total


def _term(stats: LossFunctionStats) -> LossTermStats:
    return LossTermStats(
        targets=stats.targets,
        value=stats.value,
        constant_value=stats.constant_value,
        batch_constant_value=stats.batch_constant_value,
    )


def _wrap_functions() -> None:
    for name in KINDS:
        original = getattr(functional, name)
        wrapper = _wrapped(name, original)
        _replaced[name] = original, wrapper
        setattr(functional, name, wrapper)
    _wrap_beneath()
    for table in _tables_with(_replaced):
        for name, (original, wrapper) in _replaced.items():
            if table.get(name) is original:
                table[name] = wrapper
                _by_name.append((table, name))


def _wrap_beneath() -> None:
    """Wrap the inner functions; their calls count if they do not come through the wrapper of an outer function."""
    for name, (inner, takes) in _BENEATH.items():
        original = getattr(_INNER, inner, None)
        if original is not None:
            wrapper = _wrapped(name, original, takes)
            _beneath[inner] = original, wrapper
            setattr(_INNER, inner, wrapper)


def _unwrap_beneath() -> None:
    for inner, (original, wrapper) in _beneath.items():
        if getattr(_INNER, inner) is wrapper:
            setattr(_INNER, inner, original)
    _beneath.clear()


def _tables_with(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the namespaces of modules that contain any of these names, except torch's own, whose distributions call them."""
    modules = list[tuple[object, object]](sys.modules.items())  # any object may be in sys.modules
    return [
        vars(module)
        for name, module in modules
        if not str(name).startswith("torch.") and isinstance(module, ModuleType) and not vars(module).keys().isdisjoint(names)
    ]


def _unwrap_functions() -> None:
    _unwrap_beneath()
    for name, (original, wrapper) in _replaced.items():
        # A wrapper that somebody else installed since stays; it calls ours, which passes calls on.
        if getattr(functional, name) is wrapper:
            setattr(functional, name, original)
    for table, name in _by_name:
        original, wrapper = _replaced[name]
        if table.get(name) is wrapper:
            table[name] = original
    _by_name.clear()
    _replaced.clear()


def _wrapped(name: str, original: Callable[..., Any], takes: Sequence[str] = ()) -> Callable[..., Any]:
    """Return a wrapper that reports each call to the watches; `takes` names the arguments of an inner function."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        # A function mode of torch calls this again from inside.
        if getattr(_thread, "is_inside", False) or torch.compiler.is_compiling():
            return original(*args, **kwargs)
        _thread.is_inside = True
        try:
            output = original(*args, **kwargs)
        finally:
            _thread.is_inside = False
        if _is_trained_on(output):
            named = {key: value for key, value in zip(takes, args, strict=False) if key in _READ}
            for watch in tuple(_watches):
                watch.observe(name, () if takes else args, named or kwargs)
        return output

    return call


def _is_trained_on(output: Any) -> bool:
    """Tell whether a loss will be differentiated, in the training itself and outside function transforms."""
    return isinstance(output, Tensor) and output.requires_grad and is_training_pass() and not are_hooks_paused()
