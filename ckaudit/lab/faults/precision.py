"""Dtypes too small for their numbers, numbers that are not finite, bit flips."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


@fault(
    "autocast_lost",
    group="numerics",
    truth="precision_changed",
    symptoms=("dtype_changed", "step_time_jump"),
    dev=FaultStrength(onset=151),
    test=FaultStrength(onset=290),
    detectable=50,
)
class AutocastLost(Change):
    """A training in bfloat16 computes in float32 from the onset on, as if one branch lacked the autocast context.

    Outputs of modules change their precision and steps their time; the loss shows nothing.

    Seen under seed 0, with an onset of 31: outputs of linear layers in bfloat16 before and in float32 after; nothing in the loss.
    """

    def plan(self, plan: Plan) -> Plan:
        """Train in bfloat16."""
        return replace(plan, precision="bfloat16")

    def begin(self, training: "Training") -> None:
        """Compute in float32."""
        if training.step == self.onset:
            training.precision = "float32"


@fault(
    "bf16_weights",
    group="numerics",
    truth="updates_lost_to_rounding",
    acceptable=("learning_rate_too_low",),
    symptoms=("barely_moving", "update_out_of_band", "updates_rounded_away", "loss_not_falling"),
    consequences=("uniform_heads",),
    dev=FaultStrength(strength=0.03),
    test=FaultStrength(strength=0.06),
)
class Bf16Weights(Change):
    """Weights and optimizer are in bfloat16, and the peak learning rate is `strength` times the healthy one, as in a finetuning.

    An update below 1/256 of a weight is rounded away: norms and large weights never move, although every tensor has a gradient.

    Seen under seed 0: norms that have not moved in 60 steps, relative updates below 1e-3, a loss of 4.1 at step 60.
    """

    def plan(self, plan: Plan) -> Plan:
        """Lower the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))

    def model(self, model: "nn.Module") -> None:
        """Keep the weights in bfloat16."""
        model.bfloat16()


@fault(
    "fp16_underflow",
    group="numerics",
    truth="gradient_underflow",
    symptoms=("zero_gradients", "dead_parameter"),
    consequences=(
        *("vanishing_gradient", "barely_moving", "update_out_of_band", "loss_not_falling"),
        *("layer_not_contributing", "uniform_heads"),
    ),
    dev=FaultStrength(strength=1e-5),
    test=FaultStrength(strength=1e-4),
)
class Fp16Underflow(Change):
    """Gradients are rounded to half precision at `strength` times their size, as without a loss scale or after a long mean.

    Numbers below 3e-8 become exactly zero: most elements in most steps, and whole tensors.

    Seen under seed 0: whole tensors with gradients of 0 in every checkpoint, updates of those a hundredth of the healthy ones, a
    loss of 2.76 at step 60 (healthy 2.18).
    """

    def gradients(self, training: "Training") -> None:
        """Round the gradients to half precision."""
        for parameter in training.model.parameters():
            if parameter.grad is not None:
                parameter.grad.copy_((parameter.grad * self.strength).half().float() / self.strength)


@fault(
    "loss_scale_storm",
    group="numerics",
    truth="loss_scale_too_high",
    symptoms=("overflow", "skipped_updates"),
    consequences=("nonfinite_values", "barely_moving"),
    dev=FaultStrength(strength=4),
    test=FaultStrength(strength=8),
    detectable=60,
)
class LossScaleStorm(Change):
    """The loss scaler doubles its scale after every `strength` good steps; gradients are rounded to half precision.

    They overflow as often, and the update of that step is skipped; the loss hardly shows it.

    Seen under seed 0: 5 of 40 updates skipped, with an infinite gradient norm each; the loss as in the healthy run.
    """

    def plan(self, plan: Plan) -> Plan:
        """Train with a loss scaler."""
        return replace(plan, precision="float16")

    def begin(self, training: "Training") -> None:
        """Let the scale grow fast; a forward pass in half precision would take ten times as long on a CPU."""
        training.precision = "float32"
        if training.scaler is not None:
            training.scaler.set_growth_interval(int(self.strength))

    def backward(self, training: "Training", loss: "Tensor") -> None:
        """Round the scaled gradients to half precision, where large ones are infinite."""
        super().backward(training, loss)
        for parameter in training.model.parameters():
            if parameter.grad is not None:
                parameter.grad.copy_(parameter.grad.half())


@fault(
    "log_of_zero",
    group="numerics",
    truth="nonfinite_operation",
    symptoms=("nonfinite_values",),
    consequences=("loss_not_falling", "hidden_nonfinite", "impossible_value"),
    dev=FaultStrength(onset=160, strength=30),
    test=FaultStrength(onset=240, strength=60),
    detectable=40,
)
class LogOfZero(Change):
    """From the onset on the loss has a term for the entropy of the prediction, sharpened `strength` times, written as p log p.

    It is harmless until a probability is so small that it becomes zero: then 0 log 0 is NaN, in the loss and all that follows.

    Seen under seed 0, with an onset of 31: NaN at once, for probabilities that sharp are zero.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Add the term."""
        loss = super().loss(training, logits, batch)
        if training.step < self.onset:
            return loss
        sharpened = (logits * self.strength).softmax(-1)
        return loss + 1e-3 * (sharpened * sharpened.log()).sum(-1).mean()


@fault(
    "nan_inject",
    group="numerics",
    truth="nonfinite_operation",
    symptoms=("nonfinite_values",),
    consequences=("loss_not_falling", "hidden_nonfinite", "impossible_value"),
    dev=FaultStrength(onset=150),
    test=FaultStrength(onset=260),
)
class NanInject(Change):
    """The loss of one step is NaN, as after a division by zero somewhere in it.

    Gradients of that step are NaN, and so are all weights from then on.

    Seen under seed 0, with an onset of 31: loss and gradient norm NaN from that step on, and so the next validation loss.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Make the loss NaN at the onset."""
        loss = super().loss(training, logits, batch)
        return loss * float("nan") if training.step == self.onset else loss


@fault(
    "bitflip",
    group="numerics",
    truth="silent_data_corruption",
    acceptable=("weights_changed_outside_optimizer",),
    symptoms=("weights_jump", "loss_spike", "exploding_gradient"),
    consequences=(
        *("activation_drift", "entropy_collapse", "logit_growth", "update_out_of_band", "frequent_clipping", "dominant_tensor"),
        *("barely_moving", "dead_parameter", "vanishing_gradient", "saturated_units"),
    ),
    place=("blocks.1.mlp.down*",),
    dev=FaultStrength(onset=150, strength=1e4),
    test=FaultStrength(onset=280, strength=1e3),
)
class Bitflip(Change):
    """One element of the MLP's second matrix in block 1 becomes `strength` after the update of the onset, and stays in its place.

    One tensor moves by far more than the optimizer can move it; the loss jumps in the next step.

    Seen under seed 0: a relative update of all weights of 1.0 at step 150 (healthy 0.006), a loss of 4.3 and a gradient norm
    of 39 after 1.85 and 1.3, and still 3.7 after ten steps.
    """

    def updated(self, training: "Training") -> None:
        """Change one weight."""
        if training.step != self.onset:
            return
        layer: Any = training.model.get_submodule("blocks.1.mlp.down")
        layer.weight.data[3, 5] = self.strength


@fault(
    "bitflip_gradient",
    group="numerics",
    truth="silent_data_corruption",
    symptoms=("exploding_gradient", "dominant_tensor"),
    consequences=("frequent_clipping", "update_out_of_band", "barely_moving"),
    place=("blocks.1.mlp.up*",),
    dev=FaultStrength(onset=190, strength=1e6),
    test=FaultStrength(onset=330, strength=1e4),
)
class BitflipGradient(Change):
    """One element of the gradient of the MLP's first matrix in block 1 is `strength` in a single step.

    The gradient norm jumps and all of it lies in one tensor, while the loss goes on; clipping takes the step away.

    Seen under seed 0, with an onset of 31: a gradient norm of 1e6 in one step; the loss is 0.02 higher afterwards.
    """

    def gradients(self, training: "Training") -> None:
        """Change one element."""
        if training.step != self.onset:
            return
        layer: Any = training.model.get_submodule("blocks.1.mlp.up")
        layer.weight.grad[3, 5] = self.strength


@fault(
    "weights_x5_mid",
    group="numerics",
    truth="weights_changed_outside_optimizer",
    acceptable=("silent_data_corruption",),
    symptoms=("weights_jump", "loss_spike"),
    consequences=(
        *("entropy_collapse", "logit_growth", "activation_drift", "exploding_gradient", "frequent_clipping", "weights_grow"),
        *("update_out_of_band", "barely_moving", "vanishing_gradient", "dominant_tensor"),
    ),
    place=("blocks.1*", "block.1", "layer.1*"),
    dev=FaultStrength(onset=150, strength=5),
    test=FaultStrength(onset=265, strength=3),
)
class WeightsX5Mid(Change):
    """All matrices of block 1 are multiplied by `strength` after the update of the onset.

    The weights of one block jump, the loss jumps in the next step and recovers.

    Seen under seed 0: a relative update of all weights of 0.6 at step 150 (healthy 0.006), a loss of 4.7 after 1.85 and 2.8
    fifteen steps later.
    """

    def updated(self, training: "Training") -> None:
        """Multiply the matrices."""
        if training.step != self.onset:
            return
        for weight in training.model.get_submodule("blocks.1").parameters():
            if weight.dim() == 2:
                weight.data.mul_(self.strength)


@fault(
    "weights_zeroed_mid",
    group="numerics",
    truth="weights_changed_outside_optimizer",
    acceptable=("silent_data_corruption",),
    symptoms=("weights_jump", "dead_parameter", "zero_gradients", "loss_spike"),
    consequences=(
        "contradicted_claim",
        *("layer_not_contributing", "exploding_gradient", "frequent_clipping", "weights_alike"),
        *("barely_moving", "activation_drift"),
    ),
    place=("blocks.1*", "block.1"),
    dev=FaultStrength(onset=200),
    test=FaultStrength(onset=320),
)
class WeightsZeroedMid(Change):
    """All matrices of the MLP in block 1 are set to zero after the update of the onset.

    Its gradients are exactly zero for one step, until the optimizer's momentum has moved it; the loss jumps and recovers.

    Seen under seed 0: a loss of 1.85 and a gradient norm of 4.4 after 1.65 and 1.6, three tensors with gradients of 0 in that
    step; with an onset of 41 outputs of that MLP are a fortieth of the healthy ones after nine steps, and the loss hardly
    moves.
    """

    def updated(self, training: "Training") -> None:
        """Clear the matrices."""
        if training.step != self.onset:
            return
        for weight in training.model.get_submodule("blocks.1.mlp").parameters():
            weight.data.zero_()
