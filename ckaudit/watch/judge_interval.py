"""When to judge next: as often as its cost allows, and at once where something asks for it, out of a purse that refills."""

from msgspec import Struct

SHARE = 0.004  # of one core, for judging as a matter of routine
REFILL = 0.002  # of one core, for what cannot wait
PURSE = 3.0  # seconds of processor time saved up at most: some sixty judgements of a run of 2,000 steps
FIRST = 0.1  # seconds of processor time that the first judgement counts at most
SOON = 0.4  # seconds between two judgements, however urgent


class Pace(Struct):
    """Keeps the cost of judging under `SHARE` + `REFILL` of a core in the long run.

    Attributes:
        last: When was judged last.
        cost: Processor time of that, in seconds.
        purse: Processor time that is saved up.
        urgent: Whether something asks to judge at once.
    """

    last: float = float("-inf")
    cost: float = 0.0
    purse: float = PURSE
    urgent: bool = True

    def is_due(self, now: float) -> bool:
        """Tell whether to judge now, given that there is something new."""
        waited = now - self.last
        if waited >= self.cost / SHARE:
            return True
        return self.urgent and waited >= max(SOON, self.cost) and self._saved(now) >= min(self.cost, PURSE)

    def judged(self, now: float, cost: float) -> None:
        """Take note of a judgement and its cost; the first, of a long history, costs more than any later one."""
        if self.last == float("-inf"):
            cost = min(cost, FIRST)
        paid_by_waiting = now - self.last >= self.cost / SHARE
        self.purse = self._saved(now) - (0.0 if paid_by_waiting else cost)
        self.last, self.cost, self.urgent = now, cost, False

    def _saved(self, now: float) -> float:
        waited = now - self.last
        return PURSE if waited == float("inf") else min(PURSE, self.purse + REFILL * waited)
