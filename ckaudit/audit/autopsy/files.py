"""Event checkpoints and their black boxes, read from a run's files; nothing else of them is decoded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ckaudit.audit.autopsy.result import EventName
from ckaudit.contract.io.codec import decode
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.schema.checkpoint import PLANNED, History
from ckaudit.contract.schema.numbers import Count, Step
from ckaudit.errors import UsageError
from ckaudit.run.read import list_source


class EventFile(Struct, frozen=True, kw_only=True):
    """What of a checkpoint an autopsy looks at."""

    schema_version: Literal["ck.analysis.v1"]
    step: Step
    triggers: list[str] | UnsetType = UNSET
    event_step: Step | UnsetType = UNSET
    rank: Count | UnsetType = UNSET
    history: History | UnsetType = UNSET

    @property
    def has_box(self) -> bool:
        """Whether it holds the last steps before it."""
        return self.history is not UNSET and bool(self.history.steps)

    @property
    def is_event(self) -> bool:
        """Whether an event asked for it: it says of which step, or names a trigger that is no plan."""
        return self.event_step is not UNSET or not PLANNED.issuperset(self.triggers or ())

    @property
    def name(self) -> EventName:
        """The event by its steps; a checkpoint that no event asked for stands for its own step."""
        event = self.step if self.event_step is UNSET else self.event_step
        return EventName(step=self.step, event_step=event, triggers=tuple(self.triggers or ()))


def event_files(path: Path) -> list[EventFile]:
    """Return the merged checkpoints that have a black box or that an event asked for, in the order of steps.

    What cannot be read is passed over.
    """
    folder, decoder, found = list_source(path), msgspec.json.Decoder(EventFile), []
    for file in folder.checkpoints:
        if file.rank is not None:
            continue
        try:
            document = decode(read_bytes(file.path, file.shown, root=folder.root), decoder).document
        except (BrokenFile, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # validate and triage tell what is wrong with it
        if not document.rank and (document.has_box or document.is_event):
            found.append(document)
    return sorted(found, key=lambda each: each.step)


def chosen(files: Sequence[EventFile], asked: int | None) -> EventFile:
    """Return the checkpoint of the event at step `asked`, by either of its steps, or of the last event.

    Raises:
        UsageError: Where there is none; the hint lists those there are.
    """
    events = [file for file in files if file.is_event]
    if asked is None:
        if events:
            return events[-1]
        ends = [str(file.step) for file in files]
        hint = f"The black box at step {ends[-1]} can be looked at: --event {ends[-1]}" if ends else "Nothing triggered one."
        raise UsageError("the run has no event checkpoint", hint=hint)
    by_event = [event for event in events if event.name.event_step == asked] or [file for file in files if file.step == asked]
    if by_event:
        return by_event[0]
    raise UsageError(f"there is no event checkpoint for step {asked}", hint=_there_are(events))


def _there_are(events: Sequence[EventFile], *, most: int = 8) -> str:
    """Return a list of the events for a hint."""
    if not events:
        return "The run has none: nothing triggered one."
    named = [f"{event.name.event_step} ({', '.join(event_triggers(event.name))})" for event in events]
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return f"There are events at {', '.join(named[:most])}{more}."


def event_triggers(name: EventName) -> tuple[str, ...]:
    """Return the triggers that are events; the cadence may have been due at the same step."""
    return tuple(trigger for trigger in name.triggers if trigger not in PLANNED) or name.triggers
