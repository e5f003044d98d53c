"""State of one step: all its measurements, and the checkpoint made from it."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, field

from ckaudit.contract.schema.checkpoint import Checkpoint, DeltaStats, GradientsSource, GradientStats, Trigger
from ckaudit.contract.schema.numbers import Number, encode_float
from ckaudit.recorder.loop.triggers import HistoryStep
from ckaudit.recorder.stats.arrays import Array
from ckaudit.recorder.stats.float32_rounding import round_to_seven_digits, shorten
from ckaudit.recorder.stats.tensor_stats import top_share, total_norm

if TYPE_CHECKING:  # these modules need torch, and the writer needs this module
    from torch import Tensor

    from ckaudit.recorder.loop.step_numbers import PendingStats


class StepState(Struct):
    """State of one step: all measurements so far.

    Attributes:
        step: Step number.
        triggers: Triggers of its checkpoint; empty: it has none.
        event_step: The step whose event triggered the checkpoint.
        values: Values for the step's line, by catalogue name.
        unread: Measurements that are not fetched yet, including loss, norms and the hash of the batch.
        versions: Identity and version of every gradient when the norms were taken.
        norms: Gradient norm of every tensor that has one, after unscaling, once fetched.
        global_norm: Global gradient norm (M9); None without gradients.
        input_hash: Hash of the batch, once fetched.
        is_batch_reused: Whether its inputs reuse the memory of the last step's inputs.
        gradients: Statistics of the gradients, if a checkpoint is due.
        source: Point in the step at which the gradients were read.
        before: Copies of the weights before the update, if a checkpoint is due.
        has_vitals: Whether the step has vital signs, but no checkpoint.
        sample: A sample of the weights before the update, if the step has vital signs.
        rates: Learning rate of every group.
        loss_scale: Scale of the loss, under mixed precision.
        clip_norm: Maximum global norm of clipping.
        norm_at_update: Global norm of the gradients at the optimizer's update, if a checkpoint is due and one optimizer has them
            all.
        is_written: Whether weights were written to since the last update, if that is rare.
        updates: Number of optimizers that applied their update.
        seconds: Time taken from the training so far.
        loss: Training loss, once the step is finished.
        time: Unix time of the end of the step.
    """

    step: int
    triggers: list[Trigger] = field(default_factory=list)
    event_step: int | None = None
    values: dict[str, Any] = field(default_factory=dict)
    unread: "PendingStats | None" = None
    versions: list[tuple[int, int]] = field(default_factory=list)
    norms: dict[str, float] = field(default_factory=dict)
    global_norm: float | None = None
    input_hash: str | None = None
    is_batch_reused: bool = False
    gradients: dict[str, GradientStats] = field(default_factory=dict)
    source: GradientsSource | None = None
    before: dict[str, Array] = field(default_factory=dict)
    has_vitals: bool = False
    sample: Array | None = None
    rates: list[float] = field(default_factory=list)
    loss_scale: float | None = None
    clip_norm: float | None = None
    norm_at_update: "Tensor | None" = None
    is_written: bool = False
    updates: int = 0
    seconds: float = 0.0
    loss: float | None = None
    time: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the step has a checkpoint."""
        return bool(self.triggers)

    @property
    def is_watched(self) -> bool:
        """Whether hooks observe the step, for a checkpoint or for vital signs."""
        return bool(self.triggers) or self.has_vitals

    def take(self, norms: dict[str, float]) -> None:
        """Keep the gradient norms of the step."""
        self.norms, self.global_norm = norms, round_to_seven_digits(total_norm([*norms.values()])) if norms else None

    @property
    def norms_only(self) -> dict[str, GradientStats]:
        """The gradient section of a step whose gradients no longer exist."""
        return {name: GradientStats(norm=encode_float(shorten(norm))) for name, norm in self.norms.items()}

    def scalars(self, **derived: float | None) -> dict[str, Number]:
        """Return the numeric values of this step, and those that only a checkpoint has."""
        share = top_share([*self.norms.values()])
        known = self.values | derived | {"top_gradient_share": None if share is None else shorten(share)}
        return {
            name: encode_float(float(value))
            for name, value in known.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }

    def note(self, values: Mapping[str, Any]) -> None:
        """Add values to the log line of the step, without those that are None; existing values stay."""
        self.values = {name: value for name, value in values.items() if value is not None} | self.values

    def note_read(self, repeat_distance: int | None) -> None:
        """Add the fetched values to the log line, and the number of steps since the same batch."""
        loss, norm = self.loss, self.global_norm
        known = {"train_loss_raw": loss, "grad_global_norm": norm, "batch_hash": self.input_hash}
        reused = 1 if self.is_batch_reused and repeat_distance == 1 else None
        self.note(known | {"batch_repeat_distance": repeat_distance, "batch_reused": reused})

    def history_step(self, deltas: Mapping[str, DeltaStats]) -> HistoryStep:
        """Return the step as the black box keeps it."""
        updates = {name: float(delta.norm) for name, delta in deltas.items() if delta.norm is not UNSET}
        rate = self.rates[0] if self.rates else None
        return HistoryStep(self.step, self.loss, rate, self.input_hash, self.norms, updates)

    def checkpoint(self, session: int) -> Checkpoint:
        """Return the checkpoint of this step with everything that is known without reading a tensor."""
        return Checkpoint(
            schema_version="ck.analysis.v1",
            step=self.step,
            loss=UNSET if self.loss is None else encode_float(self.loss),
            time=round(self.time, 3),
            session=session,
            triggers=list(self.triggers),
            event_step=UNSET if self.event_step is None else self.event_step,
            gradients_source=self.source or UNSET,
        )


def lowest(values: list[float]) -> float | None:
    """Return the smallest value; NaN if one is NaN, None for an empty list."""
    return math.nan if any(map(math.isnan, values)) else min(values, default=None)
