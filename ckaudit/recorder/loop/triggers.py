"""Checkpoint triggers: the cadence, the last planned step, or an event in the last step.

The black box is kept here too: values of the last steps, which the checkpoint after an event contains.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, field

from ckaudit.contract.cadence import is_due, next_due
from ckaudit.contract.io.codec import significant
from ckaudit.contract.schema.checkpoint import Checkpoint, History, Trigger
from ckaudit.contract.schema.manifest import Cadence, Triggers
from ckaudit.contract.schema.numbers import Number, encode_float

if TYPE_CHECKING:  # that module needs the statistics of tensors
    from ckaudit.recorder.loop.step_state import StepState

BLACK_BOX_STEPS = 64  # steps of the black box


class EventThresholds(Struct, frozen=True, kw_only=True):
    """Thresholds of events: loss spike, gradient spike, dead parameter.

    The factors are decisions of the contract; the norms of dead and alive tensors come from D1.3.

    Attributes:
        loss_spike_factor: Loss over its bias-corrected moving average before this step.
        loss_decay: Decay of that average.
        loss_after: Finite losses before a spike can be detected.
        grad_norm_factor: Global gradient norm over the median of the last `grad_norm_window` before this step.
        grad_norm_window: Number of norms in the median.
        grad_norm_after: Finite norms before a spike can be detected.
        dead_gradient_norm: A tensor with a gradient norm below this is dead.
        alive_gradient_norm: A dead tensor is alive again above this; between the two thresholds its state does not change.
        cooldown: Minimum number of steps between two event checkpoints.
        at_most: Maximum number of event checkpoints of one session.
    """

    loss_spike_factor: float = 2.0
    loss_decay: float = 0.98
    loss_after: int = 20
    grad_norm_factor: float = 10.0
    grad_norm_window: int = 100
    grad_norm_after: int = 20
    dead_gradient_norm: float = 1e-10
    alive_gradient_norm: float = 1e-7
    cooldown: int = 10
    at_most: int = 50

    def stated(self) -> Triggers:
        """Return the thresholds as `run.json` states them."""
        return Triggers(
            loss_spike_factor=self.loss_spike_factor,
            grad_norm_factor=self.grad_norm_factor,
            dead_gradient_norm=self.dead_gradient_norm,
        )


def regular_triggers(step: int, cadence: Sequence[Cadence], planned_steps: int | None) -> list[Trigger]:
    """Return the triggers of a step that do not depend on events; empty if it has none."""
    regular: list[Trigger] = ["first"] if step == 0 else ["cadence"] if is_due(step, cadence) else []
    return [*regular, "last"] if step == planned_steps else regular


class CheckpointSchedule:
    """Decides which steps of one session have a checkpoint, for `Recorder` and for `Writer`, which report every step.

    Attributes:
        next_due: The next step of the cadence; None: there is none.
        planned_steps: The last planned step, if known.
        latest: Events of the last reported steps.
    """

    def __init__(
        self, cadence: Sequence[Cadence], limits: EventThresholds, planned_steps: int | None, *, start_step: int = 0
    ) -> None:
        self.next_due, self.planned_steps = next_due(start_step, cadence), planned_steps
        self.latest: list[Trigger] = []
        self._event_step = 0
        self._cadence, self._events, self._allowance, self._box = (
            cadence,
            EventDetector(limits),
            EventAllowance(limits),
            BlackBox(),
        )
        self._asked: dict[int, list[Trigger]] = {}

    def observe(
        self,
        history_step: "HistoryStep",
        norm: float | None,
        norms: Mapping[str, float],
        others: Sequence[Trigger] = (),
        *,
        forgive_norm: bool = False,
    ) -> None:
        """Keep a finished step, and detect its events, in addition to the known `others`; see `EventDetector.observe`."""
        self._box.add(history_step)
        if events := [*self._events.observe(history_step.loss, norm, norms, forgive_norm=forgive_norm), *others]:
            self.latest, self._event_step = events, history_step.step

    def accept_if_uneventful(self, history_step: "HistoryStep", norm: float, lowest: float) -> bool:
        """Keep a step of finite numbers if it has no event, and return whether it was kept; if not, call `observe`.

        Args:
            history_step: The step, with its loss.
            norm: Global gradient norm.
            lowest: Smallest gradient norm of a tensor.
        """
        if not self._events.accept_if_uneventful(history_step.loss, norm, lowest):  # type: ignore[arg-type]
            return False
        self._box.add(history_step)
        return True

    def begin(self, step_state: "StepState") -> None:
        """Set the triggers of a step that begins; call it if `next_due`, `planned_steps` or `latest` apply."""
        step_state.triggers += regular_triggers(step_state.step, self._cadence, self.planned_steps)
        if step_state.step == self.next_due:
            self.next_due = next_due(step_state.step, self._cadence)
        if self._may_answer(step_state.step, step_state.triggers):
            step_state.triggers += self.latest
            step_state.event_step = self._event_step

    def ask(self, step: int) -> None:
        """Let a step that has not begun answer the latest events; `is_due` then returns True for it."""
        self._asked = {asked: events for asked, events in self._asked.items() if asked >= step - 1}
        if self._may_answer(step, regular_triggers(step, self._cadence, self.planned_steps)):
            self._asked[step] = self.latest

    def _may_answer(self, step: int, triggers: Sequence[Trigger]) -> bool:
        """Return whether a step may answer the latest events: it has a checkpoint anyway, or the allowance permits one."""
        return bool(self.latest) and (bool(triggers) or self._allowance.allows(step))

    def is_due(self, step: int) -> bool:
        """Return whether a step has a checkpoint."""
        return bool(regular_triggers(step, self._cadence, self.planned_steps)) or step in self._asked

    def follows_event(self, step: int) -> bool:
        """Return whether the last step had an event that triggered this step's checkpoint."""
        return step in self._asked

    def triggers(self, step: int) -> list[Trigger]:
        """Return the triggers of a step; "manual" if only the caller requested its checkpoint."""
        regular = regular_triggers(step, self._cadence, self.planned_steps)
        return [*regular, *self._asked.get(step, [])] or ["manual"]

    def conclude(self, step_state: "StepState", checkpoint: Checkpoint) -> Checkpoint:
        """Mark the checkpoint of the last step as the last one, with unanswered events and the black box."""
        step_state.triggers = checkpoint.triggers = [*dict.fromkeys([*step_state.triggers, "last", *self.latest])]
        step_state.event_step = self._event_step if self.latest else step_state.event_step
        checkpoint.event_step = UNSET if step_state.event_step is None else step_state.event_step
        checkpoint.history = self.history(before=step_state.step) or UNSET
        return checkpoint

    def history(self, *, before: int) -> History | None:
        """Return the black box of the steps before this one."""
        return self._box.dump(before=before)


class EventDetector:
    """Detects events in each step's loss and gradient norms."""

    def __init__(self, limits: EventThresholds) -> None:
        self.limits = limits
        self._losses, self._average = 0, 0.0
        self._norms: deque[float] = deque()
        self._ordered: list[float] = []  # the same norms, sorted
        self._spike_above, self._steep_above = math.inf, math.inf  # thresholds for the next loss and norm
        self._dead: set[str] = set()
        self._nonfinite = 0

    def observe(
        self, loss: float | None, norm: float | None, norms: Mapping[str, float], *, forgive_norm: bool = False
    ) -> list[Trigger]:
        """Return the events of one step.

        Args:
            loss: Training loss, if known.
            norm: Global gradient norm, if known.
            norms: Gradient norm of each tensor that has a gradient.
            forgive_norm: Whether a loss scaler has already handled a gradient that is not finite.
        """
        wrong_loss = loss is not None and not math.isfinite(loss)
        wrong_norm = norm is not None and not math.isfinite(norm) and not forgive_norm
        events: list[Trigger] = []
        if loss is not None and not wrong_loss:
            if loss > self._spike_above:
                events.append("loss_spike")
            self._count_loss(loss)
        if norm is not None and math.isfinite(norm):
            if norm > self._steep_above:
                events.append("grad_norm")
            self._count_norm(norm)
        if self._has_new_dead(norms):
            events.append("dead_parameter")
        if (wrong_loss or wrong_norm) and self._is_due():
            events.append("nonfinite")
        return events

    def accept_if_uneventful(self, loss: float, norm: float, lowest: float) -> bool:
        """Tell whether a step has no event, and count it if so; if not, call `observe`.

        Args:
            loss: Training loss, finite.
            norm: Global gradient norm, finite.
            lowest: Smallest gradient norm of a tensor.
        """
        if self._dead or lowest < self.limits.dead_gradient_norm or loss > self._spike_above or norm > self._steep_above:
            return False
        self._count_loss(loss)
        self._count_norm(norm)
        return True

    def _count_loss(self, loss: float) -> None:
        limits, decay = self.limits, self.limits.loss_decay
        self._average = decay * self._average + (1 - decay) * loss
        self._losses += 1
        if self._losses >= limits.loss_after:
            above = limits.loss_spike_factor * (self._average / (1 - decay**self._losses))
            self._spike_above = above if above > 0 else math.inf

    def _count_norm(self, norm: float) -> None:
        limits, ordered = self.limits, self._ordered
        if len(ordered) == limits.grad_norm_window:
            del ordered[bisect_left(ordered, self._norms.popleft())]
        self._norms.append(norm)
        insort(ordered, norm)
        if len(ordered) >= limits.grad_norm_after:
            middle = len(ordered) // 2
            self._steep_above = limits.grad_norm_factor * ((ordered[middle] + ordered[-middle - 1]) / 2)

    def _has_new_dead(self, norms: Mapping[str, float]) -> bool:
        if not self._dead and min(norms.values(), default=math.inf) >= self.limits.dead_gradient_norm:
            return False
        dead = {name for name, norm in norms.items() if norm < self.limits.dead_gradient_norm}
        alive = {name for name, norm in norms.items() if norm > self.limits.alive_gradient_norm}
        new = dead - self._dead
        self._dead = (self._dead | dead) - alive
        return bool(new)

    def _is_due(self) -> bool:
        # The first, second, fourth, eighth, and so on: a run that stays NaN does not need a file per step.
        self._nonfinite += 1
        return self._nonfinite.bit_count() == 1


class EventAllowance:
    """Limits the number and the frequency of event checkpoints."""

    def __init__(self, limits: EventThresholds) -> None:
        self._limits = limits
        self._taken = 0
        self._last = -math.inf

    def allows(self, step: int) -> bool:
        """Return whether an event checkpoint at `step` is within the limits, and count it if so."""
        if self._taken >= self._limits.at_most or step - self._last < self._limits.cooldown:
            return False
        self._taken, self._last = self._taken + 1, step
        return True


# The black box: loss, learning rate, batch and gradient norms of the last steps.
class HistoryStep(Struct, frozen=True):
    """One step of the black box; a value that is None or missing was not recorded."""

    step: int
    loss: float | None
    learning_rate: float | None
    batch_hash: str | None
    gradient_norms: Mapping[str, float]
    update_norms: Mapping[str, float] = field(default_factory=dict)


class BlackBox:
    """Keeps the last steps.

    Attributes:
        add: Adds a step, and drops the oldest if there are too many.
    """

    def __init__(self, length: int = BLACK_BOX_STEPS) -> None:
        self._history_steps: deque[HistoryStep] = deque(maxlen=length)
        self.add = self._history_steps.append

    def dump(self, *, before: int) -> History | None:
        """Return the steps before this one as columns, norms with 4 digits; None if there are none."""
        history_steps = [history_step for history_step in self._history_steps if history_step.step < before]
        if not history_steps:
            return None
        hashes = [history_step.batch_hash for history_step in history_steps]
        return History(
            steps=[history_step.step for history_step in history_steps],
            loss=[_or_none(history_step.loss) for history_step in history_steps],
            learning_rate=[_or_none(history_step.learning_rate) for history_step in history_steps],
            batch_hash=hashes if any(hashes) else UNSET,
            gradient_norms=_columns([history_step.gradient_norms for history_step in history_steps]) or UNSET,
            update_norms=_columns([history_step.update_norms for history_step in history_steps]) or UNSET,
        )


def _or_none(value: float | None) -> Number | None:
    return None if value is None else encode_float(value)


def _columns(rows: list[Mapping[str, float]]) -> dict[str, list[Number | None]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [significant([row[name]])[0] if name in row else None for row in rows] for name in names}
