"""What to do about what a run did not record: one line for many numbers, the one that tells most first."""

import re
from collections.abc import Iterable, Sequence

from msgspec import UNSET, Struct

from ckaudit.metrics.catalogue import RANKS, Action, Importance, actions, entries
from ckaudit.run.run import Run

TRAINER = "Hugging Face"
TRAINER_ARGUMENT = "per_device_train_batch_size"  # only the Trainer's arguments have it
USUAL = ("*.q_proj.weight", "*.k_proj.weight")
PLAIN = re.compile(r"[\w.]+", re.ASCII)
QUERY_OR_KEY = re.compile(r"q|k|qk|qkv|kv|c_attn|q_proj|k_proj|qkv_proj|query|key|query_key_value|in_proj_weight|wq|wk|wqkv")


class Lack(Struct, frozen=True, kw_only=True):
    """One number that is missing.

    Attributes:
        name: The entry of the catalogue.
        level: How much the run needs it.
        readers: Codes of rules and names of causes that wait for it.
    """

    name: str
    level: Importance
    readers: tuple[str, ...]


class Remedy(Struct, frozen=True, kw_only=True):
    """One line that records several of the missing numbers.

    Attributes:
        line: What to write or to run.
        where: Where it goes.
        names: What it records, the most needed first, then what most rules and causes wait for.
        readers: Rules and causes that wait for any of them.
    """

    line: str
    where: str
    names: tuple[str, ...]
    readers: tuple[str, ...]


def remedies(run: Run, lacks: Iterable[Lack]) -> tuple[Remedy, ...]:
    """Return the lines that record what is missing, by the most needed number and then by the rules and causes that wait."""
    trainer = is_trainers(run)
    groups: dict[str, list[Lack]] = {}
    for lack in lacks:
        groups.setdefault(_target(entries()[lack.name].action, trainer=trainer)[0], []).append(lack)
    ranked = sorted(groups.items(), key=lambda group: (min(map(_rank, group[1])), -len(_readers(group[1]))))
    return tuple(_remedy(run, text, sorted(found, key=_need), trainer=trainer) for text, found in ranked)


def line_for(name: str) -> str:
    """Return the line that records one entry of the catalogue, whoever trains."""
    (only,) = remedies(Run(""), [Lack(name=name, level="must", readers=())])
    return only.line


def is_trainers(run: Run) -> bool:
    """Return whether the run is one of the Hugging Face Trainer, whose users call no recorder themselves."""
    facts = run.manifest
    source = facts.source if facts and facts.source is not UNSET else ""
    config = facts.config if facts and facts.config is not UNSET else {}
    return source.startswith(TRAINER) or TRAINER_ARGUMENT in config


def attention_weights(run: Run) -> str:
    """Return glob patterns of the run's own query and key matrices, as the text of a tuple; common ones where it names none."""
    found: dict[str, None] = {}
    for name, fact in run.tensors.facts.items():
        parts = name.split(".")
        last = max((place for place, part in enumerate(parts) if part.isdecimal()), default=-1)
        matrix = fact.shape is UNSET or len(fact.shape) > 1
        # Only a plain name can be copied into a program.
        if last >= 0 and matrix and PLAIN.fullmatch(name) and any(QUERY_OR_KEY.fullmatch(part) for part in parts[last + 1 :]):
            found["*." + ".".join(parts[last + 1 :])] = None
    patterns = tuple(found) or USUAL
    return "(" + ", ".join(f'"{pattern}"' for pattern in patterns) + ("," if len(patterns) == 1 else "") + ")"


def _remedy(run: Run, text: str, lacks: Sequence[Lack], *, trainer: bool) -> Remedy:
    options = dict.fromkeys(option for lack in lacks for option in _options(lack.name, trainer=trainer))
    _, where, between = _target(entries()[lacks[0].name].action, trainer=trainer)
    line = text.replace("{options}", "".join(between + option for option in options)).replace("(, ", "(")
    return Remedy(
        line=line.replace("{attention_weights}", attention_weights(run)),
        where=where,
        names=tuple(lack.name for lack in lacks),
        readers=_readers(lacks),
    )


def _target(action: str, *, trainer: bool) -> tuple[str, str, str]:
    """Return the line of an action with a hole for options, where it goes, and what stands before each option."""
    own = _of_trainer(action) if trainer else actions()[action]
    if trainer and own.trainer:
        return own.trainer, own.trainer_where, own.between
    return own.call, own.where, own.between


def _of_trainer(action: str) -> Action:
    own = actions()[action]
    return actions()[own.like] if own.like else own


def _options(name: str, *, trainer: bool) -> list[str]:
    entry = entries()[name]
    given = {*actions()[entry.action].trainer_gives, *_of_trainer(entry.action).trainer_gives} if trainer else set()
    return [option for option in entry.options if option.partition("=")[0] not in given]


def _readers(lacks: Iterable[Lack]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reader for lack in lacks for reader in lack.readers))


def _rank(lack: Lack) -> int:
    return RANKS.index(lack.level)


def _need(lack: Lack) -> tuple[int, int]:
    return _rank(lack), -len(lack.readers)
