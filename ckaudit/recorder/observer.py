"""Looks at one forward pass: hooks that are there only while a checkpoint is due."""

from collections.abc import Callable, Container, Sequence
from time import perf_counter
from typing import Any, Literal

import torch
from msgspec import Struct, field
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ckaudit.contract.behaviour import ActivationStats, AttentionStats
from ckaudit.contract.sizes import Part
from ckaudit.recorder.activation_stats import activation_stats
from ckaudit.recorder.activations import chosen_modules, is_function, matches, output_tensor
from ckaudit.recorder.attention import attention_stats, four_dimensional, max_logits
from ckaudit.recorder.digits import shortest
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks import Hook
from ckaudit.recorder.names import depth_of


class Seen(Struct):
    """What one forward pass showed.

    Attributes:
        activations: Statistics by module name.
        attention: Statistics by layer name.
        entropies: Smallest normalized entropy of each layer.
        logits: Largest logit of each head, by layer name.
        seconds: Time that the hooks took.
    """

    activations: dict[str, ActivationStats] = field(default_factory=dict)
    attention: dict[str, AttentionStats] = field(default_factory=dict)
    entropies: list[float] = field(default_factory=list)
    logits: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0


class Observer:
    """Attaches hooks to the chosen modules, and takes them away again.

    Args:
        model: The model.
        guard: Keeps a failing hook away from the forward pass.
        modules: Glob patterns of modules whose outputs are measured; None: the default choice.
        probabilities: Glob patterns of modules that put out attention probabilities (B, H, Q, K).
        logits: The same for the logits before softmax.
        causal: Whether a query must not see later keys; None: look.
        kv_heads: Key and value heads of each layer, where queries share them.
        hookable: Names of the modules that may be hooked.
    """

    def __init__(
        self,
        model: nn.Module,
        guard: Guard,
        *,
        modules: Sequence[str] | None,
        probabilities: Sequence[str],
        logits: Sequence[str],
        causal: bool | None,
        kv_heads: int | None,
        hookable: Container[str],
    ) -> None:
        names = [name for name, _ in model.named_modules() if name in hookable]
        self._guard, self._causal, self._kv_heads = guard, causal, kv_heads
        chosen = chosen_modules(model, modules, without=(*probabilities, *logits))
        self._modules = {name: module for name, module in chosen.items() if name in hookable}
        self._probabilities = {name: model.get_submodule(name) for name in names if matches(name, probabilities)}
        self._logits = {name: model.get_submodule(name) for name in names if matches(name, logits)}
        self._layers = layer_names([*self._probabilities]) | layer_names([*self._logits])
        self._handles: list[RemovableHandle] = []
        self._seen = Seen()

    @property
    def modules(self) -> list[str]:
        """Names of the modules whose outputs are measured."""
        return [*self._modules]

    @property
    def parts(self) -> list[Part]:
        """The layers whose attention can be had; how many heads they have is not known before the forward pass."""
        return [Part(self._layers[name], depth_of(name), 1) for name in self._probabilities]

    def attach(self, encoding: Literal["nested", "q8", "none"], grid_depths: frozenset[int | None]) -> None:
        """Look at the next forward pass; layers in `grid_depths` get grids."""
        self.detach()
        for name, module in self._modules.items():
            self._hook(module, name, self._activation(name, count_dead=is_function(module)))
        for name, module in self._probabilities.items():
            grid = encoding if encoding != "none" and depth_of(name) in grid_depths else None
            self._hook(module, name, self._attention(self._layers[name], grid))
        for name, module in self._logits.items():
            self._hook(module, name, self._logit(self._layers[name]))

    def detach(self) -> Seen:
        """Take the hooks away and return what they saw."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        seen, self._seen = self._seen, Seen()
        for layer, values in seen.logits.items():
            seen.attention.setdefault(layer, AttentionStats()).max_logit_per_head = [shortest(value) for value in values]
        return seen

    def _hook(self, module: nn.Module, name: str, look: Callable[[Any], None]) -> None:
        waiting = True

        def first(output: Any) -> None:
            nonlocal waiting
            # Validation runs without gradients; a second call is a second micro-batch or a recomputation.
            if not waiting or not torch.is_grad_enabled():
                return
            waiting = False
            start = perf_counter()
            with self._guard(f"looking at {name}"), torch.no_grad():
                look(output)
            self._seen.seconds += perf_counter() - start

        self._handles.append(module.register_forward_hook(Hook(first)))

    def _activation(self, name: str, *, count_dead: bool) -> Callable[[Any], None]:
        def look(output: Any) -> None:
            tensor = output_tensor(output)
            if tensor is not None:
                self._seen.activations[name] = activation_stats(tensor, count_dead=count_dead)

        return look

    def _attention(self, layer: str, grid: Literal["nested", "q8"] | None) -> Callable[[Any], None]:
        def look(output: Any) -> None:
            tensor: Tensor | None = four_dimensional(output)
            if tensor is None:
                return
            self._seen.attention[layer], lowest = attention_stats(tensor, causal=self._causal, grid=grid)
            if self._kv_heads is not None:
                self._seen.attention[layer].kv_heads = self._kv_heads
            self._seen.entropies += [] if lowest is None else [lowest]

        return look

    def _logit(self, layer: str) -> Callable[[Any], None]:
        def look(output: Any) -> None:
            tensor = four_dimensional(output)
            if tensor is not None:
                self._seen.logits[layer] = max_logits(tensor)

        return look


def layer_names(names: Sequence[str]) -> dict[str, str]:
    """Return the layer that each module stands for: layer.<depth>, or the module around it where a depth has several.

    >>> layer_names(["blocks.0.attn.probabilities", "blocks.1.self.p", "blocks.1.cross.p"])
    {'blocks.0.attn.probabilities': 'layer.0', 'blocks.1.self.p': 'blocks.1.self', 'blocks.1.cross.p': 'blocks.1.cross'}
    """
    depths = [depth_of(name) for name in names]
    return {
        name: name.rpartition(".")[0] or name if depth is None or depths.count(depth) > 1 else f"layer.{depth}"
        for name, depth in zip(names, depths, strict=True)
    }
