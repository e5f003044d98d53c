"""The program that records: for a run that no recorder wrote, every line from the import to the end, in order."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from ckaudit.audit.coverage.applicability import TABLES, why_not
from ckaudit.audit.coverage.arguments import ARGUMENTS, explained
from ckaudit.audit.coverage.missing_inputs import Lack
from ckaudit.audit.coverage.writer import source_of, trainer_of
from ckaudit.metrics.catalogue import actions, entries
from ckaudit.run.run import Run

OURS = "ckaudit "


class Line(Struct, frozen=True, kw_only=True):
    """One line to write or to run.

    Attributes:
        code: The line, to be copied as it stands.
        when: In a program, when it comes; empty: it is no line of the recorder, or stands alone.
        brings: In a program, what it records: what is missing and what most rules and causes wait for first.
    """

    code: str
    when: str = ""
    brings: tuple[str, ...] = ()


class Place(NamedTuple):
    """A line of the program: the action that it is, when it comes, and what it brings whatever is missing."""

    code: str
    action: str = ""
    when: str = ""
    always: tuple[str, ...] = ()


LOOP = (
    Place("from ckaudit import Recorder"),
    Place('recorder = Recorder(model, "run/", optimizer=optimizer{told})', "recorder", "once, before the first step"),
    Place("loss.backward()  # yours"),
    Place("recorder.after_backward()", "after_backward", "in the loop, before clipping", ("grad_global_norm",)),
    Place("optimizer.step()  # yours"),
    Place("recorder.step(loss, batch=(inputs, targets))", "step", "in the loop", ("train_loss_raw",)),
    Place("recorder.log_after(val_loss=...)", "evaluate", "after each evaluation", ("val_loss",)),
    Place("recorder.close()", when="after the last step: the last checkpoint"),
)
TRAINER = (
    Place("from ckaudit.recorder.huggingface import RecorderCallback"),
    Place('callback = RecorderCallback("run/")', "recorder", "it finds optimizer, loss scaler, clipping and plan by itself"),
    Place("trainer = Trainer(..., callbacks=[callback])", when="beside what stands there already"),
)
GIVEN = ("optimizer", "batch")  # options that stand in the lines of LOOP
TOLD = ("vocabulary", "sequence_length", "warmup_steps", "planned_steps")  # and those that only whoever trains can fill in
WRITER = (
    'From JAX and any other framework, ckaudit.Writer("run/") takes NumPy arrays: writer.step(step, loss=loss, batch=batch) '
    "at every step, writer.checkpoint(step, weights=..., gradients=...) where writer.is_due(step), and writer.close()."
)

COLUMNS = (  # that let most checks judge, of those that a table can hold
    "train_loss_raw",
    "grad_global_norm",
    "learning_rate",
    "val_loss",
    "tokens_seen",
    "slice_val_loss/NAME",
    "error_event_rate/oom",
)
LEFT_OUT = "left out, because no common name"  # as the notes of the importers of tables begin
SCORES = " A score among the columns left out is read by --map as well, as in --map microbench_score/hellaswag=COLUMN."
OF_TABLE = "Columns of the table by these names, or named with --map NAME=COLUMN, let judge a part of that as well: "


def is_recorded(run: Run) -> bool:
    """Return whether a recorder of ours wrote the run."""
    return source_of(run).startswith(OURS)


def place_of(run: Run, lack: Lack) -> str:
    """Return the action of the line that records a number as it stands in the program; empty: none of them does."""
    trainer = trainer_of(run)
    given = {*actions()["recorder"].way(trainer).gives} if trainer else {*GIVEN, *told(run)}
    if lack.by in ARGUMENTS:
        action, names = ARGUMENTS[lack.by].action, [lack.by]
    else:
        entry = entries()[lack.by]
        action, names = entry.action, [*(option.partition("=")[0] for option in entry.options), *entry.arguments]
    if not {*names} <= given:
        return ""
    action = "recorder" if trainer and actions()[action].like == "recorder" else action
    return action if any(action == place.action for place in _places(run)) else ""


def told(run: Run) -> tuple[str, ...]:
    """Return the arguments of the program that have to be filled in; the Trainer's callback finds them by itself."""
    return () if trainer_of(run) else tuple(name for name in TOLD if not why_not(run, ARGUMENTS[name].only_with))


def filled_in(run: Run) -> str:
    """Return what the arguments to fill in are, as a sentence; empty: there are none."""
    return explained(ARGUMENTS[name].option for name in told(run))


def program(run: Run, lacks: Iterable[Lack]) -> tuple[Line, ...]:
    """Return the lines that record what has a place among them, each with what it brings."""
    brought: dict[str, list[str]] = {}
    for lack in sorted(lacks, key=lambda lack: -len(lack.readers)):
        if lack.name in entries():
            brought.setdefault(place_of(run, lack), []).append(lack.name)
    options = "".join(f", {ARGUMENTS[name].option}" for name in told(run))
    return tuple(_line(place, options, brought.get(place.action, ())) for place in _places(run))


def besides(run: Run) -> str:
    """Return another way than the program, in words; empty: there is none to tell."""
    if source_of(run).startswith(TABLES):
        return WRITER
    missing = [name for name in COLUMNS if not run.scalar(name.partition("/")[0])]
    if source_of(run) != "CSV" or not missing:
        return ""
    left = any(note.startswith(LEFT_OUT) for note in run.notes)
    return f"{OF_TABLE}{', '.join(missing)}.{SCORES if left else ''}"


def _line(place: Place, told: str, brings: Sequence[str]) -> Line:
    names = tuple(dict.fromkeys([*brings, *place.always])) if place.action else ()
    return Line(code=place.code.replace("{told}", told), when=place.when, brings=names)


def _places(run: Run) -> tuple[Place, ...]:
    return TRAINER if trainer_of(run) else LOOP
