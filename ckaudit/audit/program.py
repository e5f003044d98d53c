"""The program that records: for a run that no recorder wrote, every line from the import to the end, in order."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import UNSET, Struct

from ckaudit.audit.applies import TABLES, is_trainers
from ckaudit.audit.lacking import Lack
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
    Place('recorder = Recorder(model, "run/", optimizer=optimizer)', "recorder", "once, before the first step"),
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
WRITER = (
    'From JAX and any other framework, ckaudit.Writer("run/") takes NumPy arrays: writer.step(step, loss=loss, batch=batch) '
    "at every step, writer.checkpoint(step, weights=..., gradients=...) where writer.is_due(step), and writer.close()."
)


def is_recorded(run: Run) -> bool:
    """Return whether a recorder of ours wrote the run."""
    return _source(run).startswith(OURS)


def place_of(run: Run, lack: Lack) -> str:
    """Return the action of the line that records a number as it stands in the program; empty: none of them does."""
    trainer, entry = is_trainers(run), entries()[lack.by]
    given = {*actions()["recorder"].trainer_gives, *actions()["step"].trainer_gives} if trainer else GIVEN
    if any(option.partition("=")[0] not in given for option in entry.options):
        return ""
    action = "recorder" if trainer and actions()[entry.action].like == "recorder" else entry.action
    return action if any(action == each.action for each in _places(run)) else ""


def program(run: Run, lacks: Iterable[Lack]) -> tuple[Line, ...]:
    """Return the lines that record what has a place among them, each with what it brings."""
    brought: dict[str, list[str]] = {}
    for lack in sorted(lacks, key=lambda each: -len(each.readers)):
        brought.setdefault(place_of(run, lack), []).append(lack.name)
    return tuple(_line(each, brought.get(each.action, ())) for each in _places(run))


def besides(run: Run) -> str:
    """Return another way than the program, in words; empty: there is none to tell."""
    return WRITER if _source(run).startswith(TABLES) else ""


def _line(place: Place, brings: Sequence[str]) -> Line:
    names = tuple(dict.fromkeys([*brings, *place.always])) if place.action else ()
    return Line(code=place.code, when=place.when, brings=names)


def _places(run: Run) -> tuple[Place, ...]:
    return TRAINER if is_trainers(run) else LOOP


def _source(run: Run) -> str:
    return run.manifest.source if run.manifest and run.manifest.source is not UNSET else ""
