"""Whether two runs are the same to the last bit, where they first are not, and what most likely makes it so (D1.6)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from ckaudit.audit.load_run import is_ours, open_run
from ckaudit.contract.io.folder import CheckpointFile, list_folder
from ckaudit.contract.schema.diff import Answer, Departure, Noise, Pair, Word
from ckaudit.contract.schema.numbers import Number, takes_any_numbers, to_word
from ckaudit.diff.comparability import unlike
from ckaudit.diff.files import Document, read_document
from ckaudit.diff.nondeterminism import sources
from ckaudit.diff.timing_fields import tells_time
from ckaudit.diff.ulp import apart, identical
from ckaudit.diff.values import values
from ckaudit.errors import UnreadableError
from ckaudit.material.counts import plural
from ckaudit.run.run import Run
from ckaudit.run.series import Series

TITLE = "Are both runs the same to the last bit?"

BITS = Noise(source="identical", message="two runs of one seed are to agree in every bit: nothing is put down to chance")

_FIRST = ("batch_hash", "batch_id", "learning_rate", "train_loss_raw", "grad_global_norm")

_RANKS = (
    "batch",
    "data",
    "learning_rate",
    "activations",
    "attention",
    "moe",
    "loss",
    "gradients",
    "optimizer",
    "weight_deltas",
    "weights",
)
"""What a step computes, in its order: where several things differ at one step, the earliest is the first."""


class Leaf(Struct, frozen=True):
    """One value that is not the same.

    Attributes:
        statistic: Section and field, such as weights.mean; the place in a list behind it.
        where: Tensor, module, layer or probe; None: the checkpoint as a whole.
        left: The first's value.
        right: The second's.
    """

    statistic: str
    where: str | None
    left: Any
    right: Any


class Leaves(Struct):
    """What comparing two checkpoints gave.

    Attributes:
        unequal: Values that differ, in the order in which a step computes them, a tensor's hash before its statistics.
        lacking: What only one of them has, by its name.
        equal: How many values are equal.
        hashed: How many hashes of tensor bytes were compared.
    """

    unequal: list[Leaf]
    lacking: list[str]
    equal: int = 0
    hashed: int = 0


class Found(Struct):
    """What comparing two runs gave.

    Attributes:
        first: What differs at the first step at which anything does, in the order in which a step computes it.
        equal: Values that are equal, up to there.
        lacking: Sentences on what only one of the runs recorded.
        unreadable: Sentences on files that could not be read.
        hashed: Hashes of tensors that were compared.
        checkpoints: Checkpoints of both that were read.
    """

    first: list[Departure]
    equal: int = 0
    lacking: list[str] = []
    unreadable: list[str] = []
    hashed: int = 0
    checkpoints: int = 0


@takes_any_numbers
def exact(left: Path, right: Path, *, runs: tuple[Run, Run] | None = None, max_values: int = 20) -> Pair:
    """Compare two runs bit by bit: every line, then every value of every checkpoint and rank file that both have, by step.

    What only tells the time is left out (`clocks`). Hashes of tensor bytes are compared where both recorded them; without
    them two tensors of equal statistics are taken for equal. A checkpoint that cannot be read is named, and what a resume
    replaced is not compared.

    Args:
        left: The reference.
        right: The subject.
        runs: Both as they were read, where they were.
        max_values: How many of the values that differ at the first such step are told.

    Raises:
        UnreadableError: Where one of them is no run.
    """
    mine, theirs = runs or (open_run(left, reads=()), open_run(right, reads=()))
    found = Found([])
    lines = _scalars(mine, theirs, found)
    seen = _checkpoints(left, right, found, lines[0].step if lines else None)
    together = sorted([*lines, *seen], key=_order)
    told = {
        (departure.statistic, departure.where): departure
        for departure in reversed(together)
        if departure.step == together[0].step
    }
    found.first = [*reversed(told.values())]
    alike = unlike(mine, theirs)
    word, verdict = _verdict(found)
    return Pair(
        left=str(left),
        right=str(right),
        word=word,
        verdict=verdict,
        noise=BITS,
        unlike=alike,
        answers=[Answer(question="exact", title=TITLE, word=word, message=verdict)],
        parting=found.first[0] if found.first else None,
        propagation=found.first[:max_values],
        notes=[
            *_first_few(found.unreadable),
            *_first_few(found.lacking),
            *_hashes(found),
            *_replaced(left, "first"),
            *_replaced(right, "second"),
            *(sources(alike, found.first, mine, theirs) if found.first else []),
        ],
    )


def _order(departure: Departure) -> tuple[int, int, int]:
    name = departure.statistic
    section = name.partition(".")[0]
    key = "loss" if name == "train_loss_raw" else "gradients" if name.startswith("grad_") else section.removesuffix("_hash")
    rank = _RANKS.index(key) if key in _RANKS else len(_RANKS)
    return departure.step, rank, _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _verdict(found: Found) -> tuple[Word, str]:
    if found.first:
        return "different", f"different: {found.first[0].message}"
    if not found.equal:
        return "not_recorded", "nothing was recorded by both runs that could be compared"
    both = f"{plural(found.equal, 'value')} of both are equal to the last bit"
    if left_out := [*found.unreadable, *found.lacking]:
        return "not_recorded", f"all {both}, but {left_out[0]}"
    return "same", f"the same: all {both}, what tells the time aside"


def _first_few(sentences: list[str], max_sentences: int = 5) -> list[str]:
    rest = len(sentences) - max_sentences
    return [*sentences[:max_sentences], f"{plural(rest, 'more difference')} of this kind"] if rest > 0 else sentences


def _hashes(found: Found) -> Iterator[str]:
    if found.hashed:
        yield f"{plural(found.hashed, 'hash')} of tensor bytes compared"
    elif found.checkpoints:
        yield "no hash of tensor bytes is in both runs (Recorder(exact=True) writes them): only statistics were compared"


def _scalars(left: Run, right: Run, found: Found) -> list[Departure]:
    """Return what differs at the first step whose lines differ, and count what is equal before it."""
    found_at: list[tuple[int, str, Any, Any]] = []
    for name in dict.fromkeys((*left.scalars, *right.scalars)):
        if not tells_time(name):
            found_at += _columns(left.scalar(name), right.scalar(name), found)
    for name in dict.fromkeys((*left.texts, *right.texts)):
        if not tells_time(name):
            found_at += _words(left, right, name, found)
    first = min((step for step, *_ in found_at), default=None)
    return [_line(*each) for each in found_at if each[0] == first]


def _line(step: int, name: str, left: Any, right: Any) -> Departure:
    message = f"{name} at step {step} is {apart(left, right)}"
    return Departure(statistic=name, step=step, left=_told(left), right=_told(right), message=message)


def _columns(left: Series, right: Series, found: Found) -> Iterator[tuple[int, str, Any, Any]]:
    """Yield the first difference of each label of a scalar."""
    for label in dict.fromkeys((*left.labels, *right.labels)):
        name = label if label in (left.name, right.name) else f"{left.name}/{label}"
        mine, theirs = _column(left, label), _column(right, label)
        shared, here, there = np.intersect1d(mine[0], theirs[0], assume_unique=True, return_indices=True)
        _lack(found, name, len(mine[0]) - len(shared), len(theirs[0]) - len(shared))
        one, other = np.ascontiguousarray(mine[1][here]), np.ascontiguousarray(theirs[1][there])
        unequal = np.flatnonzero((one.view(np.int64) != other.view(np.int64)) & ~(np.isnan(one) & np.isnan(other)))
        found.equal += len(shared) - len(unequal)
        if len(unequal):
            row = int(unequal[0])
            yield int(shared[row]), name, float(one[row]), float(other[row])


def _column(series: Series, label: str) -> tuple[Any, Any]:
    if label not in series.labels:
        return np.empty(0, np.int64), np.empty(0)
    column = series.labels.index(label)
    known = series.recorded[:, column]
    return series.steps[known], series.values[known, column]


def _words(left: Run, right: Run, name: str, found: Found) -> Iterator[tuple[int, str, Any, Any]]:
    mine, theirs = (
        dict(zip(run.texts[name].steps, run.texts[name].values, strict=True)) if name in run.texts else {}
        for run in (left, right)
    )
    shared = sorted(mine.keys() & theirs.keys())
    _lack(found, name, len(mine) - len(shared), len(theirs) - len(shared))
    unequal = [step for step in shared if mine[step] != theirs[step]]
    found.equal += len(shared) - len(unequal)
    if unequal:
        yield unequal[0], name, mine[unequal[0]], theirs[unequal[0]]


def _lack(found: Found, name: str, left: int, right: int) -> None:
    for which, count in (("first", left), ("second", right)):
        if count:
            found.lacking.append(f"only the {which} has {name} at {plural(count, 'step')}")


def _checkpoints(left: Path, right: Path, found: Found, until: int | None) -> list[Departure]:
    """Return what differs in the first checkpoint that is not the same, and in those of its ranks.

    None after the step at which the lines differ is read. What cannot be read is said, and passed over.
    """
    mine, theirs = _files(left), _files(right)
    for which, only in (("first", mine.keys() - theirs.keys()), ("second", theirs.keys() - mine.keys())):
        for noun, some in (
            ("checkpoint", [key for key in only if key[1] < 0]),
            ("rank file", [key for key in only if key[1] >= 0]),
        ):
            if some:
                found.lacking.append(f"only the {which} has {plural(len(some), noun)}, the earliest at step {min(some)[0]}")
    departures: list[Departure] = []
    for step, rank in sorted(mine.keys() & theirs.keys()):
        if (until is not None and step > until) or (departures and step > departures[0].step):
            break
        departures += _of_files(mine[step, rank], theirs[step, rank], step, found)
    return departures


def _of_files(left: CheckpointFile, right: CheckpointFile, step: int, found: Found) -> list[Departure]:
    one, other = _document(left, "first", found), _document(right, "second", found)
    if one is None or other is None:
        return []
    leaves = unequal_leaves(one, other)
    found.checkpoints += left.rank is None
    found.equal += leaves.equal
    found.hashed += leaves.hashed
    if leaves.lacking:
        found.lacking.append(f"at step {step} only one run has {', '.join(leaves.lacking[:3])}")
    return [_departure(leaf, step, right) for leaf in leaves.unequal]


def _document(file: CheckpointFile, which: str, found: Found) -> Document | None:
    try:
        return read_document(file.path, file.shown)
    except UnreadableError as error:
        found.unreadable.append(f"in the {which} {error}: it was not compared")
        return None


def _files(path: Path) -> dict[tuple[int, int], CheckpointFile]:
    """Return the files of a run by step and rank, -1 for the merged one, which comes first."""
    if not (path.is_dir() and is_ours(path)):
        return {}
    known = [file for file in list_folder(path).checkpoints if file.step is not None]
    return {(file.step or 0, -1 if file.rank is None else file.rank): file for file in known}


def _replaced(path: Path, which: str) -> Iterator[str]:
    count = len(list_folder(path).history) if path.is_dir() and is_ours(path) else 0
    if count:
        yield f"{plural(count, 'checkpoint')} of the {which} that a resume replaced stand beside the run and were not compared"


def _departure(leaf: Leaf, step: int, file: CheckpointFile) -> Departure:
    place = f" of {leaf.where}" if leaf.where else ""
    message = f"{leaf.statistic}{place} at step {step} ({file.shown}) is {apart(leaf.left, leaf.right)}"
    return Departure(
        statistic=leaf.statistic.removeprefix("scalars."),
        where=leaf.where,
        step=step,
        left=_told(leaf.left),
        right=_told(leaf.right),
        message=message,
    )


def _told(value: Any) -> Number | None:
    """Return a number as the document writes it, None for a word."""
    return to_word(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None


# Every value of two checkpoints, one against the other, exactly: which differ, and what only one of them has.
def unequal_leaves(left: Mapping[str, Any], right: Mapping[str, Any]) -> Leaves:
    """Compare two checkpoints as plain objects."""
    leaves = Leaves([], [])
    for section, place, one, other in values(left, right):
        if place is not None and isinstance(one, dict) and isinstance(other, dict):
            _members(leaves, section, place, one, other)
        else:
            _walk(leaves, section, place, one, other)
    return leaves


def _members(leaves: Leaves, section: str, place: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
    for key in sorted(dict.fromkeys((*left, *right)), key=lambda key: key != "hash"):
        leaves.hashed += key == "hash" and key in left and key in right
        _walk(leaves, f"{section}.{key}", place, left.get(key), right.get(key))


def _is_lacking(leaves: Leaves, name: str, left: Any, right: Any) -> bool:
    if left is None or right is None:
        leaves.lacking.append(name)
        return True
    return False


def _walk(leaves: Leaves, path: str, where: str | None, left: Any, right: Any) -> None:
    if _is_lacking(leaves, f"{path} of {where}" if where else path, left, right):
        return
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys((*left, *right)):
            _walk(leaves, f"{path}.{key}", where, left.get(key), right.get(key))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            _walk(leaves, f"{path}[{index}]", where, one, other)
    elif _same(left, right):
        leaves.equal += 1
    else:
        leaves.unequal.append(Leaf(path, where, left, right))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        return isinstance(left, int | float) and isinstance(right, int | float) and identical(left, right)
    return bool(left == right)
