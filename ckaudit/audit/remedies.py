"""What to do about what a run did not record: one line for many numbers, the one that most checks wait for first."""

from collections.abc import Iterable, Sequence

from msgspec import UNSET, Struct

from ckaudit.audit.query_and_key import query_and_key
from ckaudit.metrics.catalogue import RANKS, Action, Importance, actions, entries
from ckaudit.run.run import Run

TRAINER = "Hugging Face"
TRAINER_ARGUMENT = "per_device_train_batch_size"  # only the Trainer's arguments have it
USUAL = ("*.q_proj.weight", "*.k_proj.weight")
INTO = " --into run/"
INTO_LATER = "With --into run/ it is added to a run folder, a finished one too."


class Lack(Struct, frozen=True, kw_only=True):
    """One number that is missing.

    Attributes:
        name: The entry of the catalogue.
        level: How much the run needs it.
        readers: Codes of rules and names of causes that wait for it.
        by: The entry whose line records it: itself, or what it is made of.
    """

    name: str
    level: Importance
    readers: tuple[str, ...]
    by: str


class Remedy(Struct, frozen=True, kw_only=True):
    """One line that records several of the missing numbers.

    Attributes:
        line: What to write or to run.
        where: Where it goes.
        names: What it records, what most rules and causes wait for first, then the most needed.
        readers: Rules and causes that wait for any of them.
    """

    line: str
    where: str
    names: tuple[str, ...]
    readers: tuple[str, ...]


def remedies(run: Run, lacks: Iterable[Lack], *, in_folder: bool = True) -> tuple[Remedy, ...]:
    """Return the lines that record what is missing.

    They are ordered by how many rules and causes wait, then by the most needed number, then by what the line costs.

    Args:
        run: The run.
        lacks: What is missing of it.
        in_folder: Whether it is a run folder, that a command can add to.
    """
    trainer = is_trainers(run)
    groups: dict[tuple[str, bool], list[Lack]] = {}
    for lack in lacks:
        text, *_, alone = _target(entries()[lack.by].action, trainer=trainer)
        groups.setdefault((text, alone and not _options(lack.by, trainer=trainer)), []).append(lack)
    made = [(_remedy(run, text, sorted(found, key=_need), trainer=trainer), found) for (text, _), found in groups.items()]
    ranked = sorted(made, key=lambda pair: (-len(pair[0].readers), min(map(_rank, pair[1])), _cost(pair[1])))
    return tuple(remedy if in_folder else _elsewhere(remedy) for remedy, _ in ranked)


def lines_for(name: str) -> tuple[str, ...]:
    """Return the lines that record one entry of the catalogue, whoever trains: its own, or those of what it is made of."""
    inputs = made_of_entries(name) or (name,)
    return tuple(dict.fromkeys(remedies(Run(""), [_alone(each)])[0].line for each in inputs))


def made_of_entries(name: str) -> tuple[str, ...]:
    """Return the entries that one is made of, down to those that are recorded themselves; empty: it is one of these.

    >>> made_of_entries("train_val_gap"), made_of_entries("val_loss")
    (('val_loss', 'train_loss_raw'), ())
    """
    found = (each for need in entries()[name].needs for each in (made_of_entries(need) or (need,)))
    return tuple(dict.fromkeys(found))


def is_trainers(run: Run) -> bool:
    """Return whether the run is one of the Hugging Face Trainer, whose users call no recorder themselves."""
    facts = run.manifest
    source = facts.source if facts and facts.source is not UNSET else ""
    config = facts.config if facts and facts.config is not UNSET else {}
    return source.startswith(TRAINER) or TRAINER_ARGUMENT in config


def attention_weights(run: Run) -> str:
    """Return glob patterns of the run's own query and key matrices, as the text of a tuple; common ones where it names none."""
    patterns = query_and_key(run) or USUAL
    return "(" + ", ".join(f'"{pattern}"' for pattern in patterns) + ("," if len(patterns) == 1 else "") + ")"


def _alone(name: str) -> Lack:
    return Lack(name=name, level="must", readers=(), by=name)


def _remedy(run: Run, text: str, lacks: Sequence[Lack], *, trainer: bool) -> Remedy:
    options = dict.fromkeys(option for lack in lacks for option in _options(lack.by, trainer=trainer))
    _, where, between, _ = _target(entries()[lacks[0].by].action, trainer=trainer)
    line = text.replace("{options}", "".join(between + option for option in options)).replace("(, ", "(")
    columns = [f"{entries()[lack.name].columns} for {lack.name}" for lack in lacks if entries()[lack.name].columns]
    return Remedy(
        line=line.replace("{attention_weights}", attention_weights(run)),
        where=f"{where} It needs the columns {', '.join(columns)}." if columns else where,
        names=tuple(lack.name for lack in lacks),
        readers=tuple(dict.fromkeys(reader for lack in lacks for reader in lack.readers)),
    )


def _elsewhere(remedy: Remedy) -> Remedy:
    """Return the line for a run that is no folder: there is nothing yet that its numbers could be added to."""
    if INTO not in remedy.line:
        return remedy
    line, _, _ = remedy.line.partition(INTO)
    return Remedy(line=line, where=f"{remedy.where} {INTO_LATER}", names=remedy.names, readers=remedy.readers)


def _target(action: str, *, trainer: bool) -> tuple[str, str, str, bool]:
    """Return the line of an action with a hole for options, where it goes, what stands before an option, and `alone`."""
    own = _of_trainer(action) if trainer else actions()[action]
    if trainer and own.trainer:
        return own.trainer, own.trainer_where, own.between, own.alone
    return own.call, own.where, own.between, own.alone


def _of_trainer(action: str) -> Action:
    own = actions()[action]
    return actions()[own.like] if own.like else own


def _options(name: str, *, trainer: bool) -> list[str]:
    entry = entries()[name]
    given = {*actions()[entry.action].trainer_gives, *_of_trainer(entry.action).trainer_gives} if trainer else set()
    return [option for option in entry.options if option.partition("=")[0] not in given]


def _cost(lacks: Iterable[Lack]) -> int:
    """Return the place of the dearest action: a line of the loop, a second program, a second implementation."""
    order = list(actions())
    return max(order.index(entries()[lack.by].action) for lack in lacks)


def _rank(lack: Lack) -> int:
    return RANKS.index(lack.level)


def _need(lack: Lack) -> tuple[int, int]:
    return -len(lack.readers), _rank(lack)
