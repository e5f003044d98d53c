"""What hooks saw of one forward pass."""

from collections.abc import Container

from msgspec import Struct, field

from ckaudit.contract.schema.checkpoint import ActivationStats, AttentionStats, MoeStats
from ckaudit.contract.schema.manifest import AttentionDirection
from ckaudit.contract.schema.tensor_names import layer_names
from ckaudit.recorder.stats.float32_rounding import shortest


class ForwardStats(Struct):
    """What one forward pass showed.

    Attributes:
        activations: Statistics by module name.
        attention: Statistics by layer name.
        entropies: Smallest normalized entropy of each layer.
        logits: Largest logit of each head, by layer name.
        computed: Statistics of attention that was seen where it is computed, by module name.
        looks: Which way that attention is to look, by module name, where it is known.
        directions: The same of all attention, by layer name.
        routers: Routing by name of the router.
        moe: The same by layer name.
        seconds: Time that the hooks took.
    """

    activations: dict[str, ActivationStats] = field(default_factory=dict)
    attention: dict[str, AttentionStats] = field(default_factory=dict)
    entropies: list[float] = field(default_factory=list)
    logits: dict[str, list[float]] = field(default_factory=dict)
    computed: dict[str, AttentionStats] = field(default_factory=dict)
    looks: dict[str, AttentionDirection] = field(default_factory=dict)
    directions: dict[str, AttentionDirection] = field(default_factory=dict)
    routers: dict[str, MoeStats] = field(default_factory=dict)
    moe: dict[str, MoeStats] = field(default_factory=dict)
    seconds: float = 0.0

    def name_layers(self, *, shown: Container[str]) -> None:
        """Put attention and routing that were noted by module under the names of their layers.

        Args:
            shown: Layers whose probabilities the model shows itself: others in them go by the names of their modules.
        """
        for name, layer in layer_names([f"{name}.attention" for name in self.computed]).items():
            module = name.removesuffix(".attention")
            place = module if layer in shown else layer
            self.attention[place] = self.computed[module]
            if module in self.looks:
                self.directions[place] = self.looks[module]
        for layer, values in self.logits.items():
            self.attention.setdefault(layer, AttentionStats()).max_logit_per_head = [shortest(value) for value in values]
        self.moe = {layer: self.routers[name] for name, layer in layer_names([*self.routers]).items()}
