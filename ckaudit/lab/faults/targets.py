"""Targets, losses and masks that ask for something else than intended."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.altered_batches import chance
from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


@fault(
    "broken_mask",
    group="code",
    truth="causal_mask_leaks",
    symptoms=("mask_leak", "loss_below_floor"),
    consequences=("entropy_collapse", "logit_growth", "exploding_gradient", "frequent_clipping", "uniform_heads", "loss_spike"),
    place=("layer*", "blocks*"),
)
class BrokenMask(Change):
    """Every query of every block sees every key, including those of the tokens to be predicted.

    Half of the attention lies above the diagonal from the first step on; the loss looks healthy until the model finds out.

    Seen under seed 0: an attention mass of 0.5 above the diagonal from step 10 on; the loss is not lower than that of the healthy
    run at step 100 (2.00, healthy 1.92).
    """

    def model(self, model: "nn.Module") -> None:
        """Let every query see every key."""
        import torch

        def visible(length: int) -> "Tensor":
            return torch.ones(length, length, dtype=torch.bool)

        attentions: list[Any] = [module for module in model.modules() if hasattr(module, "visible")]
        for attention in attentions:
            attention.visible = visible


@fault(
    "mask_off_by_one",
    group="code",
    truth="causal_mask_leaks",
    symptoms=("mask_leak", "loss_below_floor"),
    consequences=("entropy_collapse", "logit_growth", "exploding_gradient", "frequent_clipping", "uniform_heads", "loss_spike"),
    place=("layer*", "blocks*"),
)
class MaskOffByOne(Change):
    """Every query also sees the next key, which is the token that it must predict.

    A band above the diagonal gets attention from the first step on, and the loss falls towards zero.

    Seen under seed 0: a mass of 0.06 to 0.12 above the diagonal from step 10 on; a loss of 0.82 at step 100 (healthy 1.92).
    """

    def model(self, model: "nn.Module") -> None:
        """Let every query see the next key."""
        import torch

        def visible(length: int) -> "Tensor":
            return torch.ones(length, length, dtype=torch.bool).tril(1)

        attentions: list[Any] = [module for module in model.modules() if hasattr(module, "visible")]
        for attention in attentions:
            attention.visible = visible


@fault(
    "mask_leak_one_block",
    group="code",
    truth="causal_mask_leaks",
    symptoms=("mask_leak", "loss_below_floor"),
    consequences=("entropy_collapse", "logit_growth", "exploding_gradient", "frequent_clipping", "uniform_heads", "loss_spike"),
    place=("layer.1*", "blocks.1*"),
    dev=FaultStrength(strength=8),
    test=FaultStrength(strength=3),
)
class MaskLeakOneBlock(Change):
    """Queries of block 1 see `strength` keys beyond their own; attention is fused, so that no module outputs its weights.

    Only that block puts weight above the diagonal, and the loss falls below what can be known.

    Seen under seed 10: a mass of 0.12 above the diagonal in block 1 alone, from the first checkpoint on; under seed 0 a loss of
    1.79 at step 100 (healthy 1.92).
    """

    def plan(self, plan: Plan) -> Plan:
        """Fuse attention."""
        return replace(plan, model=replace(plan.model, fused=True)) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Let the queries of block 1 see further."""
        import torch

        def visible(length: int) -> "Tensor":
            return torch.ones(length, length, dtype=torch.bool).tril(int(self.strength))

        attention: Any = model.get_submodule("blocks.1.attn")
        attention.visible = visible


@fault(
    "no_shift",
    group="code",
    truth="targets_not_shifted",
    acceptable=("targets_misaligned",),
    symptoms=("target_equals_input", "target_misalignment", "loss_below_floor"),
    consequences=("overfitting", "vanishing_gradient", "update_out_of_band", "uniform_heads", "loss_rises"),
)
class NoShift(Change):
    """The target of every token is the token itself; evaluations are correct.

    The training loss falls to zero and the validation loss rises without end.

    Seen under seed 0: all targets are the inputs beside them; a training loss of 0.08 at step 60 and a validation loss of 5.2.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Return the inputs as targets."""
        return replace(batch, targets=batch.inputs)


@fault(
    "targets_shifted_by_two",
    group="code",
    truth="targets_misaligned",
    symptoms=("target_misalignment", "loss_not_falling"),
    consequences=("overfitting",),
)
class TargetsShiftedByTwo(Change):
    """The target of a token is the one after the next, as if both the loader and the loss shift; evaluations are correct.

    The loss falls to a higher level, and the validation loss rises after a first fall.

    Seen under seed 0: one target in fifty is the next input; at step 100 a training loss of 2.29 (healthy 1.92), a validation
    loss that has gone from 3.09 to 3.47.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Shift the targets once more; the last has none."""
        from ckaudit.lab.task import IGNORED

        targets = batch.targets.roll(-1, dims=1)
        targets[:, -1] = IGNORED
        return replace(batch, targets=targets)


@fault(
    "labels_shuffled",
    group="code",
    truth="targets_misaligned",
    symptoms=("target_misalignment", "loss_not_falling"),
    consequences=(
        "uniform_heads",
        "train_val_inverted",
        "dominant_tensor",
        "vanishing_gradient",
        "update_out_of_band",
        "dead_units",
        "zero_gradients",
    ),
)
class LabelsShuffled(Change):
    """The targets of each training batch are permuted, as by a loader that shuffles inputs and targets apart.

    The loss stops at the entropy of single tokens, for nothing else can be learnt.

    Seen under seed 0: one target in thirteen is the next input; a loss of 2.85 from step 40 on, the entropy of single tokens,
    and gradients of queries and keys of 1e-10.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Permute the targets."""
        import torch

        order = torch.randperm(batch.targets.numel(), generator=chance(training))
        return replace(batch, targets=batch.targets.flatten()[order].view_as(batch.targets))


@fault(
    "flipped_sign",
    group="code",
    truth="loss_sign_flipped",
    symptoms=("impossible_value", "loss_below_floor", "loss_rises", "initial_loss_off"),
    consequences=(
        "contract_violation",
        *("overfitting", "exploding_gradient", "frequent_clipping", "activation_drift", "entropy_collapse", "logit_growth"),
        *("vanishing_gradient", "nonfinite_values", "update_out_of_band", "loss_spike"),
    ),
)
class FlippedSign(Change):
    """The loss is the mean log likelihood instead of its negative, so that training makes the targets less likely.

    What is logged falls far below zero, while the validation loss climbs.

    Seen under seed 0: a loss of -4.56 in the first step and -11.4 in the fortieth; a validation loss of 7.3 at step 25
    (healthy 3.0).
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Flip the sign."""
        return -super().loss(training, logits, batch)


@fault(
    "double_softmax",
    group="code",
    truth="softmax_applied_twice",
    symptoms=("loss_not_falling", "train_val_inverted"),
    consequences=(
        *("overfitting", "vanishing_gradient", "weights_shrink", "dead_parameter", "update_out_of_band"),
        *("loss_spike", "zero_gradients"),
    ),
    detectable=60,
)
class DoubleSoftmax(Change):
    """The loss gets probabilities and applies softmax to them; evaluations correctly use the logits.

    With V tokens the training loss cannot fall below ln(V - 1 + e) - 1, and the gradient is V times smaller than it should be.

    Seen under seed 0: a first gradient norm of 0.013 (healthy 1.25), a training loss of 4.23 at step 100 and a validation loss
    that is below it at step 25 (3.0) and far above it at step 100 (6.3).
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Apply softmax first."""
        return super().loss(training, logits.softmax(-1), batch)


@fault(
    "eval_with_dropout",
    group="code",
    truth="evaluation_in_training_mode",
    symptoms=("evaluated_in_training_mode", "validation_noise"),
    dev=FaultStrength(strength=0.2),
    test=FaultStrength(strength=0.1),
    detectable=50,
)
class EvalWithDropout(Change):
    """The model has dropout of `strength` and is not put into evaluation mode.

    Each validation loss is too high by the cost of dropout, and varies with the dropped units. The held-out batch is pinned, so
    the recorder evaluates it without dropout at the same weights.

    Seen under seed 0: validation losses of 2.329 and 2.025 where the pinned batch gives 2.307 and 1.996, at steps 50 and 100;
    they lie at the training loss.
    """

    def plan(self, plan: Plan) -> Plan:
        """Give the model dropout."""
        return replace(plan, model=replace(plan.model, dropout=self.strength)) if isinstance(plan.model, Gpt) else plan

    def begin(self, training: "Training") -> None:
        """Pin the held-out batch, which the recorder evaluates correctly."""
        if training.step == 1:
            held = training.corpus.held_out()
            training.recorder.pin((held.inputs, held.targets), shift=0, held_out=True)

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate in training mode."""
        return training.evaluation.values(training.model)
