"""What an event's autopsy comes to: plain data that every renderer draws alike."""

from typing import Literal

from msgspec import Struct

from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.report import Diagnosis, Finding

Kind = Literal["batch", "loss", "gradient", "gradient_norm", "learning_rate", "update"]
How = Literal["above", "below", "not_finite", "dead", "changed", "repeated", "empty", "unlike"]
KINDS: tuple[Kind, ...] = ("batch", "loss", "gradient", "gradient_norm", "learning_rate", "update")
"""In the order in which a step makes them; the global norm stands behind what it is made of."""


class Departure(Struct, frozen=True, kw_only=True):
    """One number that left its own range at one step.

    Attributes:
        step: When it left.
        kind: What it is.
        name: The tensor, or the hash of a batch; empty where it is one number of the run.
        how: Which way it left; a batch is repeated, empty (no token of it was counted), or unlike the others.
        value: Its value there, as the contract writes it; of a batch the tokens counted, or how far its tokens are from those
            of others, in nats.
        usual: The median of its steps before; None: too few.
        times: Value over median; None where that is no number.
        since_start: Whether it was so at every step that the black box has of it until then.
    """

    step: int
    kind: Kind
    name: str
    how: How
    value: Number | None = None
    usual: float | None = None
    times: float | None = None
    since_start: bool = False


class Moment(Struct, frozen=True, kw_only=True):
    """Everything that left its range at one step.

    Attributes:
        step: The step.
        departures: In the order in which a step makes them; the farthest tensor first.
    """

    step: int
    departures: tuple[Departure, ...]


class Return(Struct, frozen=True, kw_only=True):
    """What became of a number that had left its range.

    Attributes:
        kind: What it is.
        name: The tensor; empty where it is one number of the run.
        step: The step from which on it is back; None: it is not.
        seen_until: Last step that anything is known of it; None: nothing is.
    """

    kind: Kind
    name: str
    step: int | None
    seen_until: int | None


class Track(Struct, frozen=True, kw_only=True):
    """One row of the timeline.

    Attributes:
        kind: What it is.
        name: The tensor; empty where it is one number of the run.
        values: One for each step of the black box; null: not recorded. Of a batch: how many steps ago it was seen before.
        out: The steps out of its range.
    """

    kind: Kind
    name: str
    values: tuple[Number | None, ...]
    out: tuple[int, ...]


class EventName(Struct, frozen=True, kw_only=True):
    """One event checkpoint by its steps and triggers.

    Attributes:
        step: The step it was taken at.
        event_step: The step whose event asked for it.
        triggers: What that was.
    """

    step: int
    event_step: int
    triggers: tuple[str, ...]


class Autopsy(Struct, frozen=True, kw_only=True):
    """The whole.

    Attributes:
        subject: The run, as the user named it.
        event: Which checkpoint.
        verdict: One sentence: what went first.
        steps: The steps of the black box.
        onset: The first step of what led to the event; None: nothing left its range.
        moments: What left its range from there on, step by step.
        standing: What was dead or no number since the first step of the black box.
        earlier: Steps before the onset at which more than noise left its range and was back.
        tensors: How many tensors the black box has.
        tracks: The timeline: the run's own numbers, then the tensors that left first and farthest.
        returns: What was back afterwards.
        findings: What triage finds that began, or went on, in these steps: the gravest of each rule, then the others.
        diagnoses: Causes that explain these findings.
        others: The other events of the run.
        notes: What a reader must know of how the run was read.
        files: Files read.
        boxed: Whether the checkpoint has a black box; else the run's lines and checkpoints stand in for it.
    """

    subject: str
    event: EventName
    verdict: str
    steps: tuple[int, ...]
    onset: int | None
    moments: tuple[Moment, ...]
    standing: tuple[Departure, ...]
    earlier: tuple[int, ...]
    tensors: int
    tracks: tuple[Track, ...]
    returns: tuple[Return, ...]
    findings: tuple[Finding, ...]
    diagnoses: tuple[Diagnosis, ...]
    others: tuple[EventName, ...]
    notes: tuple[str, ...] = ()
    files: int = 0
    boxed: bool = True
