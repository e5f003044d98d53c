"""Initial weights that are too large, too small, or all equal."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.training import Training


@fault(
    "init_x5",
    group="initialization",
    truth="init_too_large",
    symptoms=("weight_scale_off", "initial_loss_off"),
    consequences=("update_out_of_band", "logit_growth"),
    dev=FaultStrength(strength=5),
    test=FaultStrength(strength=4),
    harmless=True,
)
class InitX5(Change):
    """All matrices are drawn `strength` times too large.

    Seen under seed 0: weights have a spread of 0.1 (healthy: 0.02) and the first loss is 4.78 (log of the vocabulary:
    4.56); the loss is lower than the healthy one ever after, 1.78 at step 100 (1.94).
    """

    def model(self, model: "nn.Module") -> None:
        """Enlarge the matrices."""
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.data.mul_(self.strength)


@fault(
    "init_x100",
    group="initialization",
    truth="init_too_large",
    symptoms=("initial_loss_off", "weight_scale_off", "logit_growth", "entropy_collapse"),
    consequences=(
        "loss_not_falling",
        "exploding_gradient",
        "update_out_of_band",
        "activation_drift",
        "loss_spike",
        "saturated_units",
    ),
    dev=FaultStrength(strength=100),
    test=FaultStrength(strength=60),
)
class InitX100(Change):
    """All matrices are drawn `strength` times too large, and gradients are not clipped.

    Seen under seed 0: the first loss is 37 (log of the vocabulary: 4.6), at step 10 logits reach 1,400 and the sharpest
    head's entropy is 0.004 of its maximum; at step 50 the loss is still 9.5 (healthy: 2.3).
    """

    def plan(self, plan: Plan) -> Plan:
        """Remove the clip norm."""
        return replace(plan, optimizer=replace(plan.optimizer, clip=None))

    def model(self, model: "nn.Module") -> None:
        """Enlarge the matrices."""
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.data.mul_(self.strength)


@fault(
    "init_tiny",
    group="initialization",
    truth="init_too_small",
    symptoms=("weight_scale_off", "update_out_of_band", "vanishing_gradient", "dead_parameter"),
    consequences=(
        "initialization_lost",
        "loss_not_falling",
        "activation_drift",
        "redundant_heads",
        "uniform_heads",
        "weights_alike",
        "weights_jump",
    ),
    dev=FaultStrength(strength=1e-4),
    test=FaultStrength(strength=3e-4),
)
class InitTiny(Change):
    """All matrices are drawn at `strength` times the correct scale.

    Seen under seed 0: the first gradient norm is 0.007 (healthy: 1.25), weights have a spread of 2e-6, attention logits are 1e-9
    until step 20; the loss is 2.6 at step 100 (1.9).
    """

    def model(self, model: "nn.Module") -> None:
        """Shrink the matrices."""
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.data.mul_(self.strength)


@fault(
    "init_const",
    group="initialization",
    truth="symmetry_not_broken",
    symptoms=("weights_alike", "vanishing_gradient", "dead_parameter"),
    consequences=(
        "loss_not_falling",
        "layer_not_contributing",
        "uniform_heads",
        "update_out_of_band",
        "barely_moving",
        "dead_units",
        "zero_gradients",
    ),
    dev=FaultStrength(strength=0.01),
    test=FaultStrength(strength=0.02),
)
class InitConst(Change):
    """All elements of all matrices are `strength`.

    Seen under seed 0: weights of the blocks have a spread of zero and gradients of 1e-8, from step 50 on 1e-10 (healthy:
    0.1), since all units are the same unit; the loss stops at 2.86, the entropy of single tokens (2.32 at step 50).
    """

    def model(self, model: "nn.Module") -> None:
        """Fill the matrices."""
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.data.fill_(self.strength)


@fault(
    "head_init_x50",
    group="initialization",
    truth="init_too_large",
    symptoms=("initial_loss_off", "weight_scale_off"),
    consequences=("exploding_gradient", "frequent_clipping", "loss_not_falling", "update_out_of_band", "layer_not_contributing"),
    place=("head.weight",),
    dev=FaultStrength(strength=50),
    test=FaultStrength(strength=30),
    harmless=True,
)
class HeadInitX50(Change):
    """The head, an untied matrix, is drawn `strength` times too large; all other weights are as usual.

    Seen under seed 0: the first loss is 17 (log of the vocabulary: 4.6) and the gradient norm 73 (healthy: 1.25); from step 10 on
    the loss is no worse than the healthy one, so nothing is lost.
    """

    def plan(self, plan: Plan) -> Plan:
        """Untie the head."""
        return replace(plan, model=replace(plan.model, tied=False)) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Enlarge the head."""
        head: Any = model.get_submodule("head")
        head.weight.data.mul_(self.strength)


@fault(
    "dead_relu",
    group="initialization",
    truth="dead_units",
    symptoms=("dead_units", "dead_parameter", "zero_gradients"),
    consequences=("layer_not_contributing", "barely_moving", "vanishing_gradient", "frozen_parameter", "weights_alike"),
    place=("blocks.*.mlp*",),
    dev=FaultStrength(strength=10),
    test=FaultStrength(strength=6),
)
class DeadRelu(Change):
    """MLPs with ReLU have a bias before it, which starts at minus `strength`.

    Seen under seed 0: all units of all blocks are silent for good, and 12 of 31 tensors get a gradient of exactly zero from
    the first step on; the loss goes on almost as in the healthy run (4.15 at step 10, healthy: 4.09).
    """

    def plan(self, plan: Plan) -> Plan:
        """Use ReLU."""
        return replace(plan, model=replace(plan.model, activation="relu")) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Add the biases."""
        from torch import full, nn

        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.mlp.up.bias = nn.Parameter(full((block.mlp.up.out_features,), -float(self.strength)))


@fault(
    "dead_relu_late",
    group="initialization",
    truth="dead_units",
    acceptable=("weights_changed_outside_optimizer",),
    symptoms=("dead_units", "zero_gradients", "weights_jump"),
    consequences=("dead_parameter", "layer_not_contributing", "loss_spike", "activation_drift", "vanishing_gradient"),
    place=("blocks.1.mlp*",),
    dev=FaultStrength(onset=150, strength=0.9),
    test=FaultStrength(onset=250, strength=0.75),
    detectable=50,
)
class DeadReluLate(Change):
    """MLPs with ReLU have a bias before it; at step `onset` a share `strength` of the second block's falls to -20.

    Seen under seed 0: at the onset the bias moves by 99.6 % of its size in one step and the loss rises by 0.1, for one
    step; from the next checkpoint on 216 of the block's 240 units never fire, and the loss goes on as before.
    """

    def plan(self, plan: Plan) -> Plan:
        """Use ReLU."""
        return replace(plan, model=replace(plan.model, activation="relu")) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Add the biases."""
        from torch import nn, zeros

        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.mlp.up.bias = nn.Parameter(zeros(block.mlp.up.out_features))

    def updated(self, training: "Training") -> None:
        """Lower most biases of one block, once."""
        if training.step == self.onset:
            bias = training.model.get_parameter("blocks.1.mlp.up.bias").data
            bias[: round(len(bias) * self.strength)] = -20.0
