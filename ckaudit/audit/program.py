"""The program that records: for a run that no recorder wrote, every line from the import to the end, in order."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import UNSET, Struct

from ckaudit.audit.applies import TABLES
from ckaudit.audit.remedies import Lack, is_trainers
from ckaudit.metrics.catalogue import actions, entries
from ckaudit.run.run import Run

OURS = "ckaudit "


class Place(NamedTuple):
    """A line of the program: the action that it is, when it comes, and what it brings whatever is missing."""

    code: str
    action: str = ""
    when: str = ""
    always: tuple[str, ...] = ()


LOOP = (
    Place("from ckaudit import Recorder"),
    Place('recorder = Recorder(model, "run/", optimizer=optimizer)', "recorder", "once, before the first step"),
    Place("loss.backward()"),
    Place("recorder.after_backward()", "after_backward", "in the loop, before clipping", ("grad_global_norm",)),
    Place("optimizer.step()"),
    Place("recorder.step(loss, batch=(inputs, targets))", "step", "in the loop", ("train_loss_raw",)),
    Place("recorder.log_after(val_loss=...)", "evaluate", "after each evaluation", ("val_loss",)),
    Place("recorder.close()", when="after the last step: the last checkpoint"),
)
TRAINER = (
    Place("from ckaudit.recorder.huggingface import RecorderCallback"),
    Place('trainer = Trainer(..., callbacks=[RecorderCallback("run/")])', "recorder", "beside what stands there already"),
)
GIVEN = ("optimizer", "batch")  # options that stand in the lines of LOOP
WRITER = (
    'From JAX and any other framework, ckaudit.Writer("run/") takes NumPy arrays: writer.step(step, loss=loss, batch=batch) '
    "at every step, writer.checkpoint(step, weights=..., gradients=...) where writer.is_due(step), and writer.close()."
)


class Line(Struct, frozen=True, kw_only=True):
    """One line of the program.

    Attributes:
        code: The line, to be copied as it stands.
        when: When it comes; empty: it is no line of the recorder.
        brings: What it records, what is missing and what most rules and causes wait for first.
    """

    code: str
    when: str
    brings: tuple[str, ...]


class Program(Struct, frozen=True, kw_only=True):
    """What to write where nothing records yet.

    Attributes:
        lines: In the order of the program.
        besides: Another way, in words; empty: there is none to tell.
    """

    lines: tuple[Line, ...]
    besides: str


def program(run: Run, lacks: Iterable[Lack]) -> Program | None:
    """Return the lines that record what is missing, or None where a recorder wrote the run already."""
    source = run.manifest.source if run.manifest and run.manifest.source is not UNSET else ""
    if source.startswith(OURS):
        return None
    trainer, ordered = is_trainers(run), sorted(lacks, key=lambda lack: -len(lack.readers))
    brought: dict[str, list[str]] = {}
    for lack in ordered:
        brought.setdefault(_place(lack, trainer=trainer), []).append(lack.name)
    shown = TRAINER if trainer else LOOP
    lines = [
        Line(code=each.code, when=each.when, brings=tuple(dict.fromkeys([*brought.get(each.action, ()), *each.always])))
        if each.action
        else Line(code=each.code, when=each.when, brings=())
        for each in shown
    ]
    return Program(lines=tuple(lines), besides=WRITER if source.startswith(TABLES) else "")


def _place(lack: Lack, *, trainer: bool) -> str:
    """Return the action of the line that records a number as it stands in the program; empty: none does without an option."""
    entry = entries()[lack.by]
    given = {*actions()["recorder"].trainer_gives, *actions()["step"].trainer_gives} if trainer else GIVEN
    if any(option.partition("=")[0] not in given for option in entry.options):
        return ""
    return "recorder" if trainer and actions()[entry.action].like == "recorder" else entry.action
