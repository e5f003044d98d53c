"""Quantities in which a run is compared with its siblings: losses, gradients by block, update sizes, attention, speed."""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from ckaudit.contract.violations import ViolationKind
from ckaudit.diff.siblings.kinds import ATTENTION, GRADIENT, HELD_OUT_LOSS, LOSS, SPEED, UPDATE
from ckaudit.metrics.attention import attn_entropy
from ckaudit.metrics.gradients import block_gradient_norm, grad_global_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.pairs import ratio
from ckaudit.metrics.speed import step_time, tokens_per_sec
from ckaudit.metrics.weights import update_norm, update_to_weight_global, weight_norm
from ckaudit.run.run import Run
from ckaudit.run.series import Series, mean_of_labels, root_sum_square

Harm = Literal["higher", "lower", "either"]


class Quantity(Struct, frozen=True, eq=False):
    """One quantity, and the kind of finding of a departure.

    Attributes:
        kind: Kind of finding.
        name: The underlying metric, as `ckaudit explain` names it.
        says: Name in a sentence; {where} is the block or layer.
        series: Returns its series of a run.
        seed: Effect of a seed on its level, relative to the noise of one point, as in `noise.stretches`.
        harm: Side of the band on which a departure is an illness; on the other it is a note.
        is_ratio: Whether it is positive and compared by its logarithm.
        min_ratio: Minimum factor of a ratio that is reported, however narrow the band.
        of_clock: Whether it depends on the machine.
        is_evaluation: Whether each point is a segment by itself.
    """

    kind: ViolationKind
    name: str
    says: str
    series: Callable[[Run], Series]
    seed: float = 1.0
    harm: Harm = "either"
    is_ratio: bool = True
    min_ratio: float = 1.25
    of_clock: bool = False
    is_evaluation: bool = False


def block_update_size(run: Run) -> Series:
    """Return the last update of all tensors of a block together over their norm, shape (C, L)."""
    moved, size = update_norm(run), weight_norm(run)
    blocks = [series.grouped(run.tensors.blocks(series.labels), root_sum_square) for series in (moved, size)]
    return ratio(*blocks)


def layer_entropy(run: Run) -> Series:
    """Return the mean attention entropy over the heads of each layer, shape (C, L): the order of heads is arbitrary."""
    heads = attn_entropy(run)
    return heads.grouped([label.rpartition("/")[0] or label for label in heads.labels], mean_of_labels)


def pace(run: Run) -> Series:
    """Return the tokens per second, or the steps per second if no tokens are counted."""
    speed = tokens_per_sec(run)
    if speed:
        return speed
    return step_time(run).mapped(lambda values: 1 / values, "steps_per_sec", "steps/s")


QUANTITIES: Sequence[Quantity] = (
    Quantity(LOSS, "train_loss_raw", "the loss", train_loss_raw, harm="higher", is_ratio=False),
    Quantity(HELD_OUT_LOSS, "val_loss", "the held-out loss", val_loss, harm="higher", is_ratio=False, is_evaluation=True),
    Quantity(GRADIENT, "grad_global_norm", "the gradient norm", grad_global_norm),
    Quantity(GRADIENT, "block_gradient_norm", "the gradient norm of {where}", block_gradient_norm),
    Quantity(UPDATE, "update_to_weight_global", "the last update over the weights", update_to_weight_global),
    Quantity(UPDATE, "update_to_weight", "the last update over the weights of {where}", block_update_size),
    Quantity(ATTENTION, "attn_entropy", "the attention entropy of {where}", layer_entropy),
    Quantity(SPEED, "tokens_per_sec", "the throughput", pace, harm="lower", min_ratio=1.5, of_clock=True),
)

LOSSES = QUANTITIES[:2]
"""The training loss and the held-out one."""
