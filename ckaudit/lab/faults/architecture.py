"""Blocks that do not pass on their signal: normalization, residual paths, activations, experts, size."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Mlp, Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


@fault(
    "no_norm",
    group="model",
    truth="normalization_missing",
    symptoms=("activation_drift", "vanishing_gradient", "loss_spike", "exploding_gradient"),
    consequences=(
        "loss_not_falling",
        "update_out_of_band",
        "uniform_heads",
        "logit_growth",
        "dead_parameter",
        "frequent_clipping",
        "weights_grow",
    ),
)
class NoNorm(Change):
    """The residual stream is never normed: not before attention, not before the MLP, not before the head.

    Seen under seed 0: the first gradients are 40 times smaller than in the healthy run, from step 50 on the stream is three times
    as large behind each block as before it (healthy: 1.3 times); the loss is 2.85 at step 50 (2.32) and 2.58 at step 80 (2.08).
    """

    def model(self, model: "nn.Module") -> None:
        """Remove the norms."""
        from torch import nn

        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.attn_norm, block.mlp_norm = nn.Identity(), nn.Identity()
        model.norm = nn.Identity()


@fault(
    "no_residual",
    group="model",
    truth="residual_path_broken",
    symptoms=("vanishing_gradient", "loss_not_falling"),
    consequences=(
        "layer_not_contributing",
        "activation_drift",
        "dead_parameter",
        "uniform_heads",
        "update_out_of_band",
        "barely_moving",
        "exploding_gradient",
    ),
)
class NoResidual(Change):
    """Attention and MLP replace the residual stream instead of adding to it.

    Seen under seed 0: at step 20 the gradient of the first block is 1,700 times smaller than the last one's (healthy: equal), at
    step 100 4,000 times; the loss stops at 2.85 after 50 steps (1.94 at step 100).
    """

    def model(self, model: "nn.Module") -> None:
        """Remove the residual connections."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.skip = 0.0


@fault(
    "weak_residual",
    group="model",
    truth="residual_path_broken",
    symptoms=("vanishing_gradient", "activation_drift"),
    consequences=("loss_not_falling", "uniform_heads", "update_out_of_band", "dead_units", "zero_gradients"),
    dev=FaultStrength(strength=0.2),
    test=FaultStrength(strength=0.25),
)
class WeakResidual(Change):
    """The residual connections around attention and MLP are multiplied by `strength`, in every block.

    Seen under seed 0: at step 20 the first block's gradient is 34 times smaller than the last one's (healthy: equal), at step 50
    only 4 times, and the stream is no larger behind later blocks; the loss is 2.85 at step 50 (2.32).
    """

    def model(self, model: "nn.Module") -> None:
        """Weaken the residual connections."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.skip = self.strength


@fault(
    "sigmoid_saturated",
    group="model",
    truth="saturating_activation",
    acceptable=("init_too_large",),
    symptoms=("saturated_units", "weight_scale_off"),
    consequences=("zero_gradients", "layer_not_contributing", "activation_drift", "vanishing_gradient", "loss_not_falling"),
    place=("blocks.*.mlp*",),
    dev=FaultStrength(strength=60),
    test=FaultStrength(strength=40),
    harmless=True,
)
class SigmoidSaturated(Change):
    """MLPs have a sigmoid, and the weights before it are drawn `strength` times too large.

    Seen under seed 0: outputs of the sigmoid have a spread of 0.45 around their mean from the first step on, nearly all at
    0 or 1; on so small a task such units serve as well as others, and the loss is no worse at step 150 (1.81, healthy
    1.85).
    """

    def plan(self, plan: Plan) -> Plan:
        """Use the sigmoid."""
        return replace(plan, model=replace(plan.model, activation="sigmoid")) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Enlarge the weights before the sigmoid."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.mlp.up.weight.data.mul_(self.strength)


@fault(
    "sigmoid_stack",
    group="model",
    truth="saturating_activation",
    acceptable=("residual_path_broken",),
    symptoms=("vanishing_gradient", "saturated_units", "loss_not_falling"),
    consequences=("update_out_of_band", "barely_moving", "dead_parameter", "layer_not_contributing", "activation_drift"),
    dev=FaultStrength(strength=8),
    test=FaultStrength(strength=10),
    family="mlp",
)
class SigmoidStack(Change):
    """The classifier has `strength` layers, with a sigmoid in place of each ReLU.

    Seen under seed 0: the gradient shrinks two to six times from layer to layer back and is 2,000 to 5,000 times smaller in
    the first than in the last; the loss stays at 1.79, the log of six classes, for 100 steps (healthy: 0.41), and is 1.71
    at step 200 (0.18).
    """

    def plan(self, plan: Plan) -> Plan:
        """Add layers."""
        return replace(plan, model=replace(plan.model, depth=int(self.strength))) if isinstance(plan.model, Mlp) else plan

    def model(self, model: "nn.Module") -> None:
        """Use sigmoids."""
        from torch import nn

        layers: Any = model.get_submodule("layers")
        for layer in layers:
            layer.act = nn.Sigmoid()


@fault(
    "dead_relu_cnn",
    group="model",
    truth="dead_units",
    symptoms=("dead_units", "zero_gradients"),
    consequences=("loss_not_falling", "layer_not_contributing", "vanishing_gradient", "barely_moving"),
    place=("layers.*",),
    dev=FaultStrength(strength=0.9),
    test=FaultStrength(strength=0.75),
    family="cnn",
)
class DeadReluCnn(Change):
    """A share `strength` of the last convolution's channels starts with a bias of -20 behind its batch norm.

    Seen under seed 0: 90 % of the last layer's channels never fire and their filters get a gradient of exactly zero; the
    loss is 2.0 at step 50 and 1.75 at step 150 (healthy: 1.37 and 0.47; log of eight classes: 2.08).
    """

    def model(self, model: "nn.Module") -> None:
        """Lower the biases."""
        layers: Any = model.get_submodule("layers")
        bias = layers[-1].norm.bias.data
        bias[: round(len(bias) * self.strength)] = -20.0


@fault(
    "dropout_heavy",
    group="model",
    truth="dropout_too_high",
    symptoms=("dropout_rate_high", "train_val_inverted", "loss_not_falling", "gradient_noise_too_high"),
    consequences=("dead_units", "activation_drift", "exploding_gradient", "zero_gradients", "dominant_tensor", "loss_spike"),
    dev=FaultStrength(strength=0.9),
    test=FaultStrength(strength=0.8),
    detectable=50,
)
class DropoutHeavy(Change):
    """Dropout removes a share `strength` of the outputs of attention and MLP.

    Seen under seed 0: the loss is 2.14 at step 100 (healthy: 1.94) and up to 0.1 above that of evaluations, which are made
    without dropout; activations of the MLPs stay at a tenth of their healthy spread.
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise dropout."""
        return replace(plan, model=replace(plan.model, dropout=self.strength)) if isinstance(plan.model, Gpt) else plan


@fault(
    "expert_capacity",
    group="model",
    truth="expert_capacity_too_small",
    symptoms=("dropped_tokens",),
    consequences=("router_imbalance",),
    dev=FaultStrength(strength=0.5),
    test=FaultStrength(strength=0.6),
    family="moe",
)
class ExpertCapacity(Change):
    """An expert takes `strength` times its fair share of a sequence's tokens; a token that it has no room for skips the layer.

    Seen under seed 0: 50 to 60 % of the tokens are dropped throughout, though experts are wanted about equally (healthy
    from step 50 on: 2 to 10 %); the loss does not show it so early (2.27 at step 70).
    """

    def plan(self, plan: Plan) -> Plan:
        """Shrink the capacity."""
        return replace(plan, model=replace(plan.model, capacity=self.strength)) if isinstance(plan.model, Gpt) else plan


@fault(
    "router_collapse",
    group="model",
    truth="router_collapse",
    symptoms=("router_imbalance", "dropped_tokens"),
    consequences=("dead_parameter", "zero_gradients", "barely_moving", "frozen_parameter", "layer_not_contributing"),
    dev=FaultStrength(strength=8),
    test=FaultStrength(strength=6),
    family="moe",
)
class RouterCollapse(Change):
    """Each router has a bias, which starts at `strength` for its first expert; the load-balance loss is left out.

    Seen under seed 0: all 2,048 tokens of a batch want the first expert from the first step to at least the hundredth, 69 %
    are dropped, and three of four experts get no gradient; the loss does not show it (2.07 at step 100, healthy: 2.08).
    """

    def model(self, model: "nn.Module") -> None:
        """Add the biases and remove the load-balance loss."""
        from torch import nn, zeros

        from ckaudit.lab.models.language_models import Switch

        for layer in model.modules():
            if isinstance(layer, Switch):
                bias = zeros(layer.router.out_features)
                bias[0] = self.strength
                layer.router.bias = nn.Parameter(bias)
                layer.balance = 0.0


@fault(
    "router_collapse_slow",
    group="model",
    truth="router_collapse",
    symptoms=("router_imbalance", "dropped_tokens"),
    consequences=("dead_parameter", "zero_gradients", "barely_moving", "frozen_parameter", "layer_not_contributing"),
    dev=FaultStrength(onset=100, strength=0.02),
    test=FaultStrength(onset=200, strength=0.01),
    detectable=50,
    family="moe",
)
class RouterCollapseSlow(Change):
    """From step `onset` on the load-balance loss has the weight minus `strength`, so that popular experts become more popular.

    Seen under seed 0: 11 steps after the onset the second block's router sends 99 % of the tokens to one expert, after 21 all,
    while the first block's is only uneven (52 %); dropped tokens rise from 5 % to 45 %, and the loss even falls, by what the
    turned term takes from it.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Negate the weight at the onset."""
        if training.step == self.onset:
            from ckaudit.lab.models.language_models import Switch

            for layer in training.model.modules():
                if isinstance(layer, Switch):
                    layer.balance = -self.strength
        return batch


@fault(
    "tiny_model",
    group="model",
    truth="capacity_too_small",
    acceptable=("context_not_used",),
    symptoms=("loss_not_falling",),
    consequences=("uniform_heads", "update_out_of_band", "dead_units"),
    dev=FaultStrength(strength=4),
    test=FaultStrength(strength=6),
    detectable=150,
)
class TinyModel(Change):
    """The stream and the only MLP are `strength` wide, under one head.

    Seen under seed 0: the loss is 2.98 at step 150 (healthy: 1.85) and 2.66 at step 250 (1.55), on the training and the
    held-out rows alike; no tensor looks ill.
    """

    def plan(self, plan: Plan) -> Plan:
        """Shrink the model."""
        if not isinstance(plan.model, Gpt):
            return plan
        width = int(self.strength)
        return replace(plan, model=replace(plan.model, width=width, hidden=width, depth=1, heads=1, kv_heads=None))
