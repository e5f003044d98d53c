"""What a trial does and what goes wrong in it, all from one seed."""

from dataclasses import dataclass
from random import Random

from tests.faults.layer import CALLS, LASTS, Fault

ERRORS = ("ENOSPC", "EIO", "EINTR", "EROFS", "EACCES", "EMFILE")
CLOCKS = ("back", "ahead", "still")
KINDS = ("inline",) * 180 + ("folder",) * 10 + ("writer",) * 7 + ("address",) * 2 + ("recorder",)

RETRIED = 2
"""How often in a row calls may fail at the end before a recorder gives up."""


@dataclass(frozen=True)
class Plan:
    """A training that is recorded while things go wrong.

    Attributes:
        seed: What it was drawn from.
        kind: "writer", "recorder", "address" (a writer whose run belongs in object storage), "folder" (what is under
            all of them, with a checkpoint that is there already), or "inline": the same without a thread, whose work is done
            between steps, so that everything comes in one order.
        steps: Steps of the training.
        every: Steps between two checkpoints.
        earlier: Steps of a start before it, in which nothing goes wrong; 0: there was none.
        suffix: How checkpoints are packed.
        faults: What goes wrong.
    """

    seed: int
    kind: str
    steps: int
    every: int
    earlier: int
    suffix: str
    faults: tuple[Fault, ...]

    @property
    def lasts(self) -> bool:
        """Whether something may go wrong until the recorder has been closed."""
        at_end = [fault for fault in self.faults if fault.last >= self.steps and fault.call not in ("thread", "clock")]
        return any(not fault.times for fault in at_end) or sum(fault.times for fault in at_end) > RETRIED

    @property
    def hangs(self) -> bool:
        """Whether a call hangs."""
        return any(fault.how == "hang" for fault in self.faults)

    def is_sound(self, moment: int) -> bool:
        """Tell whether nothing can go wrong at a moment."""
        return not any(fault.first <= moment <= fault.last for fault in self.faults)


def plan(seed: int, kind: str = "") -> Plan:
    """Draw the plan of a seed."""
    chance = Random(seed)
    steps, drawn = chance.randint(5, 16), chance.choice(KINDS)
    faults = tuple(_fault(chance, steps) for _ in range(chance.choice([1, 1, 2, 3])))
    # Who waits for a clock that stands still waits until the end.
    if (kind or drawn) == "inline" or any(fault.call == "clock" for fault in faults):
        faults = tuple(fault for fault in faults if fault.how != "hang")
    return Plan(
        seed=seed,
        kind=kind or drawn,
        steps=steps,
        every=max(1, steps // chance.choice([1, 2, 3, 5])),
        earlier=chance.choice([0, 0, 4]),
        suffix=chance.choice([".json", ".json", ".json.gz", ".json.zst"]),
        faults=faults,
    )


def _fault(chance: Random, steps: int) -> Fault:
    first = chance.choice([0, 0, chance.randint(1, steps)])
    last = chance.choice([first, min(steps - 1, first + chance.randint(0, steps)), LASTS])
    last = max(first, last)
    times = chance.choice([0, 0, 1, 2])
    drawn = chance.random()
    if drawn < 0.1:
        return Fault("thread", "", first, last, times)
    if drawn < 0.2:
        return Fault("clock", chance.choice(CLOCKS), first, last)
    call = chance.choice((*CALLS, "write", "fsync", "open", "replace"))
    how = chance.choice((*ERRORS, "slow", "hang", "short" if call == "write" else "EIO"))
    if how == "EINTR":
        times = times or 1  # who is interrupted tries again: for ever would be for ever
    if how == "hang":
        first = max(first, 1)  # a start may wait
    return Fault(call, how, first, max(first, last), times)
