"""Gradients that do not reach a parameter, and updates that are not applied."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ckaudit.lab.training import Training


@fault(
    "detach_block",
    group="code",
    truth="gradient_path_cut",
    acceptable=("frozen_by_mistake", "dead_path"),
    symptoms=("dead_parameter", "vanishing_gradient", "frozen_parameter", "layer_not_contributing"),
    consequences=("barely_moving",),
    place=("blocks.0*", "block.0", "tokens*"),
    dev=FaultStrength(strength=1),
    test=FaultStrength(strength=2),
)
class DetachBlock(Change):
    """The stream is detached before block `strength`, so that neither the blocks before it nor the embeddings get a gradient.

    The forward pass is unchanged: the loss falls, but less.

    Seen under seed 0: ten tensors have no gradient and do not move; at step 60 the loss is 2.32 instead of 2.18.
    """

    def model(self, model: "nn.Module") -> None:
        """Detach the input of the block."""
        block = model.get_submodule(f"blocks.{self.strength:.0f}")
        computed = block.forward

        def cut(x: "Tensor") -> "Tensor":
            return computed(x.detach())

        block.forward = cut


@fault(
    "dead_mlp",
    group="code",
    truth="dead_path",
    symptoms=("dead_parameter", "zero_gradients", "layer_not_contributing"),
    consequences=(
        *("loss_spike", "weights_shrink", "update_out_of_band", "barely_moving", "activation_drift", "exploding_gradient"),
        *("frequent_clipping", "vanishing_gradient"),
    ),
    place=("blocks.1*", "block.1"),
    dev=FaultStrength(onset=150),
    test=FaultStrength(onset=260),
)
class DeadMlp(Change):
    """The output of the MLP in block 1 is multiplied by zero from the onset on.

    Its tensors have gradients of exactly zero from then on; the loss jumps a little, and the other blocks compensate.

    Seen under seed 0: gradients of three tensors exactly 0 from step 150 on; a loss of 1.91 after 1.83, back after three steps.
    """

    def begin(self, training: "Training") -> None:
        """Disconnect the MLP at the onset."""
        if training.step != self.onset:
            return
        mlp = training.model.get_submodule("blocks.1.mlp")
        computed = mlp.forward

        def cut(x: "Tensor") -> "Tensor":
            return computed(x) * 0.0

        mlp.forward = cut


@fault(
    "zero_proj",
    group="code",
    truth="dead_path",
    symptoms=("dead_parameter", "zero_gradients", "layer_not_contributing"),
    consequences=(
        *("vanishing_gradient", "weights_shrink", "uniform_heads", "update_out_of_band", "barely_moving", "activation_drift"),
    ),
    place=("blocks.1.attn*", "layer.1*"),
)
class ZeroProj(Change):
    """The output of attention in block 1 is multiplied by zero, from the first step on.

    Its tensors have gradients of exactly zero, and only weight decay moves them.

    Seen under seed 0: gradients of six tensors are exactly 0 from the first step on, their relative update is 1e-4 at most where
    neighbours have 0.05; the loss is that of the healthy run to 0.01.
    """

    def model(self, model: "nn.Module") -> None:
        """Set the gain to zero."""
        attention: Any = model.get_submodule("blocks.1.attn")
        attention.gain = 0.0


@fault(
    "frozen_layer",
    group="code",
    truth="frozen_by_mistake",
    symptoms=("frozen_parameter", "layer_not_contributing"),
    place=("blocks.1*", "block.1", "layer.1*"),
)
class FrozenLayer(Change):
    """The parameters of block 1 are frozen, as if left over from a fine-tuning script.

    They have no gradient and never move, while the loss looks healthy.

    Seen under seed 0: eight tensors have no gradient and do not move; the loss is 0.02 higher at step 30.
    """

    def model(self, model: "nn.Module") -> None:
        """Freeze block 1."""
        model.get_submodule("blocks.1").requires_grad_(False)


@fault("frozen_positions", group="code", truth="frozen_by_mistake", symptoms=("frozen_parameter",), place=("positions*",))
class FrozenPositions(Change):
    """The position table is frozen: it keeps its initial values, as once in the training of OPT-175B.

    One small tensor has no gradient and never moves; the model makes do with random positions.

    Seen under seed 0: one tensor has no gradient and does not move; the loss is that of the healthy run to 0.01.
    """

    def plan(self, plan: Plan) -> Plan:
        """Give the model learned positions."""
        return replace(plan, model=replace(plan.model, positions="learned")) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Freeze them."""
        model.get_submodule("positions").requires_grad_(False)


@fault(
    "missing_in_optimizer",
    group="code",
    truth="not_in_optimizer",
    symptoms=("missing_in_optimizer", "barely_moving", "layer_not_contributing"),
    place=("blocks.2*", "block.2"),
)
class MissingInOptimizer(Change):
    """The parameters of block 2 are not given to the optimizer: they get gradients and never move.

    The loss looks healthy.

    Seen under seed 0: eight trainable tensors in no group, with gradients and relative updates of 0; the loss is that of the
    healthy run to 0.01.
    """

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Leave block 2 out."""
        return [parameter for name, parameter in model.named_parameters() if not name.startswith("blocks.2.")]


@fault(
    "stale_parameters",
    group="code",
    truth="not_in_optimizer",
    acceptable=("updates_not_applied",),
    symptoms=("missing_in_optimizer", "barely_moving", "loss_not_falling"),
    consequences=("gradients_carried_over", "exploding_gradient", "frequent_clipping", "skipped_updates", "uniform_heads"),
)
class StaleParameters(Change):
    """The optimizer holds copies of the parameters, as if created before the model is wrapped or moved.

    It clears and updates the copies: the model's gradients add up and nothing moves.

    Seen under seed 0: a loss of 4.56 throughout, relative updates of 0 while the count of updates rises, and a gradient norm that
    goes from 1.25 to a constant 2.2, for what was clipped to 1 stays in.
    """

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Give the optimizer copies."""
        from torch.nn import Parameter

        return [Parameter(parameter.detach().clone()) for parameter in model.parameters()]


@fault(
    "tying_lost",
    group="code",
    truth="weight_tying_lost",
    acceptable=("weights_not_restored",),
    symptoms=("parameter_count_changed", "seam_jump"),
    consequences=("optimizer_state_reset", "update_out_of_band"),
    place=("head*", "tokens*"),
    dev=FaultStrength(onset=151),
    test=FaultStrength(onset=281),
    detectable=50,
)
class TyingLost(Change):
    """Embedding and head are one matrix until the training is resumed with a model that has two, equal at first.

    From the onset on there is one more tensor to train, and the two drift apart while the loss looks healthy.

    Seen under seed 0, with an onset of 31: a tensor more in the first checkpoint after the seam; the loss goes on as before.
    """

    _resumed = False

    def plan(self, plan: Plan) -> Plan:
        """Tie embedding and head, and stop before the onset."""
        model = replace(plan.model, tied=True) if isinstance(plan.model, Gpt) else plan.model
        return replace(plan, model=model, resume_at=self.onset - 1)

    def save(self, training: "Training") -> dict[str, Any]:
        """Save as usual; the next model is untied."""
        self._resumed = True
        return super().save(training)

    def model(self, model: "nn.Module") -> None:
        """Make one matrix into two."""
        from torch.nn import Parameter

        if self._resumed:
            head: Any = model.get_submodule("head")
            head.weight = Parameter(head.weight.detach().clone())

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Restore the optimizer's state too; it lacks the new matrix, which comes last."""
        group = saved["optimizer"]["param_groups"][0]
        group["params"] = [*group["params"], len(group["params"])]
        super().restore(training, saved)


@fault(
    "no_zero_grad",
    group="code",
    truth="gradients_not_zeroed",
    symptoms=("gradients_carried_over", "exploding_gradient", "frequent_clipping"),
    consequences=(
        *("entropy_collapse", "activation_drift", "loss_not_falling", "logit_growth", "dominant_tensor", "update_out_of_band"),
    ),
    detectable=30,
)
class NoZeroGrad(Change):
    """Gradients are never cleared, so that each step applies its own and the rest of earlier ones.

    Clipped gradients stay: the gradient norm is higher, and the direction hardly changes with the batch.

    Seen under seed 0: a gradient norm of 1.2 to 2.2 that never falls below 1, updates twice as large, outputs of an MLP ten times
    as large, entropies of 0.77 at step 70 (healthy 0.95), a loss of 2.19 at step 150 (healthy 1.84).
    """

    def zero(self, training: "Training") -> None:
        """Leave the gradients unchanged."""


@fault(
    "no_zero_grad_late",
    group="code",
    truth="gradients_not_zeroed",
    symptoms=("gradients_carried_over", "exploding_gradient", "frequent_clipping", "loss_spike"),
    consequences=(
        *("entropy_collapse", "activation_drift", "loss_not_falling", "logit_growth", "dominant_tensor", "update_out_of_band"),
    ),
    dev=FaultStrength(onset=150),
    test=FaultStrength(onset=230),
    detectable=30,
)
class NoZeroGradLate(Change):
    """From the onset on gradients are no longer cleared, as in a branch of the loop that forgets to.

    From then on each step applies its own gradient and the clipped rest of earlier ones.

    Seen under seed 0, with an onset of 51: a gradient norm that goes from 0.7 to a steady 1.6 to 1.9, updates twice as large, a
    loss 0.3 higher after 70 steps.
    """

    def zero(self, training: "Training") -> None:
        """Clear the gradients only before the onset."""
        if training.step < self.onset:
            super().zero(training)


@fault(
    "skip_updates",
    group="code",
    truth="updates_not_applied",
    acceptable=("not_in_optimizer",),
    symptoms=("skipped_updates", "barely_moving", "loss_not_falling"),
    consequences=("update_out_of_band",),
    dev=FaultStrength(onset=100),
    test=FaultStrength(onset=220),
    detectable=50,
)
class SkipUpdates(Change):
    """From the onset on the optimizer's step is skipped, while gradients are computed as before.

    No tensor moves and the loss stays where it is.

    Seen under seed 0: relative updates of 0 and a count of updates that stands still from the onset on; the loss stays at 2.8.
    """

    def update(self, training: "Training") -> None:
        """Take the step only before the onset."""
        if training.step < self.onset:
            super().update(training)


@fault(
    "skip_updates_sometimes",
    group="code",
    truth="updates_not_applied",
    symptoms=("skipped_updates", "barely_moving"),
    consequences=("loss_not_falling", "update_out_of_band"),
    dev=FaultStrength(onset=60, strength=2),
    test=FaultStrength(onset=110, strength=3),
    detectable=50,
)
class SkipUpdatesSometimes(Change):
    """One update in `strength` is skipped from the onset on, as if a loop with accumulation counts its batches wrongly.

    The loss falls a little slower, and nothing moves in the skipped steps.

    Seen under seed 0: the count of updates falls behind that of steps, and every checkpoint, at an even step, shows no movement
    at all; the loss is 0.1 to 0.2 higher.
    """

    def update(self, training: "Training") -> None:
        """Take the step unless it is skipped."""
        if training.step < self.onset or (training.step - self.onset) % self.strength:
            super().update(training)
