"""What to do about what a run did not record: one line for many numbers."""

import re
from collections.abc import Iterable, Sequence
from shlex import quote
from typing import NamedTuple

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ckaudit.audit.coverage.arguments import ARGUMENTS, explained, given
from ckaudit.audit.coverage.instrumentation import GIVEN, Line, besides, filled_in, is_recorded, place_of, program
from ckaudit.audit.coverage.missing_inputs import Lack, made_of_entries
from ckaudit.audit.coverage.unrecorded import WRITER
from ckaudit.audit.coverage.writer import source_of, trainer_of
from ckaudit.audit.query_and_key import query_and_key
from ckaudit.metrics.catalogue import Action, Trainer, actions, entries, owner_of
from ckaudit.run.run import Run

USUAL = ("*.q_proj.weight", "*.k_proj.weight")

INTO = " --into run/"

INTO_LATER = "With --into run/ it is added to a run folder, a finished one too."

BY_ITSELF = (
    "Nothing to write: record again. An older Recorder wrote this run; the present one measures these by itself, in runs of 25 "
    "steps or more, where the model has what they are of."
)

BY_WRITER = (
    "A Writer records what it is given: writer.checkpoint(step, weights=..., gradients=..., previous=..., activations=..., "
    "attention=...); the Recorder for PyTorch measures these by itself."
)

CALLBACK = "callback is the RecorderCallback."

STEP = 500  # where no step is known

IN_ORDER = (
    "Nothing of ckaudit records yet: these lines do, in this order. Checks of attention, an accelerator or several ranks judge "
    "where the run has them."
)

ARGUMENT = "metric_for_best_model"


class Extra(Struct, frozen=True, kw_only=True):
    """What a line records with more than it shows.

    Attributes:
        what: An option, or a column of a file.
        names: What it records.
    """

    what: str
    names: tuple[str, ...]


class Remedy(Struct, frozen=True, kw_only=True):
    """What records several of the missing numbers.

    Attributes:
        lines: What to write or to run; none where the recorder needs none.
        where: Where it goes, or what it is.
        names: What it records, what most rules and causes wait for first, then the most needed.
        extras: What of these takes more than the lines as they stand.
        besides: Another way, in words; empty: there is none to tell.
        waiting: Rules that can judge with these lines and could not without, unless remedies before this one let them.
        readers: Rules and causes that would read any of them.
    """

    lines: tuple[Line, ...]
    where: str
    names: tuple[str, ...]
    extras: tuple[Extra, ...] = ()
    besides: str = ""
    waiting: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The lines as they are copied."""
        return "\n".join(line.code for line in self.lines)


class Situation(NamedTuple):
    """Whose lines are to change: a trainer's, whether there is a recorder to add to, its options, what checks wait for."""

    trainer: Trainer = ""
    known: bool = False
    given: frozenset[str] = frozenset()
    needs: tuple[tuple[str, ...], ...] = ()


class Target(NamedTuple):
    """Where a line goes: its text with a hole for options, where that is, and what stands before each option."""

    text: str
    where: str
    between: str
    plain: bool


def remedies(
    run: Run, lacks: Iterable[Lack], *, needs: Iterable[Sequence[str]] = (), in_folder: bool = True
) -> tuple[Remedy, ...]:
    """Return the lines that record what is missing.

    They are ordered by how many rules and causes would read what they bring, by the most needed number, and by what the line
    costs; what needs no line is last among equals. Whom they let judge is not told yet.

    Args:
        run: The run.
        lacks: What is missing of it.
        needs: What checks wait for, one or the other of each: a command is shown with options that it takes.
        in_folder: Whether it is a run folder, that a command can add to.
    """
    recorded = is_recorded(run)
    known = given(run, _all_options()) if recorded else frozenset(GIVEN)
    now = Situation(trainer_of(run), known=True, given=known, needs=tuple(map(tuple, needs)))
    urgent = sorted(lacks, key=lambda lack: lack.urgency)
    placed = [lack for lack in urgent if not recorded and place_of(run, lack)]
    made = [(_remedy(run, found, now), found) for found in _grouped([lack for lack in urgent if lack not in placed], now)]
    if placed:
        made.append((_program(run, placed), placed))
    ranked = sorted(made, key=lambda pair: _order(*pair))
    return tuple(_into(run, remedy) if in_folder else _elsewhere(remedy) for remedy, _ in ranked)


def lines_for(name: str) -> tuple[str, ...]:
    """Return the lines that record one entry of the catalogue, whoever trains: its own, or those of what it is made of."""
    alone = [[Lack(name=each, level="must", readers=(), by=each)] for each in made_of_entries(name) or (name,)]
    return tuple(dict.fromkeys(_remedy(Run(""), lacks, Situation()).code for lacks in alone))


def attention_weights(run: Run) -> str:
    """Return glob patterns of the run's own query and key matrices, as the text of a tuple; common ones where it names none."""
    patterns = query_and_key(run) or USUAL
    return "(" + ", ".join(f'"{pattern}"' for pattern in patterns) + ("," if len(patterns) == 1 else "") + ")"


def _grouped(lacks: Sequence[Lack], now: Situation) -> Iterable[list[Lack]]:
    """Return what is missing by its line; arguments that a check waits for stand apart from those that none does."""
    waited: dict[str, set[str]] = {}
    for lack in lacks:
        if lack.waiting:
            waited.setdefault(_target(lack.by, now).text, set()).update(_options(lack.by, now))
    groups: dict[tuple[str, bool, bool], list[Lack]] = {}
    for lack in lacks:
        target, options = _target(lack.by, now), _options(lack.by, now)
        serves = target.between == " " or not waited.get(target.text, set()).isdisjoint(options)
        groups.setdefault((target.text, target.plain, serves), []).append(lack)
    return groups.values()


def _program(run: Run, lacks: Sequence[Lack]) -> Remedy:
    return Remedy(
        lines=program(run, lacks),
        where=" ".join(filter(None, [IN_ORDER, filled_in(run)])),
        besides=besides(run),
        names=_names(lacks),
        readers=_joined(lack.readers for lack in lacks),
    )


def _remedy(run: Run, lacks: Sequence[Lack], now: Situation) -> Remedy:
    """Return the remedy for numbers of one target."""
    target = _target(lacks[0].by, now)
    shown, extras = _split(lacks, now) if target.between == " " and now.known else (lacks, ())
    options = dict.fromkeys(option for lack in shown for option in _options(lack.by, now))
    line = target.text.replace("{options}", "".join(target.between + option for option in options)).replace("(, ", "(")
    by_itself = now.known and target.plain and _action(lacks[0].by, now) is actions()["recorder"]
    alone = BY_WRITER if source_of(run).startswith(WRITER) else BY_ITSELF
    line = line.replace("{attention_weights}", attention_weights(run)).replace("{step}", str(run.last_step or STEP))
    line = line.replace("{best}", with_sets(run))
    said = [explained(options) if now.known else "", CALLBACK if "callback." in line else ""]
    return Remedy(
        lines=() if by_itself else (Line(code=line),),
        where=alone if by_itself else " ".join(filter(None, [target.where, *said])),
        names=_names(lacks),
        extras=extras,
        readers=_joined(lack.readers for lack in lacks),
    )


def _split(lacks: Sequence[Lack], now: Situation) -> tuple[Sequence[Lack], tuple[Extra, ...]]:
    """Part what a command must be run for from what it gives besides, where it is told more or the file holds more."""
    shown = [lack for lack in lacks if lack.level == "must"] or [*lacks]
    shown += _waited_for(lacks, shown, now)
    there = {option for lack in shown for option in _options(lack.by, now)}
    more: dict[str, list[str]] = {}
    for lack in lacks:
        columns = entries()[lack.name].columns
        options = [f"with {option}" for option in _options(lack.by, now) if option not in there]
        if takes := ", ".join([*([f"from a column {columns}"] if columns else []), *options]):
            more.setdefault(takes, []).append(lack.name)
    return shown, tuple(Extra(what=what, names=tuple(names)) for what, names in more.items())


def _waited_for(lacks: Sequence[Lack], shown: Sequence[Lack], now: Situation) -> list[Lack]:
    """Return what a command must be run for besides, so that each check that waits has one of the numbers that would do."""
    there = {option for lack in shown for option in _options(lack.by, now)}
    by_name = {lack.name: lack for lack in lacks if not entries()[lack.name].columns}
    more: list[Lack] = []
    for alternatives in now.needs:
        would_do = [by_name[owner] for name in alternatives if (owner := owner_of(name)) in by_name]
        if would_do and not any(there.issuperset(_options(lack.by, now)) for lack in would_do):
            more.append(min(would_do, key=lambda lack: len(_options(lack.by, now))))
            there.update(_options(more[-1].by, now))
    return more


def _into(run: Run, remedy: Remedy) -> Remedy:
    """Return the remedy with the run's own folder where a command adds to it."""
    lines = tuple(replace(line, code=line.code.replace(INTO, f" --into {quote(run.name)}")) for line in remedy.lines)
    return replace(remedy, lines=lines)


def _elsewhere(remedy: Remedy) -> Remedy:
    """Return the remedy for a run that is no folder: there is nothing yet that its numbers could be added to."""
    if INTO not in remedy.code:
        return remedy
    lines = tuple(replace(line, code=line.code.partition(INTO)[0]) for line in remedy.lines)
    return replace(remedy, lines=lines, where=f"{remedy.where} {INTO_LATER}")


def _target(name: str, now: Situation) -> Target:
    action, options = _action(name, now), bool(_options(name, now))
    way = action.way(now.trainer)
    text = way.more if now.known and way.more and options else way.call
    return Target(text, way.where, action.between, action.alone and not options)


def _action(name: str, now: Situation) -> Action:
    own = actions()[_own(name, now)[0]]
    return actions()[own.like] if now.trainer and own.like else own


def _options(name: str, now: Situation) -> list[str]:
    way = _action(name, now).way(now.trainer)
    if name in ARGUMENTS:
        return [way.spells.get(ARGUMENTS[name].option, ARGUMENTS[name].option)]
    there = {*now.given, *way.gives}
    return [way.spells.get(option, option) for option in _own(name, now)[1] if option.partition("=")[0] not in there]


def _own(name: str, now: Situation) -> tuple[str, Sequence[str]]:
    """Return the action of a number's own line and its options; the Recorder's, where only an argument of it is missing."""
    if name in ARGUMENTS:
        return ARGUMENTS[name].action, [ARGUMENTS[name].option]
    entry = entries()[name]
    arguments = [ARGUMENTS[argument].option for argument in entry.arguments if argument not in now.given]
    if now.known and arguments and {option.partition("=")[0] for option in entry.options} <= now.given:
        return "recorder", arguments
    return entry.action, entry.options


def _names(lacks: Iterable[Lack]) -> tuple[str, ...]:
    """Return the entries among what is missing."""
    return tuple(lack.name for lack in lacks if lack.name in entries())


def _all_options() -> list[str]:
    """Return every option of a line that a run may show to have had."""
    return [*(option for entry in entries().values() for option in entry.options), *ARGUMENTS]


def _joined(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for each in names for name in each))


def _order(remedy: Remedy, lacks: Sequence[Lack]) -> tuple[int, int, bool, int]:
    level = min(lack.urgency[-1] for lack in lacks)
    return -len(remedy.readers), level, not remedy.lines, _cost(lacks)


def _cost(lacks: Iterable[Lack]) -> int:
    """Return the place of the dearest action: a line of the loop, a second program, a second implementation."""
    order = list(actions())
    return max(order.index(_own(lack.by, Situation())[0]) for lack in lacks)


# The metric by which the Hugging Face Trainer picks its best model: it gets another name where there are several sets.
def best_metric(run: Run) -> str:
    """Return the name as evaluations log it, such as "eval_wer"; empty: no best model is picked, or nobody says by what."""
    config = run.manifest.config if run.manifest and run.manifest.config is not UNSET else {}
    name = config.get(ARGUMENT)
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name) or name == "None":
        return ""
    return f"eval_{name.removeprefix('eval_')}"


def with_sets(run: Run) -> str:
    """Return the argument of the Trainer that names the metric among several sets, of which one is called all; or nothing."""
    name = best_metric(run)
    if not name:
        return ""
    of_all = name if name.startswith("eval_all_") else f"eval_all_{name.removeprefix('eval_')}"
    return f', args=TrainingArguments(..., {ARGUMENT}="{of_all}")'
