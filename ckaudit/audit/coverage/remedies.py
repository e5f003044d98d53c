"""Remedies for what a run did not record: one line for many numbers, or a whole program if no recorder wrote the run."""

import re
from collections.abc import Iterable, Sequence
from shlex import quote
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.audit.coverage.applicability import (
    ARGUMENTS,
    TABLES,
    WRITER,
    base_entries,
    options_explained,
    options_in_use,
    query_and_key,
    source_of,
    trainer_of,
    why_not_applicable,
)
from ckaudit.audit.coverage.table import Extra, Line, MissingInput, Remedy
from ckaudit.metrics.catalogue import Action, Trainer, actions, entries, owner_of
from ckaudit.run.run import Run

USUAL = ("*.q_proj.weight", "*.k_proj.weight")
INTO = " --into run/"
INTO_LATER = "With --into run/ it is added to a run folder, a finished one too."
RECORD_AGAIN = (
    "Nothing to write: record again. An older Recorder wrote this run; the present one measures these by itself, in runs of 25 "
    "steps or more, where the model has what they are of."
)
BY_WRITER = (
    "A Writer records what it is given: writer.checkpoint(step, weights=..., gradients=..., previous=..., activations=..., "
    "attention=...); the Recorder for PyTorch measures these by itself."
)
CALLBACK = "callback is the RecorderCallback."
STEP = 500  # used if no step is known
LINES_IN_ORDER = (
    "Nothing of ckaudit records yet: these lines do, in this order. Checks of attention, an accelerator or several ranks judge "
    "where the run has them."
)
ARGUMENT = "metric_for_best_model"


class Situation(NamedTuple):
    """What the lines must fit: the trainer, an existing recorder, its options, and what checks need."""

    trainer: Trainer = ""
    has_recorder: bool = False
    given: frozenset[str] = frozenset()
    needs: tuple[tuple[str, ...], ...] = ()


class InsertionPoint(NamedTuple):
    """The place for a line: its text with a placeholder for options, its place, and the separator before each option."""

    text: str
    where: str
    between: str
    plain: bool


MADE_WITH_IT = "weight_std"
"""An entry that the recorder records by itself."""


def remedies(
    run: Run, lacks: Iterable[MissingInput], *, needs: Iterable[Sequence[str]] = (), in_folder: bool = True
) -> tuple[Remedy, ...]:
    """Return the lines that record what is missing.

    They are ordered by the number of rules and causes that would read their numbers, by the most needed number, and by the cost
    of the line; remedies without a line are last among equals. The checks that they enable are not filled in yet.

    Args:
        run: The run.
        lacks: What the run lacks.
        needs: Alternatives for each input that checks need: a command is shown with the options for it.
        in_folder: Whether it is a run folder to which a command can add.
    """
    recorded = is_recorded(run)
    options = [*(option for entry in entries().values() for option in entry.options), *ARGUMENTS]
    known = options_in_use(run, options) if recorded else frozenset(LOOP_ARGUMENTS)
    now = Situation(trainer_of(run), has_recorder=True, given=known, needs=tuple(map(tuple, needs)))
    urgent = sorted(lacks, key=lambda lack: lack.urgency)
    placed = [lack for lack in urgent if not recorded and place_of(run, lack)]
    groups = _grouped([lack for lack in urgent if lack not in placed], now)
    pairs = [(_remedy(run, group, now), group) for group in groups]
    if placed:
        loop = Remedy(
            lines=program(run, placed),
            where=" ".join(filter(None, [LINES_IN_ORDER, arguments_explained(run)])),
            besides=alternative_to_program(run),
            names=_names(placed),
            readers=_joined(lack.readers for lack in placed),
        )
        pairs.append((loop, placed))
    ranked = sorted(pairs, key=lambda pair: _order(*pair))
    return tuple(_with_run_folder(run, remedy) if in_folder else _without_run_folder(remedy) for remedy, _ in ranked)


def lines_for(name: str, trainer: Trainer = "") -> tuple[str, ...]:
    """Return the lines that record one entry, in a trainer's form: its own, or those of the entries it is computed from."""
    lacks = [MissingInput(name=entry, level="must", readers=(), by=entry) for entry in base_entries(name) or (name,)]
    return tuple(dict.fromkeys(_remedy(Run(""), [lack], Situation(trainer)).code for lack in lacks))


def lines_for_run(run: Run, name: str) -> tuple[str, ...]:
    """Return the lines that record one entry with the tool that wrote the run; without a recorder they create one first."""
    trainer, source = trainer_of(run), source_of(run)
    lines = lines_for(name, trainer)
    if not source or source.startswith("ckaudit") or not any(line.startswith(("recorder.", "callback.")) for line in lines):
        return lines
    return tuple(dict.fromkeys((*lines_for(MADE_WITH_IT, trainer), *lines)))


def attention_weights(run: Run) -> str:
    """Return glob patterns of the run's query and key matrices, as the text of a tuple; common ones if its names show none."""
    patterns = query_and_key(run) or USUAL
    return "(" + ", ".join(f'"{pattern}"' for pattern in patterns) + ("," if len(patterns) == 1 else "") + ")"


def _grouped(lacks: Sequence[MissingInput], now: Situation) -> Iterable[list[MissingInput]]:
    """Return what is missing, grouped by line; arguments that a check needs are separate from those that none needs."""
    waited: dict[str, set[str]] = {}
    for lack in lacks:
        if lack.waiting:
            waited.setdefault(_target(lack.by, now).text, set()).update(_options(lack.by, now))
    groups: dict[tuple[str, bool, bool], list[MissingInput]] = {}
    for lack in lacks:
        target, options = _target(lack.by, now), _options(lack.by, now)
        serves = target.between == " " or not waited.get(target.text, set()).isdisjoint(options)
        groups.setdefault((target.text, target.plain, serves), []).append(lack)
    return groups.values()


def _remedy(run: Run, lacks: Sequence[MissingInput], now: Situation) -> Remedy:
    """Return the remedy for missing numbers with the same line."""
    target = _target(lacks[0].by, now)
    shown, extras = _split(lacks, now) if target.between == " " and now.has_recorder else (lacks, ())
    options = dict.fromkeys(option for lack in shown for option in _options(lack.by, now))
    line = target.text.replace("{options}", "".join(target.between + option for option in options)).replace("(, ", "(")
    by_itself = now.has_recorder and target.plain and _action(lacks[0].by, now) is actions()["recorder"]
    alone = BY_WRITER if source_of(run).startswith(WRITER) else RECORD_AGAIN
    line = line.replace("{attention_weights}", attention_weights(run)).replace("{step}", str(run.last_step or STEP))
    line = line.replace("{best}", metric_set_argument(run))
    remarks = [options_explained(options) if now.has_recorder else "", CALLBACK if "callback." in line else ""]
    return Remedy(
        lines=() if by_itself else (Line(code=line),),
        where=alone if by_itself else " ".join(filter(None, [target.where, *remarks])),
        names=_names(lacks),
        extras=extras,
        readers=_joined(lack.readers for lack in lacks),
    )


def _split(lacks: Sequence[MissingInput], now: Situation) -> tuple[Sequence[MissingInput], tuple[Extra, ...]]:
    """Split what a command must be run for from what it can also record, with further options or a fuller file."""
    shown = [lack for lack in lacks if lack.level == "must"] or [*lacks]
    shown += _waited_for(lacks, shown, now)
    given_options = {option for lack in shown for option in _options(lack.by, now)}
    more: dict[str, list[str]] = {}
    for lack in lacks:
        columns = entries()[lack.name].columns
        options = [f"with {option}" for option in _options(lack.by, now) if option not in given_options]
        if takes := ", ".join([*([f"from a column {columns}"] if columns else []), *options]):
            more.setdefault(takes, []).append(lack.name)
    return shown, tuple(Extra(what=what, names=tuple(names)) for what, names in more.items())


def _waited_for(lacks: Sequence[MissingInput], shown: Sequence[MissingInput], now: Situation) -> list[MissingInput]:
    """Return the additional numbers that a command must record so that each check has one of its alternatives."""
    given_options = {option for lack in shown for option in _options(lack.by, now)}
    by_name = {lack.name: lack for lack in lacks if not entries()[lack.name].columns}
    more: list[MissingInput] = []
    for alternatives in now.needs:
        would_do = [by_name[owner] for name in alternatives if (owner := owner_of(name)) in by_name]
        if would_do and not any(given_options.issuperset(_options(lack.by, now)) for lack in would_do):
            more.append(min(would_do, key=lambda lack: len(_options(lack.by, now))))
            given_options.update(_options(more[-1].by, now))
    return more


def _with_run_folder(run: Run, remedy: Remedy) -> Remedy:
    """Return the remedy with the run's own folder if its command adds to it."""
    lines = tuple(replace(line, code=line.code.replace(INTO, f" --into {quote(run.name)}")) for line in remedy.lines)
    return replace(remedy, lines=lines)


def _without_run_folder(remedy: Remedy) -> Remedy:
    """Return the remedy for a run that is not a folder, so that nothing can be added to it yet."""
    if INTO not in remedy.code:
        return remedy
    lines = tuple(replace(line, code=line.code.partition(INTO)[0]) for line in remedy.lines)
    return replace(remedy, lines=lines, where=f"{remedy.where} {INTO_LATER}")


def _target(name: str, now: Situation) -> InsertionPoint:
    action, options = _action(name, now), bool(_options(name, now))
    way = action.way(now.trainer)
    text = way.more if now.has_recorder and way.more and options else way.call
    return InsertionPoint(text, way.where, action.between, action.alone and not options)


def _action(name: str, now: Situation) -> Action:
    action = actions()[_own_action(name, now)[0]]
    return actions()[action.like] if now.trainer and action.like else action


def _options(name: str, now: Situation) -> list[str]:
    way = _action(name, now).way(now.trainer)
    if name in ARGUMENTS:
        return [way.spells.get(ARGUMENTS[name].option, ARGUMENTS[name].option)]
    given_options = {*now.given, *way.gives}
    return [
        way.spells.get(option, option) for option in _own_action(name, now)[1] if option.partition("=")[0] not in given_options
    ]


def _own_action(name: str, now: Situation) -> tuple[str, Sequence[str]]:
    """Return the action of a number's own line and its options; the Recorder's action if only an argument is missing."""
    if name in ARGUMENTS:
        return ARGUMENTS[name].action, [ARGUMENTS[name].option]
    entry = entries()[name]
    arguments = [ARGUMENTS[argument].option for argument in entry.arguments if argument not in now.given]
    if now.has_recorder and arguments and {option.partition("=")[0] for option in entry.options} <= now.given:
        return "recorder", arguments
    return entry.action, entry.options


def _names(lacks: Iterable[MissingInput]) -> tuple[str, ...]:
    """Return the entries among what is missing."""
    return tuple(lack.name for lack in lacks if lack.name in entries())


def _joined(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for group in names for name in group))


def _order(remedy: Remedy, lacks: Sequence[MissingInput]) -> tuple[int, int, bool, int]:
    level = min(lack.urgency[-1] for lack in lacks)
    # From cheap to expensive: a line in the loop, a second program, a second implementation.
    order = list(actions())
    dearest = max(order.index(_own_action(lack.by, Situation())[0]) for lack in lacks)
    return -len(remedy.readers), level, not remedy.lines, dearest


# The metric by which the Hugging Face Trainer picks its best model; its name differs if there are several sets.
def best_metric(run: Run) -> str:
    """Return the name of the Trainer's best-model metric in the evaluation log, such as "eval_wer"; empty if there is none."""
    config = run.manifest.config if run.manifest and run.manifest.config is not UNSET else {}
    name = config.get(ARGUMENT)
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name) or name == "None":
        return ""
    return f"eval_{name.removeprefix('eval_')}"


def metric_set_argument(run: Run) -> str:
    """Return the Trainer argument that selects the metric of the set called "all" among several sets; or an empty string."""
    name = best_metric(run)
    if not name:
        return ""
    of_all = name if name.startswith("eval_all_") else f"eval_all_{name.removeprefix('eval_')}"
    return f', args=TrainingArguments(..., {ARGUMENT}="{of_all}")'


# The recording program for a run without a recorder: every line from the import to the end, in order.
WRITER_PREFIX = "ckaudit "


class ProgramLine(NamedTuple):
    """A line of the program: its action, when it comes, and what it always records."""

    code: str
    action: str = ""
    when: str = ""
    always: tuple[str, ...] = ()


LOOP = (
    ProgramLine("from ckaudit import Recorder"),
    ProgramLine('recorder = Recorder(model, "run/", optimizer=optimizer{options})', "recorder", "once, before the first step"),
    ProgramLine("loss.backward()  # yours"),
    ProgramLine("recorder.after_backward()", "after_backward", "in the loop, before clipping", ("grad_global_norm",)),
    ProgramLine("optimizer.step()  # yours"),
    ProgramLine("recorder.step(loss, batch=(inputs, targets))", "step", "in the loop", ("train_loss_raw",)),
    ProgramLine("recorder.log_after(val_loss=...)", "evaluate", "after each evaluation", ("val_loss",)),
    ProgramLine("recorder.close()", when="after the last step: the last checkpoint"),
)
TRAINER = (
    ProgramLine("from ckaudit.recorder.huggingface import RecorderCallback"),
    ProgramLine(
        'callback = RecorderCallback("run/")', "recorder", "it finds optimizer, loss scaler, clipping and plan by itself"
    ),
    ProgramLine("trainer = Trainer(..., callbacks=[callback])", when="beside what stands there already"),
)
LOOP_ARGUMENTS = ("optimizer", "batch")  # options that the lines of LOOP contain
USER_ARGUMENTS = (
    "vocabulary",
    "sequence_length",
    "warmup_steps",
    "planned_steps",
)  # options whose values only the author of the training knows
OTHER_FRAMEWORKS = (
    'From JAX and any other framework, ckaudit.Writer("run/") takes NumPy arrays: writer.step(step, loss=loss, batch=batch) '
    "at every step, writer.checkpoint(step, weights=..., gradients=...) where writer.is_due(step), and writer.close()."
)
COLUMNS = (  # table columns that enable most checks
    "train_loss_raw",
    "grad_global_norm",
    "learning_rate",
    "val_loss",
    "tokens_seen",
    "slice_val_loss/NAME",
    "error_event_rate/oom",
)
LEFT_OUT = "left out, because no common name"  # beginnings of the notes of table importers
SCORES = " A score among the columns left out is read by --map as well, as in --map microbench_score/hellaswag=COLUMN."
OF_TABLE = "Columns of the table by these names, or named with --map NAME=COLUMN, let judge a part of that as well: "


def is_recorded(run: Run) -> bool:
    """Return whether ckaudit's recorder wrote the run."""
    return source_of(run).startswith(WRITER_PREFIX)


def place_of(run: Run, lack: MissingInput) -> str:
    """Return the action of the program line that records a number; empty if none does."""
    trainer = trainer_of(run)
    gives = {*actions()["recorder"].way(trainer).gives} if trainer else {*LOOP_ARGUMENTS, *arguments_to_fill_in(run)}
    if lack.by in ARGUMENTS:
        action, names = ARGUMENTS[lack.by].action, [lack.by]
    else:
        entry = entries()[lack.by]
        action, names = entry.action, [*(option.partition("=")[0] for option in entry.options), *entry.arguments]
    if not {*names} <= gives:
        return ""
    action = "recorder" if trainer and actions()[action].like == "recorder" else action
    return action if any(action == place.action for place in _places(run)) else ""


def arguments_to_fill_in(run: Run) -> tuple[str, ...]:
    """Return the arguments of the program that the user has to fill in; the Trainer's callback finds them itself."""
    return (
        ()
        if trainer_of(run)
        else tuple(name for name in USER_ARGUMENTS if not why_not_applicable(run, ARGUMENTS[name].only_with))
    )


def arguments_explained(run: Run) -> str:
    """Return an explanation of the arguments to fill in as a sentence; empty if there are none."""
    return options_explained(ARGUMENTS[name].option for name in arguments_to_fill_in(run))


def program(run: Run, lacks: Iterable[MissingInput]) -> tuple[Line, ...]:
    """Return the program lines for missing numbers that have a place in it, each with what it records."""
    brought: dict[str, list[str]] = {}
    for lack in sorted(lacks, key=lambda lack: -len(lack.readers)):
        if lack.name in entries():
            brought.setdefault(place_of(run, lack), []).append(lack.name)
    options = "".join(f", {ARGUMENTS[name].option}" for name in arguments_to_fill_in(run))
    return tuple(_line_of_program(place, options, brought.get(place.action, ())) for place in _places(run))


def alternative_to_program(run: Run) -> str:
    """Return an alternative to the program, in words; empty if there is none."""
    if source_of(run).startswith(TABLES):
        return OTHER_FRAMEWORKS
    missing = [name for name in COLUMNS if not run.scalar(name.partition("/")[0])]
    if source_of(run) != "CSV" or not missing:
        return ""
    left = any(note.startswith(LEFT_OUT) for note in run.notes)
    return f"{OF_TABLE}{', '.join(missing)}.{SCORES if left else ''}"


def _line_of_program(place: ProgramLine, options: str, brings: Sequence[str]) -> Line:
    names = tuple(dict.fromkeys([*brings, *place.always])) if place.action else ()
    return Line(code=place.code.replace("{options}", options), when=place.when, brings=names)


def _places(run: Run) -> tuple[ProgramLine, ...]:
    return TRAINER if trainer_of(run) else LOOP
