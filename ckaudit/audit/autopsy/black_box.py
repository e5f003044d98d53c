"""The black box of an event: checkpoints that hold one, its columns as channels, and repeated batches in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType

from ckaudit.audit.autopsy.result import EventName, Kind
from ckaudit.contract.io.codec import decode
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.schema.checkpoint import PLANNED, History
from ckaudit.contract.schema.numbers import Count, Number, Step, encode_float
from ckaudit.errors import UsageError
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.run.read import list_source
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series
from ckaudit.wording import first_names

Column = list[Number | None]


class EventFile(Struct, frozen=True, kw_only=True):
    """The parts of a checkpoint that an autopsy reads."""

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
        """Whether an event triggered the checkpoint: it names the event's step, or a trigger that is not planned."""
        return self.event_step is not UNSET or not PLANNED.issuperset(self.triggers or ())

    @property
    def name(self) -> EventName:
        """The event by its steps; a checkpoint without an event stands for its own step."""
        event = self.step if self.event_step is UNSET else self.event_step
        return EventName(step=self.step, event_step=event, triggers=tuple(self.triggers or ()))


def event_files(path: Path) -> list[EventFile]:
    """Return the merged checkpoints that have a black box or that an event triggered, sorted by step.

    Unreadable files are skipped.
    """
    folder, decoder, files = list_source(path), msgspec.json.Decoder(EventFile), []
    for file in folder.checkpoints:
        if file.rank is not None:
            continue
        try:
            document = decode(read_bytes(file.path, file.shown, root=folder.root), decoder).document
        except (BrokenFile, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # validate and triage report what is wrong with it
        if not document.rank and (document.has_box or document.is_event):
            files.append(document)
    return sorted(files, key=lambda file_: file_.step)


def event_checkpoint(files: Sequence[EventFile], asked: int | None) -> EventFile:
    """Return the checkpoint of the event at step `asked`, by either of its steps; None asks for the last event.

    Raises:
        UsageError: If there is none; the hint lists the existing ones.
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
    raise UsageError(f"there is no event checkpoint for step {asked}", hint=_events_hint(events))


def _events_hint(events: Sequence[EventFile], *, max_names: int = 8) -> str:
    """Return a list of the events for a hint."""
    if not events:
        return "The run has none: nothing triggered one."
    named = [f"{event.name.event_step} ({', '.join(event_triggers(event.name))})" for event in events]
    return f"There are events at {first_names(named, max_names)}."


def event_triggers(name: EventName) -> tuple[str, ...]:
    """Return the triggers that are events, or all if there are none; the cadence may be due at the same step."""
    return tuple(trigger for trigger in name.triggers if trigger not in PLANNED) or name.triggers


class Channel(Struct, frozen=True, eq=False, kw_only=True):
    """One number over the steps of the box; a missing value is NaN and not `recorded`.

    Attributes:
        kind: Kind of the number.
        name: The tensor; empty for a number of the whole run.
        values: Shape (K,).
        recorded: Shape (K,).
        words: The values as written in the file.
    """

    kind: Kind
    name: str
    values: Floats
    recorded: Mask
    words: tuple[Number | None, ...]


# The columns of a black box as channels, and its repeated batches.
def channels(history: History) -> list[Channel]:
    """Return loss, learning rate, global gradient norm, and both norms of every tensor, as far as recorded.

    A column with another length than the steps is ignored, because its values belong to no step; `validate` reports it.
    """
    count = len(history.steps)
    columns = [_channel("loss", "", history.loss, count), _channel("learning_rate", "", history.learning_rate, count)]
    gradients = {} if history.gradient_norms is UNSET else history.gradient_norms
    updates = {} if history.update_norms is UNSET else history.update_norms
    parts = [_channel("gradient", name, column, count) for name, column in gradients.items()]
    columns += [_global(parts, count), *parts, *(_channel("update", name, column, count) for name, column in updates.items())]
    return [channel for channel in columns if channel.recorded.any()]


def _channel(kind: Kind, name: str, column: object, count: int) -> Channel:
    words: tuple[Number | None, ...] = tuple(column) if isinstance(column, list) and len(column) == count else (None,) * count
    values = np.array([np.nan if word is None else float(word) for word in words])
    recorded = np.array([word is not None for word in words], bool)
    return Channel(kind=kind, name=name, values=values, recorded=recorded, words=words)


def _global(parts: list[Channel], count: int) -> Channel:
    """Return the norm of all gradients together, at the steps where every recorded tensor has a value."""
    parts = [part for part in parts if part.recorded.any()]
    if not parts:
        return _channel("gradient_norm", "", None, count)
    values = np.array([part.values for part in parts])  # (P, K)
    whole: Mask = np.all(np.array([part.recorded for part in parts]), axis=0)
    with np.errstate(over="ignore"):
        norm = np.where(whole, np.sqrt(np.square(values).sum(axis=0)), np.nan)
    words = tuple(encode_float(value) if known else None for value, known in zip(norm.tolist(), whole.tolist(), strict=True))
    return Channel(kind="gradient_norm", name="", values=norm, recorded=whole, words=words)


def batch_distances(history: History) -> list[int | None]:
    """Return how many steps before each step its batch was last seen; None if never, or if no hash is recorded."""
    if history.batch_hash is UNSET or len(history.batch_hash) != len(history.steps):
        return [None] * len(history.steps)
    seen: dict[str, int] = {}
    apart: list[int | None] = []
    for step, word in zip(history.steps, history.batch_hash, strict=True):
        apart.append(step - seen[word] if word in seen else None)
        if word is not None:
            seen[word] = step
    return apart


def repeated_batches(distances: list[int | None], *, warned: int = 8) -> list[int]:
    """Return the rows with repeated batches, if at least `warned` steps without a repeat come first.

    If the first repeat is of the oldest batch in the box, and all repeats have the same distance, a new epoch began and no rows
    are returned.

    >>> repeated_batches([None] * 10 + [1, 1]), repeated_batches([None] * 9 + [9, 9])
    ([10, 11], [])
    """
    rows = [row for row, distance in enumerate(distances) if distance is not None]
    if not rows or rows[0] < warned or {distances[row] for row in rows} == {rows[0]}:
        return []
    return rows


def rebuilt_black_box(run: Run, event: int, *, max_steps: int = 64) -> History:
    """Return a black box made of the lines and checkpoints of the last steps until an event.

    Args:
        run: The run.
        event: The step of the event.
        max_steps: Number of recorded steps to use, as many as the Recorder's own box holds.
    """
    norms = run.series("gradients", "norm")
    known = [train_loss_raw(run), learning_rate(run), grad_global_norm(run), norms]
    recorded = [series.steps[series.recorded.any(axis=1)] for series in known if series]
    steps = np.unique(np.concatenate([*recorded, np.array([event], np.int64)]))
    steps = steps[steps <= event][-max_steps:]
    return History(
        steps=steps.tolist(),
        loss=_column(known[0], 0, steps),
        learning_rate=_column(known[1], 0, steps),
        gradient_norms={label: _column(norms, place, steps) for place, label in enumerate(norms.labels)},
    )


def channels_of_record(run: Run, history: History) -> list[Channel]:
    """Return the channels of a rebuilt box, with the logged global gradient norm if there is one."""
    words = _column(grad_global_norm(run), 0, np.array(history.steps, np.int64))
    values = np.array([np.nan if word is None else float(word) for word in words])
    recorded = np.array([word is not None for word in words], bool)
    box_channels = channels(history)
    if not recorded.any():
        return box_channels
    logged = Channel(kind="gradient_norm", name="", values=values, recorded=recorded, words=tuple(words))
    return [*(channel for channel in box_channels if channel.kind != "gradient_norm"), logged]


def _column(series: Series, place: int, steps: "np.typing.NDArray[np.int64]") -> Column:
    """Return one label of a series at some steps; None means not recorded."""
    if not series:
        return [None] * len(steps)
    rows = {int(step): row for row, step in enumerate(series.steps.tolist())}
    rows_of_steps = [rows.get(int(step)) for step in steps.tolist()]
    return [
        None if row is None or not series.recorded[row, place] else encode_float(float(series.values[row, place]))
        for row in rows_of_steps
    ]
