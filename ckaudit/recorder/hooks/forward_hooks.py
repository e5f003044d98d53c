"""Hooks that measure one forward pass; they are attached only while a checkpoint is due."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from msgspec import UNSET
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ckaudit.contract.schema.checkpoint import AttentionStats
from ckaudit.contract.schema.manifest import AttentionDirection
from ckaudit.contract.schema.tensor_names import depth_of, layer_names
from ckaudit.contract.sizes import SizedPart
from ckaudit.recorder.batch_facts import inputs_and_targets
from ckaudit.recorder.guard import Guard, logger
from ckaudit.recorder.hooks.attention_hooks import AttentionWatch, is_inside, seen_direction, stated_direction
from ckaudit.recorder.hooks.forward_stats import DeferredStats, ForwardStats
from ckaudit.recorder.hooks.hook import Hook, InputsHook, is_training_pass
from ckaudit.recorder.hooks.loss_functions import LossWatch
from ckaudit.recorder.hooks.sdpa_sample import SEQUENCES, AttentionCall, largest_logits, sample_stats, take
from ckaudit.recorder.hooks.vital_signs import DeferredNumbers, VitalSigns, blocks
from ckaudit.recorder.model.tensor_table import CONVOLUTION, kind_of
from ckaudit.recorder.setup import HookOptions
from ckaudit.recorder.stats.activation_stats import ModuleOutput, activation_stats, note
from ckaudit.recorder.stats.arrays import local
from ckaudit.recorder.stats.attention_stats import attention_stats, four_dimensional, max_logits
from ckaudit.recorder.stats.float32_rounding import shortest
from ckaudit.recorder.stats.moe import CAPACITY, CHOICES, may_route, module_setting, moe_stats
from ckaudit.recorder.target_alignment import next_token_share, rows_of_tokens, same_token_share

FUNCTIONS = ("relu", "gelu", "silu", "swish", "mish", "sigmoid", "tanh", "elu", "glu", "softplus", "activation")

MAX_EMBEDDED = 8  # calls of embeddings whose tokens are compared with the targets


class ForwardHooks:
    """Attaches hooks to the chosen modules, and removes them again.

    Args:
        model: The model.
        guard: Keeps a failing hook away from the forward pass.
        options: What to measure.
    """

    def __init__(self, model: nn.Module, guard: Guard, options: HookOptions) -> None:
        self._model, self._guard, self._options = model, guard, options
        named = dict(model.named_modules())
        usable = {name: module for name, module in named.items() if name in options.hookable}
        chosen = chosen_modules(model, options.modules, without=(*options.probabilities, *options.logits))
        self._modules = {name: module for name, module in chosen.items() if name in usable}
        self._probabilities = {name: module for name, module in usable.items() if matches(name, options.probabilities)}
        self._logits = {name: module for name, module in usable.items() if matches(name, options.logits)}
        self._routers = {name: usable[name] for name in usable if matches(name, options.routers) and may_route(model, name)}
        self._blocks = blocks(usable)
        self._layers = layer_names([*self._probabilities]) | layer_names([*self._logits])
        # Under a mode that sees calls, a submodule inside `torch.compile` would be compiled again.
        eager = all(name in usable or isinstance(module, torch.jit.ScriptModule) for name, module in named.items())
        self._watch = self._attention_watch(usable) if options.queries and eager else None
        self._losses = LossWatch(self._run_guarded) if "" in usable else None
        self._embeddings = [module for module in usable.values() if isinstance(module, nn.Embedding)]
        self._handles: list[RemovableHandle] = []
        self._expects, self._has_said_unseen = frozenset[str](), False
        self._outputs: dict[str, ModuleOutput] = {}
        self._deferred = DeferredStats(self._run_guarded)
        self._seen, self._readings, self._counts_dead = ForwardStats(), DeferredNumbers(), False

    def _attention_watch(self, modules: Mapping[str, nn.Module]) -> AttentionWatch | None:
        """Return the watch for attention calls; None if the model outputs all of its attention."""
        shown = [shower for name in self._probabilities for shower in (name, name.rpartition(".")[0])]
        watch = AttentionWatch(modules, self._guard, without=shown)
        return watch if watch.expected or not self._probabilities else None

    @property
    def seconds(self) -> float:
        """Seconds that the hooks have taken since they were attached."""
        return self._seen.seconds

    @property
    def modules(self) -> list[str]:
        """Names of the modules whose outputs are measured."""
        return [*self._modules]

    @property
    def parts(self) -> list[SizedPart]:
        """The layers that output their attention; the number of heads is not known before the forward pass."""
        return [SizedPart(self._layers[name], depth_of(name), 1) for name in self._probabilities]

    @property
    def expected(self) -> list[SizedPart]:
        """All layers whose attention will probably be seen, with the number of heads if the modules have it."""
        computed = self._watch.expected if self._watch else {}
        return [*self.parts, *(SizedPart(name, depth_of(name), heads) for name, heads in computed.items())]

    def attach(self, encoding: Literal["nested", "q8", "none"], grid_depths: frozenset[int | None]) -> None:
        """Measure the next forward pass; layers at `grid_depths` get grids."""
        self.detach()

        def grid(name: str) -> Literal["nested", "q8"] | None:
            return encoding if encoding != "none" and depth_of(name) in grid_depths else None

        for name, module in self._modules.items():
            self._hook(module, name, self._activation(name, count_dead=is_activation_function(module)))
        for name, module in self._probabilities.items():
            outer = name.rpartition(".")[0]
            stated = self._stated(outer, self._model.get_submodule(outer))
            self._hook(module, name, self._attention(self._layers[name], grid(name), stated))
        for name, module in self._logits.items():
            self._hook(module, name, self._logit(self._layers[name]))
        for name, module in self._routers.items():
            self._hook(module, name, self._routing(name))
        if self._watch:
            self._expects = frozenset(self._watch.expected)
            self._watch.attach(self._once(lambda name, module, call: self._computed(name, module, call, grid(name))))
        if self._losses:
            self._losses.attach()
            for embedding in self._embeddings:
                self._handles.append(embedding.register_forward_pre_hook(Hook(self._see_tokens)))
            self._handles.append(self._model.register_forward_pre_hook(InputsHook(self._see_inputs), with_kwargs=True))

    def _see_inputs(self, given: tuple[tuple[Any, ...], Mapping[str, Any]]) -> None:
        """Keep the model's inputs of the first training pass; a later call is another micro-batch."""
        if self._seen.inputs is None and is_training_pass():
            by_place, by_name = given
            inputs = inputs_and_targets(by_place[:1])[0] if by_place else inputs_and_targets(by_name)[0]
            self._seen.inputs = inputs if isinstance(inputs, Tensor) else None

    def _see_tokens(self, given: tuple[Any, ...]) -> None:
        """Keep the token rows that an embedding gets in a training pass."""
        if given and len(self._seen.embedded) < MAX_EMBEDDED and is_training_pass():
            self._seen.embedded += rows_of_tokens(given[0])

    def attach_vitals(self, *, dead: bool = False) -> None:
        """Measure only the vital signs of the next forward pass, at blocks and attention; `dead` adds dead units and heads."""
        self.detach()
        self._counts_dead, readings = dead, self._readings
        for name, module in self._blocks.items():
            self._hook(module, name, _with_tensor(partial(readings.see_block, name)))
        for name, module in self._probabilities.items():
            self._hook(module, name, _with_attention(partial(readings.see_probabilities, causal=self._options.causal)))
        for name, module in self._logits.items():
            self._hook(module, name, _with_attention(readings.see_logits))
        for name, module in self._modules.items() if dead else ():
            if is_activation_function(module):
                self._hook(module, name, _with_tensor(partial(readings.see_function, name)))
        if self._watch:
            self._watch.attach(self._once(lambda _name, _module, call: readings.see_call(call)))

    def detach(self) -> ForwardStats:
        """Remove the hooks and return what they saw."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._deferred.measure()
        if self._watch:
            self._watch.detach()
            self._say_unseen(self._expects & self._watch.ran)
        self._expects = frozenset()
        if self._losses:
            with self._guard("the loss function"):
                self._seen.loss_function, self._seen.loss_terms = self._losses.detach(), self._losses.terms
                self._seen.embedded_shift_match = next_token_share(self._seen.embedded, self._losses.classes)
                self._seen.embedded_target_share = same_token_share(self._seen.embedded, self._losses.classes)
                self._seen.input_shift_match = next_token_share(rows_of_tokens(self._seen.inputs), self._losses.classes)
            self._losses.classes, self._seen.embedded = None, []  # tensors of the training are not kept beyond their step
        seen, self._seen, self._readings = self._seen, ForwardStats(), DeferredNumbers()
        outputs, self._outputs = self._outputs, {}
        with self._guard("activations"):
            seen.activations = dict(zip(outputs, activation_stats([*outputs.values()]), strict=True))
        seen.name_layers(shown={self._layers[name] for name in self._probabilities})
        return seen

    def _say_unseen(self, attending: frozenset[str]) -> None:
        seen = ["" if name == "model" else name for name in self._seen.computed]
        unseen = sorted(name for name in attending if not any(is_inside(inner, name) for inner in seen))
        if unseen and not self._has_said_unseen:
            self._has_said_unseen = True
            where = (unseen[0] or "the model") if len(unseen) == 1 else f"{len(unseen)} modules, such as {unseen[0]},"
            logger.warning("attention in %s is computed out of sight and not recorded", where)

    def detach_vitals(self) -> VitalSigns:
        """Remove the hooks and return the vital signs that they saw."""
        readings = self._readings
        self.detach()
        return readings.vitals(dead=self._counts_dead)

    def _hook(self, module: nn.Module, name: str, measure: Callable[[Any], None]) -> None:
        waiting = True

        def first(output: Any) -> None:
            nonlocal waiting
            # A second call is a second micro-batch or a recomputation.
            if not waiting or not is_training_pass():
                return
            waiting = False
            self._run_guarded(name, partial(measure, output))

        self._handles.append(module.register_forward_hook(Hook(first)))

    def _once(
        self, measure: Callable[[str, nn.Module, AttentionCall], None]
    ) -> Callable[[str, nn.Module, Callable[[], AttentionCall | None]], None]:
        """Return a callback that measures the first call of each module."""
        known = set[str]()

        def first(name: str, module: nn.Module, call: Callable[[], AttentionCall | None]) -> None:
            if name in known:
                return
            known.add(name)

            def measure_call() -> None:
                if (computed := call()) is not None:
                    measure(name, module, computed)

            self._run_guarded(f"the attention of {name}", measure_call)

        return first

    def _run_guarded(self, what: str, measure: Callable[[], None]) -> None:
        start = perf_counter()
        # A mode that watches the model need not see this.
        with self._guard(f"looking at {what}"), torch.no_grad(), torch._C.DisableTorchFunction():  # noqa: SLF001
            measure()
        self._seen.seconds += perf_counter() - start

    def _activation(self, name: str, *, count_dead: bool) -> Callable[[Any], None]:
        def measure(tensor: Tensor) -> None:
            self._outputs[name] = note(tensor, count_dead=count_dead)

        return _with_tensor(measure)

    def _attention(
        self, layer: str, grid: Literal["nested", "q8"] | None, stated: AttentionDirection | None
    ) -> Callable[[Any], None]:
        def measure(tensor: Tensor) -> None:
            some = tensor[:SEQUENCES]
            if self._deferred.has_room(some.numel()):
                self._deferred.add(layer, some.numel(), partial(self._shown, layer, some.clone(), grid, stated))
            else:
                self._shown(layer, some, grid, stated)

        return _with_attention(measure)

    def _stated(self, name: str, module: nn.Module) -> AttentionDirection | None:
        by_user: dict[bool | None, AttentionDirection] = {True: "causal", False: "bidirectional"}
        return stated_direction(name, module) or by_user.get(self._options.causal)

    def _shown(
        self, layer: str, probabilities: Tensor, grid: Literal["nested", "q8"] | None, stated: AttentionDirection | None
    ) -> None:
        count, keys = probabilities.shape[2:]
        own_keys = np.arange(count) + (keys - count)
        direction = seen_direction(stated, probabilities, own_keys, queries=count, is_certain=self._options.causal is not None)
        if direction is not None:
            self._seen.directions[layer] = direction
        self._seen.attention[layer], lowest = attention_stats(probabilities, causal=self._options.causal, grid=grid)
        _without_prefix(self._seen.attention[layer], direction)
        if self._options.kv_heads is not None:
            self._seen.attention[layer].kv_heads = self._options.kv_heads
        self._seen.entropies += [] if lowest is None else [lowest]

    def _logit(self, layer: str) -> Callable[[Any], None]:
        def measure(tensor: Tensor) -> None:
            self._seen.logits[layer] = max_logits(tensor)

        return _with_attention(measure)

    def _computed(self, name: str, module: nn.Module, call: AttentionCall, grid: Literal["nested", "q8"] | None) -> None:
        some, top = call.first_sequences(), largest_logits(call)
        size = sum(tensor.numel() for tensor in some.inputs)
        if self._deferred.has_room(size):
            self._deferred.add(f"the attention of {name}", size, partial(self._sampled, name, module, some.copied(), grid, top))
        else:
            self._sampled(name, module, some, grid, top)

    def _sampled(
        self, name: str, module: nn.Module, call: AttentionCall, grid: Literal["nested", "q8"] | None, top: Tensor
    ) -> None:
        sample = take(call, queries=self._options.queries, with_cells=grid is not None)
        if sample is None:
            return
        groups = getattr(module, "num_key_value_groups", 1)
        if self._options.kv_heads is not None:
            sample = replace(sample, kv_heads=self._options.kv_heads)
        elif isinstance(groups, int) and groups > 1:
            # The keys may have been repeated before the call.
            sample = replace(sample, kv_heads=call.shape[1] // groups)
        stats_and_lowest = sample_stats(sample, causal=self._options.causal, grid=grid)
        if stats_and_lowest is None:
            return
        stats, lowest = stats_and_lowest
        stats.max_logit_per_head = [shortest(value) for value in top.tolist()]
        self._seen.computed[name or "model"] = stats
        stated, own_keys = self._stated(name, module), sample.queries.own
        is_certain = self._options.causal is not None
        direction = seen_direction(stated, sample.probabilities, own_keys, queries=call.shape[2], is_certain=is_certain)
        if direction is not None:
            self._seen.computed_directions[name or "model"] = direction
        _without_prefix(stats, direction)
        self._seen.entropies += [] if lowest is None else [lowest]

    def _routing(self, name: str) -> Callable[[Any], None]:
        def measure(output: Any) -> None:
            capacity = module_setting(self._model, name, (CAPACITY,))
            choices = self._options.experts_per_token or module_setting(self._model, name, CHOICES) or (1 if capacity else None)
            if (stats := moe_stats(output, choices=choices, capacity=capacity)) is not None:
                self._seen.routers[name] = stats

        return measure


def _without_prefix(stats: AttentionStats, direction: AttentionDirection | None) -> None:
    """Set the weight on later tokens to 0 in a layer with a prefix: all of it is the prefix being read in both directions."""
    if direction == "prefix" and stats.upper_triangle_mass_per_head is not UNSET:
        stats.upper_triangle_mass_per_head = [0.0] * len(stats.upper_triangle_mass_per_head)


def _with_tensor(measure: Callable[[Tensor], None]) -> Callable[[Any], None]:
    """Return a callback that measures the tensor in a module's output, if there is one."""

    def with_tensor(output: Any) -> None:
        if (tensor := output_tensor(output)) is not None:
            measure(tensor)

    return with_tensor


def _with_attention(measure: Callable[[Tensor], None]) -> Callable[[Any], None]:
    """Return a callback that measures the (B, H, Q, K) tensor in a module's output, if there is one."""

    def with_tensor(output: Any) -> None:
        if (tensor := four_dimensional(output)) is not None:
            measure(tensor)

    return with_tensor


# Choice of the modules of a torch model whose output is measured.
def chosen_modules(model: nn.Module, patterns: Sequence[str] | None, without: Sequence[str] = ()) -> dict[str, nn.Module]:
    """Return the modules whose output is measured, by name.

    Args:
        model: The model.
        patterns: Glob patterns of module names; None chooses blocks, norms, embeddings, activation functions, convolutions
            and the linear layers outside attention and head.
        without: Glob patterns of names that are never chosen.
    """
    named = {name: module for name, module in model.named_modules() if name and not matches(name, without)}
    if patterns is not None:
        return {name: module for name, module in named.items() if matches(name, patterns)}
    return {name: module for name, module in named.items() if _is_of_interest(name, module)}


def is_activation_function(module: nn.Module) -> bool:
    """Return whether a module is an activation function, by its class name; it has no parameters."""
    name = type(module).__name__.lower()
    return any(word in name for word in FUNCTIONS) and not list(module.children()) and "softmax" not in name


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a module's name matches one of the glob patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_of_interest(name: str, module: nn.Module) -> bool:
    kind = type(module).__name__.lower()
    is_block = name.rpartition(".")[2].isdecimal() and bool(list(module.children()))
    if is_block or is_activation_function(module) or isinstance(module, (nn.Embedding, *CONVOLUTION)) or "norm" in kind:
        return True
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or list(module.children()):
        return False
    return kind_of(f"{name}.weight", module, weight.shape) in ("mlp", "other")


def output_tensor(output: Any) -> Tensor | None:
    """Return a module's output tensor, the first of a tuple, or this rank's shard of it; None if none is floating-point."""
    if isinstance(output, tuple | list) and output:
        output = output[0]
    return local(output) if isinstance(output, Tensor) and output.is_floating_point() else None
