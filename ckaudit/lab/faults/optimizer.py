"""The optimizer and its inputs: its constants, clipping, weight decay, batches, the scale of the loss."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


@fault(
    "adam_eps_1",
    group="optimization",
    truth="adam_epsilon_too_large",
    acceptable=("learning_rate_too_low",),
    symptoms=("updates_held_back", "update_out_of_band", "barely_moving", "loss_not_falling"),
    consequences=("uniform_heads",),
    dev=FaultStrength(strength=1),
    test=FaultStrength(strength=0.3),
)
class AdamEps1(Change):
    """AdamW divides by the root of the second moment plus `strength`.

    Seen under seed 0: updates are 2e-4 of the weights at step 20 (healthy: 1e-2) though the gradient norm is as ever, and
    the loss is still 4.43 at step 50 (2.3).
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise epsilon."""
        return replace(plan, optimizer=replace(plan.optimizer, eps=self.strength))


@fault(
    "sgd_instead",
    group="optimization",
    truth="optimizer_unsuited",
    acceptable=("learning_rate_too_low",),
    symptoms=("update_out_of_band", "barely_moving", "loss_not_falling"),
    consequences=("uniform_heads",),
)
class SgdInstead(Change):
    """SGD with momentum in place of AdamW, with the rate that AdamW would have and no weight decay.

    Seen under seed 0: at step 50 updates of attention's queries are 1e-6 to 4e-6 of the weights and those of the MLPs 4e-4
    (healthy: 3e-2 and 2e-2), only the head moves as it should; the loss is 3.48 (2.3).
    """

    def plan(self, plan: Plan) -> Plan:
        """Use SGD."""
        return replace(plan, optimizer=replace(plan.optimizer, kind="sgd", weight_decay=0.0))


@fault(
    "clip_low",
    group="optimization",
    truth="clip_limit_too_low",
    acceptable=("learning_rate_too_low",),
    symptoms=("frequent_clipping", "update_out_of_band", "loss_not_falling"),
    consequences=("uniform_heads", "barely_moving"),
    dev=FaultStrength(strength=0.02),
    test=FaultStrength(strength=0.03),
)
class ClipLow(Change):
    """SGD with momentum at a suitable rate, a hundred times Adam's, and the gradient norm clipped to `strength`.

    Seen under seed 0: the clipping coefficient is 0.015 to 0.03, updates are 0.25 % of the weights at step 50 (limited to 1: 1.0
    %) and the loss is 3.01 (limited to 1: 2.24).
    """

    def plan(self, plan: Plan) -> Plan:
        """Use SGD and lower the clip norm."""
        healthy = plan.optimizer
        optimizer = replace(healthy, kind="sgd", peak=healthy.peak * 100, weight_decay=0.0, clip=self.strength)
        return replace(plan, optimizer=optimizer)


@fault(
    "clip_tiny",
    group="optimization",
    truth="clip_limit_too_low",
    symptoms=("frequent_clipping",),
    consequences=("update_out_of_band", "loss_not_falling", "uniform_heads"),
    dev=FaultStrength(strength=1e-4),
    test=FaultStrength(strength=3e-4),
)
class ClipTiny(Change):
    """The global gradient norm is clipped to `strength`.

    Seen under seed 0: the gradient norm is 0.6 to 1.7, the clipping coefficient 6e-5 to 2e-4 at every step; Adam hides most of
    it: attention learns later (logits of 1 at step 100, healthy: 4) and the loss is 1.90 at step 150 (1.85).
    """

    def plan(self, plan: Plan) -> Plan:
        """Lower the clip norm."""
        return replace(plan, optimizer=replace(plan.optimizer, clip=self.strength))


@fault(
    "weight_decay_20",
    group="optimization",
    truth="weight_decay_too_high",
    symptoms=("weights_shrink", "loss_not_falling"),
    consequences=(
        "loss_rises",
        "uniform_heads",
        "starved_branch",
        "barely_moving",
        "vanishing_gradient",
        "activation_drift",
        "dead_parameter",
        "dead_units",
        "update_out_of_band",
    ),
    dev=FaultStrength(strength=20),
    test=FaultStrength(strength=15),
    detectable=40,
)
class WeightDecay20(Change):
    """AdamW's weight decay is `strength`.

    Seen under seed 0: from step 10 on the spread of weights shrinks, from 0.008 to 0.0003 at step 100 in the smallest, and
    the stream with it; updates are 4 to 6 % of the weights (healthy: 1 %); after a first fall to 3.8 the loss climbs back
    to 4.4 (1.9).
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the decay."""
        return replace(plan, optimizer=replace(plan.optimizer, weight_decay=self.strength))


@fault(
    "weight_decay_late",
    group="optimization",
    truth="weight_decay_too_high",
    symptoms=("weights_shrink", "loss_rises"),
    consequences=(
        "dead_parameter",
        "dead_units",
        "loss_not_falling",
        "uniform_heads",
        "starved_branch",
        "vanishing_gradient",
        "activation_drift",
        "update_out_of_band",
        "loss_spike",
        "barely_moving",
    ),
    dev=FaultStrength(onset=150, strength=20),
    test=FaultStrength(onset=200, strength=15),
    detectable=40,
)
class WeightDecayLate(Change):
    """From step `onset` on AdamW's weight decay is `strength`.

    Seen under seed 0: updates jump to 5 % of every tensor at the onset (healthy: 0.04 to 2.4 %), all weights shrink by that
    much a step, and the loss climbs from 1.8 to 3.7 in 40 steps.
    """

    def update(self, training: "Training") -> None:
        """Raise the decay from the onset on."""
        if training.step >= self.onset:
            for group in training.optimizer.param_groups:
                group["weight_decay"] = self.strength
        training.update()


@fault(
    "batch_1",
    group="optimization",
    truth="batch_too_small",
    acceptable=("learning_rate_too_high",),
    symptoms=("gradient_noise_too_high", "loss_spike", "exploding_gradient"),
    consequences=(
        "frequent_clipping",
        "update_out_of_band",
        "loss_not_falling",
        "token_drift",
        "dominant_tensor",
        "entropy_collapse",
    ),
    dev=FaultStrength(strength=1),
    test=FaultStrength(strength=2),
    detectable=50,
)
class Batch1(Change):
    """The number of rows in a batch is `strength`.

    Seen under seed 0: the loss jumps by 0.15 from step to step (healthy: 0.05), and is 2.21 on held-out rows at step 200
    (1.69).
    """

    def plan(self, plan: Plan) -> Plan:
        """Shrink the batch."""
        return replace(plan, data=replace(plan.data, batch_size=int(self.strength)))


@fault(
    "loss_sum",
    group="optimization",
    truth="loss_reduced_by_sum",
    acceptable=("clip_limit_too_low",),
    symptoms=("initial_loss_off", "frequent_clipping"),
    consequences=("exploding_gradient", "train_val_inverted", "update_out_of_band", "impossible_value", "contradicted_claim"),
)
class LossSum(Change):
    """The training loss, and with it the gradient, is the sum over all tokens of the batch; evaluations use the mean.

    Seen under seed 0: the first loss is 9,340, which is 2,048 times the healthy 4.56, and the gradient norm 2,500; clipping to 1
    and Adam make the weights the same as in the healthy run.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Return the sum."""
        return training.task.losses(logits, batch).sum()


@fault(
    "one_tensor_dominates",
    group="optimization",
    truth="one_tensor_dominates",
    symptoms=("dominant_tensor", "frequent_clipping"),
    consequences=("exploding_gradient", "update_out_of_band", "starved_branch", "vanishing_gradient"),
    place=("head.weight",),
    dev=FaultStrength(strength=1000),
    test=FaultStrength(strength=500),
)
class OneTensorDominates(Change):
    """The head's gradient is multiplied by `strength` before it is clipped; embedding and head are two matrices.

    Seen under seed 0: the head holds more than 99.9 % of the squared gradient norm, which is 580 to 1,600 (healthy: 1.2),
    and every step is clipped a thousandfold; Adam hides it, and the loss at step 20 is 3.43 (3.39).
    """

    def plan(self, plan: Plan) -> Plan:
        """Untie the head."""
        return replace(plan, model=replace(plan.model, tied=False)) if isinstance(plan.model, Gpt) else plan

    def gradients(self, training: "Training") -> None:
        """Enlarge the head's gradient."""
        head: Any = training.model.get_submodule("head")
        head.weight.grad.mul_(self.strength)


@fault(
    "one_tensor_dominates_mid",
    group="optimization",
    truth="one_tensor_dominates",
    symptoms=("dominant_tensor", "exploding_gradient", "frequent_clipping"),
    consequences=("update_out_of_band", "starved_branch", "vanishing_gradient", "loss_spike"),
    place=("blocks.1.mlp.up.weight",),
    dev=FaultStrength(onset=150, strength=300),
    test=FaultStrength(onset=220, strength=150),
)
class OneTensorDominatesMid(Change):
    """From step `onset` on the gradient of the second block's MLP is multiplied by `strength` before it is clipped.

    Seen under seed 0: at the onset the gradient norm jumps from 1.3 to 30, and one matrix holds 99.9 % of its square; the
    others move half as much at step 200 as they should, and the loss falls behind, 1.74 (healthy: 1.65).
    """

    def gradients(self, training: "Training") -> None:
        """Enlarge the gradient of one matrix from the onset on."""
        if training.step >= self.onset:
            matrix: Any = training.model.get_parameter("blocks.1.mlp.up.weight")
            matrix.grad.mul_(self.strength)
