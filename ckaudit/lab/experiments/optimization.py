"""Experiments on the training of a model: seed, initial weights, learning rate, warm-up, optimizer, changed weights."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import experiment

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.training import Training


# EXP-1: what a healthy training looks like.
class OtherSeed(Change):
    """The same training with other initial weights and other sentences."""

    def plan(self, plan: Plan) -> Plan:
        """Take another seed."""
        return replace(plan, seed=plan.seed + 1)


@experiment(
    "EXP-1",
    look=(
        *("train_loss_raw", "val_loss", "grad_global_norm", "block_gradient_norm", "waterfall_ratio", "update_to_weight_global"),
        *("residual_rms", "normalized_attention_entropy"),
    ),
)
def stable_baseline() -> Mapping[str, Change]:
    """What a healthy training looks like, twice.

    Both arms are healthy; they differ by their seed alone, so that what differs between them is chance. Learn these numbers
    by heart: every other experiment is read against them.

    The first loss lies near the logarithm of the vocabulary, and the loss falls at once. The gradient reaches every block
    within a factor of ten, the first block getting most. An update moves the weights by about a hundredth of their size
    at the peak of the learning rate, and by a thousandth at its end. The stream grows from block to block, slowly. Attention
    starts even (near 1); the last block becomes choosy first, and in so short a training not by much.
    """
    return {"healthy": Change(), "another seed": OtherSeed()}


# EXP-2: initial weights from tiny to huge.
class InitScale(Change):
    """All matrices start `strength` times as large as the healthy ones."""

    def plan(self, plan: Plan) -> Plan:
        """Scale the spread of the initial weights."""
        assert isinstance(plan.model, Gpt)
        return replace(plan, model=replace(plan.model, init_std=plan.model.init_std * self.strength))


@experiment(
    "EXP-2",
    look=(
        *("train_loss_raw", "initial_loss_excess", "residual_rms", "block_gradient_norm"),
        *("min_normalized_entropy", "relative_movement/blocks.1.*", "update_to_weight_global"),
    ),
)
def init_scale() -> Mapping[str, Change]:
    """Initial weights from tiny to huge: how far each layer drifts.

    The matrices start with 0.01, 1, 10 and 50 times the healthy spread of 0.02. Norms in front of every branch forgive much:
    tiny weights only learn late, since a product of small matrices has small gradients. Huge ones start with a loss far above
    the logarithm of the vocabulary, saturate attention before the first step, and hardly move relative to their own size:
    with Adam every weight moves by about the learning rate, however large it is.

    Look at the first loss, then at how the stream grows from block to block at one step, and at the relative movement: tiny
    weights move by many times their size, huge ones by a tenth of it or less.
    """
    return {"x0.01": InitScale(0, 0.01), "healthy": Change(), "x10": InitScale(0, 10), "x50": InitScale(0, 50)}


# EXP-3: the learning rate too high and too low.
class PeakRate(Change):
    """The peak of the learning rate is `strength` times the healthy one."""

    def plan(self, plan: Plan) -> Plan:
        """Scale the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))


@experiment(
    "EXP-3",
    look=(
        *("train_loss_raw", "val_loss", "learning_rate", "grad_global_norm", "update_to_weight_global", "clip_coefficient"),
        *("min_normalized_entropy", "relative_movement/blocks.1.*"),
    ),
)
def learning_rates() -> Mapping[str, Change]:
    """The learning rate from far too low to far too high.

    The peak is 0.01, 1, 10 and 100 times the healthy one. Update over weight tells the four apart from the first steps on,
    long before the loss does: about 1e-4, 1e-2, 5e-2 and 1e-1 at step 10. Too low is a slow but
    steady loss and weights that stay where they started. Too high is a loss that falls faster than any other for ten steps
    and then stays on a plateau, with heads that look at one key only. Ten times is not too high for so short a training: its
    loss is the lowest, while its sharpest head is on the way to collapse.

    Look at update over weight at step 10, then at the loss at the end of the warm-up.
    """
    return {"x0.01": PeakRate(0, 0.01), "healthy": Change(), "x10": PeakRate(0, 10), "x100": PeakRate(0, 100)}


# EXP-5: all weights times five in the middle of a training, with and without clipping.
class Enlarged(Change):
    """The matrices of all blocks are multiplied by `strength` after step `onset`."""

    def updated(self, training: "Training") -> None:
        """Multiply once."""
        if training.step != self.onset:
            return
        for name, weight in training.model.named_parameters():
            if name.startswith("blocks.") and weight.dim() > 1:
                weight.data.mul_(self.strength)


class EnlargedUnclipped(Enlarged):
    """The same, without gradient clipping."""

    def plan(self, plan: Plan) -> Plan:
        """Remove the clip norm."""
        return replace(plan, optimizer=replace(plan.optimizer, clip=None))


@experiment(
    "EXP-5",
    look=(
        *("train_loss_raw", "val_loss", "grad_global_norm", "clip_coefficient", "update_to_weight_global"),
        *("weight_norm/blocks.1.*", "max_attn_logit"),
    ),
    steps=(50, 75, 76, 77, 80, 90, 100, 125),
)
def enlarged_weights() -> Mapping[str, Change]:
    """Weights times five: what the jump looks like, and who recovers.

    After the update of step 75 the matrices of all blocks are multiplied by five. The loss of step 76 is that of a stranger, and
    the gradient norm is four times what it was. Afterwards updates are smaller beside the weights, since the weights have grown
    and Adam's updates have not. With the limit at 1 the coefficient says how much is cut. Adam hides most of the difference
    between the arms: it divides by its own second moment, so that what one huge gradient does, with or without clipping, is
    mostly to make the following updates small.

    Look at the weight norms at step 80, the only series that name the cause: no optimizer moves a weight by four times its size
    in one step. Then compare how fast the two arms come back.
    """
    return {"healthy": Change(), "x5, clipped": Enlarged(75, 5), "x5, not clipped": EnlargedUnclipped(75, 5)}


# EXP-6: SGD and Adam, seen by what an update does to each weight.
class Sgd(Change):
    """SGD with momentum 0.9 and `strength` times the learning rate that Adam has."""

    def plan(self, plan: Plan) -> Plan:
        """Replace the optimizer."""
        peak = plan.optimizer.peak * self.strength
        return replace(plan, optimizer=replace(plan.optimizer, kind="sgd", peak=peak, weight_decay=0.0))


@experiment(
    "EXP-6",
    look=(
        *("train_loss_raw", "update_norm/blocks.1.*", "update_to_weight/blocks.1.*", "update_to_weight_global"),
        *("grad_to_weight/blocks.1.*", "relative_movement/blocks.1.*", "moving_share"),
    ),
)
def sgd_and_adam() -> Mapping[str, Change]:
    """SGD and Adam, compared by their updates and not by their losses.

    Adam, SGD with Adam's learning rate, and SGD with a hundred times that. Adam gives every element an update of about the
    learning rate, so that all matrices move alike, whatever their gradients. SGD's updates are proportional to the
    gradient: tensors with small gradients, queries and keys above all, stay behind. With Adam's learning rate SGD
    hardly moves at all; with a hundred times that it comes as far as Adam.

    Look at the spread of update over weight between the matrices of one block at step 10: a factor of three with Adam, a
    thousand with SGD, where queries and keys stand still while attention is even.
    """
    return {"adam": Change(), "sgd, same rate": Sgd(0, 1), "sgd, rate x100": Sgd(0, 100)}


# EXP-7: with and without warm-up.
class Warmup(Change):
    """The peak is ten times the healthy one, after a warm-up of `strength` steps."""

    def plan(self, plan: Plan) -> Plan:
        """Change peak and warm-up, and let gradients pass unclipped."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * 10, clip=None)
        return replace(plan, optimizer=optimizer, schedule=replace(plan.schedule, warmup=int(self.strength)))


@experiment(
    "EXP-7",
    look=(
        *("train_loss_raw", "learning_rate", "grad_global_norm", "update_to_weight_global", "min_normalized_entropy"),
        *("relative_movement/blocks.*.attn.q.weight", "val_loss"),
    ),
    steps=(1, 2, 5, 10, 20, 50, 100, 125),
)
def warmup() -> Mapping[str, Change]:
    """Warm-up, and how the first steps go without it.

    The learning rate is ten times the healthy one and gradients are not clipped, so that the warm-up is all that protects the
    first steps: none, 30 steps and 100 steps. Adam's second moment knows one gradient after the first step; its update then
    has the size of the learning rate in every element, in whatever direction that one batch pointed.

    Look at update over weight and at the gradient norm of the first ten steps, and at how far the queries have come at step
    10. Then see what is left of it at the end: without a warm-up the loss falls fastest for five steps and then stays where it
    is, and the longer the warm-up, the lower the loss ends.
    """
    return {"healthy": Change(), "none": Warmup(0, 0), "30 steps": Warmup(0, 30), "100 steps": Warmup(0, 100)}


# EXP-11: which weights moved furthest from where they started.
class LeftOut(Change):
    """The optimizer is not given the MLP of block 1."""

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Leave two matrices out."""
        return [weight for name, weight in model.named_parameters() if not name.startswith("blocks.1.mlp.")]


@experiment(
    "EXP-11", look=("train_loss_raw", "relative_movement", "movement_rank", "moving_share", "gradient_norm/blocks.1.mlp.*")
)
def movement_ranking() -> Mapping[str, Change]:
    """Which weights moved furthest from step 0, and which not at all.

    In the second arm the optimizer was never given the two matrices of the MLP in block 1. They have gradients like all
    others, the loss falls, and no curve of the loss would tell; the ranking by relative movement does, from the tenth step
    on.

    Look at the two lists from their ends. In a healthy training the head and the projections that write to the stream are at
    the top, since they start small, with the gains of norms at the bottom, since they start at one. A tensor at exactly 0
    with a gradient is not slow but forgotten.
    """
    return {"healthy": Change(), "two matrices left out": LeftOut()}
