"""What is kept of past steps: the black box, and the events that ask for a checkpoint of the next."""

from collections.abc import Mapping

from msgspec import UNSET

from ckaudit.contract.schema.checkpoint import Checkpoint, DeltaStats, History, Trigger
from ckaudit.recorder.loop.flight_recorder import BlackBox, HistoryStep
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.loop.triggers import Events, Limits, Patience


class EventLog:
    """Follows the steps of one session.

    Attributes:
        latest: Events of the steps that were seen last.
    """

    def __init__(self, limits: Limits) -> None:
        self.latest: list[Trigger] = []
        self._step = 0
        self._events, self._patience, self._box = Events(limits), Patience(limits), BlackBox()

    def see(self, attempt: StepState, deltas: Mapping[str, DeltaStats], *, forgive_norm: bool) -> None:
        """Keep a finished step, and see whether it holds an event; see `Events.see`."""
        self._box.add(attempt.moment(deltas))
        if found := self._events.see(attempt.loss, attempt.global_norm, attempt.norms, forgive_norm=forgive_norm):
            self.latest, self._step = found, attempt.step

    def pass_by(self, moment: HistoryStep, norm: float, lowest: float) -> bool:
        """Keep a step of finite numbers and tell so, if it holds no event; otherwise nothing is kept, and `see` has to.

        Args:
            moment: The step, with its loss.
            norm: Global gradient norm.
            lowest: Smallest gradient norm of a tensor.
        """
        if not self._events.pass_by(moment.loss, norm, lowest):  # type: ignore[arg-type]
            return False
        self._box.add(moment)
        return True

    def ask(self, attempt: StepState) -> None:
        """Have the step that begins answer the latest events, if it has a checkpoint anyway or there may be one more."""
        if self.latest and (attempt.is_due or self._patience.allows(attempt.step)):
            attempt.triggers += self.latest
            attempt.event_step = self._step

    def conclude(self, attempt: StepState, checkpoint: Checkpoint) -> Checkpoint:
        """Make the last step's checkpoint a last one, which answers what has not been answered, with the black box."""
        attempt.triggers = checkpoint.triggers = [*dict.fromkeys([*attempt.triggers, "last", *self.latest])]
        attempt.event_step = self._step if self.latest else attempt.event_step
        checkpoint.event_step = UNSET if attempt.event_step is None else attempt.event_step
        checkpoint.history = self.history(before=attempt.step) or UNSET
        return checkpoint

    def history(self, *, before: int) -> History | None:
        """Return the black box of the steps before this one."""
        return self._box.dump(before=before)
