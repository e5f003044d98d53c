"""State of one step: everything measured of it, and the checkpoint made of it."""

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

if TYPE_CHECKING:  # they need torch, and the writer needs the state of steps
    from torch import Tensor

    from ckaudit.recorder.loop.step_numbers import PendingStats


class StepState(Struct):
    """State of one step: everything measured of it so far.

    Attributes:
        step: Its number once it is finished.
        triggers: Why it has a checkpoint; empty: it has none.
        event_step: The step whose event asked for it.
        values: Values for the step's line, by catalogue name.
        unread: What was measured and is not fetched yet, loss, norms and the hash of the batch among it.
        versions: Identity and version of every gradient when the norms were taken.
        norms: Gradient norm of every tensor that has one, after unscaling; once they are fetched.
        global_norm: Norm of all gradients together (M9), None where there are none.
        input_hash: Hash of the batch, once it is fetched.
        is_batch_reused: Whether its inputs lie in the memory of those before.
        gradients: Their statistics, where a checkpoint is due.
        source: Where in the step they were read.
        before: Copies of the weights before the update, where a checkpoint is due.
        has_vitals: Whether the step has vital signs, but no checkpoint.
        sample: A sample of the weights before the update, where it has.
        rates: Learning rate of every group.
        loss_scale: Scale of the loss, under mixed precision.
        clip_norm: Largest global norm let through.
        norm_at_update: Norm of all gradients as the optimizer was given them, where a checkpoint is due and one optimizer has
            them all.
        is_written: Whether weights were written to since the update before, and rarely are.
        updates: Optimizers that applied their update.
        seconds: Time taken from the training so far.
        loss: Training loss, once the step is finished.
        time: When it was finished, Unix time.
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
        """Whether hooks look at the step: it has a checkpoint, or vital signs."""
        return bool(self.triggers) or self.has_vitals

    def take(self, norms: dict[str, float]) -> None:
        """Keep the gradient norms of the step."""
        self.norms, self.global_norm = norms, round_to_seven_digits(total_norm([*norms.values()])) if norms else None

    @property
    def norms_only(self) -> dict[str, GradientStats]:
        """The gradient section of a step whose gradients are gone."""
        return {name: GradientStats(norm=encode_float(shorten(norm))) for name, norm in self.norms.items()}

    def scalars(self, **derived: float | None) -> dict[str, Number]:
        """Return the values of this step that are numbers, and those that only a checkpoint can say."""
        share = top_share([*self.norms.values()])
        known = self.values | derived | {"top_gradient_share": None if share is None else shorten(share)}
        return {
            name: encode_float(float(value))
            for name, value in known.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }

    def note(self, values: Mapping[str, Any]) -> None:
        """Put values into the line of the step, without those that are None; one that it has already stays."""
        self.values = {name: value for name, value in values.items() if value is not None} | self.values

    def note_read(self, repeat_distance: int | None) -> None:
        """Put what was fetched into the line, and how many steps ago the same batch came."""
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
        """Return the checkpoint of this step with everything that is known without looking at a tensor."""
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
    """Return the smallest value, NaN where one is NaN, None of nothing."""
    return math.nan if any(map(math.isnan, values)) else min(values, default=None)
