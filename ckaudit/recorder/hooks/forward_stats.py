"""Statistics of one forward pass as hooks collect them; some are deferred, to be computed together."""

from collections.abc import Callable, Container

from msgspec import Struct, field
from torch import Tensor

from ckaudit.contract.schema.checkpoint import ActivationStats, AttentionStats, MoeStats
from ckaudit.contract.schema.loss_functions import LossFunctionStats, LossTermStats
from ckaudit.contract.schema.manifest import AttentionDirection
from ckaudit.contract.schema.tensor_names import layer_names
from ckaudit.recorder.stats.float32_rounding import shortest

MAX_HELD_ELEMENTS = 2**22  # elements kept for deferred statistics: 16 MiB


class ForwardStats(Struct):
    """Statistics of one forward pass.

    Attributes:
        activations: Statistics by module name.
        attention: Statistics by layer name.
        entropies: Smallest normalized entropy of each layer.
        logits: Largest logit of each head, by layer name.
        computed: Statistics of attention that was measured where it is computed, by module name.
        computed_directions: The direction of that attention, by module name, if known.
        directions: The direction of all attention, by layer name.
        routers: Routing statistics by name of the router.
        moe: Routing statistics by layer name.
        loss_function: Statistics of the loss function's arguments, if they were seen.
        loss_terms: The loss functions of the step, if there are several.
        inputs: The model's first argument, numbers or tokens, if the call of the model was seen.
        embedded: The tokens (B, T) that its embeddings got.
        embedded_shift_match: Largest share of targets that are the next token in `embedded`.
        embedded_target_share: Largest share of targets that equal the token in `embedded` at the same position.
        input_shift_match: Share of targets that are the next token of the inputs.
        seconds: Time that the hooks took.
    """

    activations: dict[str, ActivationStats] = field(default_factory=dict)
    attention: dict[str, AttentionStats] = field(default_factory=dict)
    entropies: list[float] = field(default_factory=list)
    logits: dict[str, list[float]] = field(default_factory=dict)
    computed: dict[str, AttentionStats] = field(default_factory=dict)
    computed_directions: dict[str, AttentionDirection] = field(default_factory=dict)
    directions: dict[str, AttentionDirection] = field(default_factory=dict)
    routers: dict[str, MoeStats] = field(default_factory=dict)
    moe: dict[str, MoeStats] = field(default_factory=dict)
    loss_function: LossFunctionStats | None = None
    loss_terms: dict[str, LossTermStats] = field(default_factory=dict)
    inputs: Tensor | None = None
    embedded: list[Tensor] = field(default_factory=list)
    embedded_shift_match: float | None = None
    embedded_target_share: float | None = None
    input_shift_match: float | None = None
    seconds: float = 0.0

    def name_layers(self, *, shown: Container[str]) -> None:
        """Rename attention and routing from module names to layer names.

        Args:
            shown: Layers that output their probabilities; other attention inside them keeps its module names.
        """
        for name, layer in layer_names([f"{name}.attention" for name in self.computed]).items():
            module = name.removesuffix(".attention")
            place = module if layer in shown else layer
            self.attention[place] = self.computed[module]
            if module in self.computed_directions:
                self.directions[place] = self.computed_directions[module]
        for layer, values in self.logits.items():
            self.attention.setdefault(layer, AttentionStats()).max_logit_per_head = [shortest(value) for value in values]
        self.moe = {layer: self.routers[name] for name, layer in layer_names([*self.routers]).items()}


# Measurements are deferred because their code is not in the CPU cache in the middle of a forward pass.
class DeferredStats:
    """Queue of tensor measurements that are done together, in order.

    In a model of three layers, the statistics of one layer's attention take 0.9 ms in the forward pass, and 0.4 ms right after
    those of another layer.

    Args:
        run_guarded: Runs one measurement, named by its first argument, and guards it.
        max_held: Elements kept; before that is exceeded, the queue is measured.
    """

    def __init__(self, run_guarded: Callable[[str, Callable[[], None]], None], *, max_held: int = MAX_HELD_ELEMENTS) -> None:
        self._run_guarded, self._most = run_guarded, max_held
        self._held: list[tuple[str, Callable[[], None]]] = []
        self._size = 0

    def has_room(self, size: int) -> bool:
        """Return whether `size` elements can be kept, after measuring the queue if it takes too much room."""
        if self._size + size > self._most:
            self.measure()
        return size <= self._most

    def add(self, what: str, size: int, measure: Callable[[], None]) -> None:
        """Defer the measurement of `size` elements."""
        self._size += size
        self._held.append((what, measure))

    def measure(self) -> None:
        """Do all deferred measurements."""
        held, self._held, self._size = self._held, [], 0
        for what, measure in held:
            self._run_guarded(what, measure)
