"""Which steps have a checkpoint: by the cadence, as the last planned one, and after an event."""

from collections.abc import Sequence

from ckaudit.contract.analysis import Trigger
from ckaudit.contract.cadence import is_due
from ckaudit.contract.manifest import Cadence
from ckaudit.recorder.triggers import Events, Limits, Patience


class CheckpointSchedule:
    """Sees each step's loss and gradient norm, and knows which steps are due.

    Attributes:
        latest: Events of the step seen last.
    """

    def __init__(self, cadence: Sequence[Cadence], limits: Limits, planned_steps: int | None) -> None:
        self.latest: list[Trigger] = []
        self._cadence, self._planned = cadence, planned_steps
        self._events, self._patience = Events(limits), Patience(limits)
        self._asked: dict[int, list[Trigger]] = {}

    def see(self, step: int, loss: float | None, norm: float | None) -> None:
        """Look for events; one asks for a checkpoint at the step that follows."""
        self.latest = self._events.see(loss, norm, {})
        self._asked = {each: events for each, events in self._asked.items() if each >= step}
        if self.latest and (is_due(step + 1, self._cadence) or self._patience.allows(step + 1)):
            self._asked[step + 1] = self.latest

    def is_due(self, step: int) -> bool:
        """Return whether a step has a checkpoint."""
        return is_due(step, self._cadence) or step == self._planned or step in self._asked

    def follows_event(self, step: int) -> bool:
        """Return whether the step before held an event that asked for this one's checkpoint."""
        return step in self._asked

    def triggers(self, step: int) -> list[Trigger]:
        """Return why a step has a checkpoint; "manual" where nothing but the caller asked for it."""
        first: list[Trigger] = ["first"] if step == 0 else ["cadence"] if is_due(step, self._cadence) else []
        last: list[Trigger] = ["last"] if step == self._planned else []
        return [*first, *last, *self._asked.get(step, [])] or ["manual"]
