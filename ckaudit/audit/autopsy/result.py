"""Result of an event's autopsy: plain data that every renderer draws."""

from typing import Literal

from msgspec import Struct

from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.report import Diagnosis, Finding

Kind = Literal["batch", "loss", "gradient", "gradient_norm", "learning_rate", "update"]
How = Literal["above", "below", "not_finite", "dead", "changed", "repeated", "empty", "unlike"]
KINDS: tuple[Kind, ...] = ("batch", "loss", "gradient", "gradient_norm", "learning_rate", "update")
"""Kinds in the order of a training step; the global norm follows the gradients it is computed from."""


class Departure(Struct, frozen=True, kw_only=True):
    """One number that left its own range at one step.

    Attributes:
        step: Step at which it left.
        kind: Kind of the number.
        name: The tensor, or the hash of a batch; empty for a number of the whole run.
        how: How it left; a batch is repeated, empty (without any counted token), or unlike the others.
        value: Its value there, as the contract writes it; for a batch the number of tokens, or the divergence of its tokens from
            others, in nats.
        usual: Median of its steps before; None if there are too few.
        times: Value over median; None if that is no number.
        since_start: Whether this holds at every earlier step that the black box has of it.
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
        departures: In the order of a training step; the farthest tensor first.
    """

    step: int
    departures: tuple[Departure, ...]


class Return(Struct, frozen=True, kw_only=True):
    """Recovery of a number that left its range.

    Attributes:
        kind: Kind of the number.
        name: The tensor; empty for a number of the whole run.
        step: First step at which it is back; None if it is not.
        seen_until: Its last known step; None if unknown.
    """

    kind: Kind
    name: str
    step: int | None
    seen_until: int | None


class Track(Struct, frozen=True, kw_only=True):
    """One row of the timeline.

    Attributes:
        kind: Kind of the number.
        name: The tensor; empty for a number of the whole run.
        values: One per step of the black box; null: not recorded. For a batch: how many steps before it was last seen.
        out: The steps out of its range.
    """

    kind: Kind
    name: str
    values: tuple[Number | None, ...]
    out: tuple[int, ...]


class EventName(Struct, frozen=True, kw_only=True):
    """One event checkpoint by its steps and triggers.

    Attributes:
        step: Step of the checkpoint.
        event_step: Step of the event that triggered it.
        triggers: The triggers.
    """

    step: int
    event_step: int
    triggers: tuple[str, ...]


class Autopsy(Struct, frozen=True, kw_only=True):
    """The whole autopsy.

    Attributes:
        subject: The run, as the user named it.
        event: The event and its checkpoint.
        verdict: One sentence: what left its range first.
        steps: The steps of the black box.
        onset: First step of the course of events; None: nothing left its range.
        moments: Departures from there on, step by step.
        standing: Numbers that are dead or not finite since the first step of the black box.
        earlier: Steps before the onset at which more than noise left its range and came back.
        tensors: Number of tensors in the black box.
        tracks: The timeline: the run's own numbers, then the tensors that left first and farthest.
        returns: Recoveries afterwards.
        findings: Findings of triage that overlap these steps: the most severe of each rule, then the others.
        diagnoses: Causes that explain these findings.
        others: The other events of the run.
        notes: Notes on how the run was read.
        files: Number of files read.
        boxed: Whether the checkpoint has a black box; else one is rebuilt from the run's lines and checkpoints.
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
