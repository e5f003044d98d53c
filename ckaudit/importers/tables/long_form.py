"""Tables in long form: a column names the run, or the part of the data, that a row belongs to.

Without this, rows of several runs, seeds or models would be read as one run, and losses of held-out rows as training losses.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.importers.kinds_of_loss import NO_LETTERS
from ckaudit.importers.names import catalogue_name, list_names, shorten_name, writable
from ckaudit.importers.tables.continued_counts import LossLevels
from ckaudit.importers.tables.numbers import MISSING_WORDS, NO_STEP, Numbers, forward_fill

MAX_RUNS = 1000
MIN_SHARED_STEPS = 0.5
"""Minimum share of a run's steps that another run has too; a resumed training shares fewer with its first part."""

_RUNS = frozenset(
    """
    run run_id run_name experiment experiment_id experiment_name exp exp_id exp_name trial trial_id trial_name variant job_id
    seed random_seed fold model model_name config config_name method algorithm algo arch architecture
    """.split()  # noqa: SIM905  one word a line would take five times the room
)
_SPLITS = frozenset({"split", "phase", "mode", "stage", "subset", "partition", "data_split", "dataset_split"})
_ROW_KINDS = frozenset(
    {"type", "kind", "event", "event_type", "row_type", "entry_type", "log_type", "record_type", "tag", "section", "dataset"}
)
"""Columns that may name the kind of a row: training, evaluation, or anything else, such as a checkpoint."""

LABEL_COLUMNS = _RUNS | _SPLITS | _ROW_KINDS
_TRAIN = frozenset({"train", "training", "trn", "tr"})
_HELD_OUT = frozenset({"val", "valid", "validation", "dev", "eval", "evaluation"})
_TEST = frozenset({"test", "testing"})
_OF_A_PART = re.compile(r"(?:[_ -](?:step|epoch|batch|iter|iteration|loop|loss|metrics?|log|results?|set|end)){1,3}\Z")
_OF_A_ROW = frozenset({"train_loss_raw", "train_loss_ema", "train_ppl"})


class LabelColumn(Struct, frozen=True):
    """The words of a column.

    Attributes:
        words: The distinct words, in the order of the table.
        codes: Shape (N,); the index of each row's word among them, -1 where its cell is empty.
    """

    words: tuple[str, ...]
    codes: NDArray[np.int64]

    @classmethod
    def of_codes(cls, codes: NDArray[np.int64], words: Sequence[Any]) -> "LabelColumn":
        """Return the words of a column that is stored as indices into a list of words; -1: the cell is empty."""
        places = cls.of([*words, None])
        return cls(places.words, places.codes[codes])

    @classmethod
    def of(cls, cells: Sequence[Any]) -> "LabelColumn":
        """Return the words of a column's cells."""
        places: dict[str, int] = {}
        codes = [-1 if (word := _word(cell)).lower() in MISSING_WORDS else places.setdefault(word, len(places)) for cell in cells]
        return cls(tuple(places), np.array(codes, np.int64))


def _word(cell: Any) -> str:
    return writable(str(cell).strip()) if isinstance(cell, str | int) and not isinstance(cell, bool) else ""


def label_columns(names: Iterable[str]) -> list[str]:
    """Return the columns that may name the run, or the part of the data, of a row.

    >>> label_columns(["step", "Run ID", "phase", "loss"])
    ['Run ID', 'phase']
    """
    return [name for name in names if _plain(name) in LABEL_COLUMNS]


def _plain(name: str) -> str:
    return NO_LETTERS.sub("_", name.lower()).strip("_")


def runs_of(labels: Mapping[str, LabelColumn], steps: NDArray[np.int64] | None) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each run by its name; none where the table holds one run.

    Runs are told apart by all columns that may name runs and hold several words, if the runs go through the same steps.

    Args:
        labels: Columns that may name the run of a row.
        steps: Step of each row, `NO_STEP` where it has none; None: no column holds steps.
    """
    telling = {name: column for name, column in labels.items() if _plain(name) in _RUNS and len(column.words) > 1}
    if not telling:
        return {}
    codes = np.stack([column.codes for column in telling.values()], axis=1)
    is_labelled = (codes >= 0).all(axis=1)
    different, places = np.unique(codes[is_labelled], axis=0, return_inverse=True)
    rows = np.flatnonzero(is_labelled)
    runs = {_name(telling, row): rows[places.reshape(-1) == place] for place, row in enumerate(different.tolist())}
    is_few = 1 < len(runs) <= min(MAX_RUNS, len(codes) // 2)
    return runs if is_few and (steps is None or _side_by_side([steps[own] for own in runs.values()])) else {}


def _name(telling: Mapping[str, LabelColumn], codes: Sequence[int]) -> str:
    words = {name: column.words[code] for (name, column), code in zip(telling.items(), codes, strict=True)}
    if len(words) == 1 and not (word := next(iter(words.values()))).isdecimal():
        return word
    return ", ".join(f"{name}={word}" for name, word in words.items())


def _side_by_side(runs: Sequence[NDArray[np.int64]]) -> bool:
    """Tell whether each of some runs shares half of its steps with another."""
    known = [np.unique(steps[steps != NO_STEP]) for steps in runs]
    all_steps, counts = np.unique(np.concatenate(known), return_counts=True)
    shared = all_steps[counts > 1]
    return all(np.isin(steps, shared).mean() >= MIN_SHARED_STEPS for steps in known if len(steps))


def split_of(labels: Mapping[str, LabelColumn]) -> str:
    """Return the column that names the part of the data of a row; empty where there is none, or all rows are training rows."""
    for name, column in labels.items():
        words = set(map(_part_of_data, column.words))
        if _plain(name) in _SPLITS and words <= _TRAIN | _HELD_OUT | _TEST and words - _TRAIN:
            return name
        if _plain(name) in _ROW_KINDS and words & _TRAIN and words & (_HELD_OUT | _TEST):
            return name
    return ""


def _part_of_data(word: str) -> str:
    """Return the part of the data that a word names.

    >>> _part_of_data("Train_step"), _part_of_data("validation_epoch_end"), _part_of_data("checkpoint")
    ('train', 'validation', 'checkpoint')
    """
    return _OF_A_PART.sub("", word.lower())


def split_columns(columns: Mapping[str, Numbers], split: LabelColumn) -> dict[str, Numbers]:
    """Return columns with the cells of held-out rows in separate columns, such as "val loss".

    Test rows count as held-out data if there are no other held-out rows, and are left out otherwise. Columns with a known name
    other than a training loss or perplexity, such as clocks and counters, stay whole.
    """
    parted: dict[str, Numbers] = {}
    for name, column in columns.items():
        if catalogue_name(name) not in {None, *_OF_A_ROW} or _plain(name) == "epoch":
            parted[name] = column
            continue
        parted[name] = column.only(_rows_of(split, _TRAIN) | (split.codes < 0))
        held_out = column.only(_rows_of(split, _held_out_words(split)))
        if held_out.count and f"val {name}" not in columns:
            parted[f"val {name}"] = held_out
    return parted


def _held_out_words(split: LabelColumn) -> frozenset[str]:
    return _HELD_OUT if _rows_of(split, _HELD_OUT).any() else _TEST


def _rows_of(split: LabelColumn, words: frozenset[str]) -> NDArray[np.bool_]:
    return np.isin(split.codes, [place for place, word in enumerate(split.words) if _part_of_data(word) in words])


def split_note(name: str, split: LabelColumn) -> str:
    """Return a note on the rows that were split."""
    held_out = _held_out_words(split)
    left_out = [word for word in split.words if _part_of_data(word) not in _TRAIN | held_out]
    taken = list_names([word for word in split.words if _part_of_data(word) in held_out])
    return f"{shorten_name(name)} tells rows apart: {taken} are of held-out data" + (
        f", {list_names(left_out)} were left out" if left_out else ""
    )


def starts_of(
    steps: NDArray[np.int64] | None, epochs: Numbers | None, series: Mapping[str, Numbers], *, min_rows: int = 10
) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each training in a table with several in sequence, by its name; none where the table holds one.

    Another training begins where steps go back to the start of the previous one or below, epochs with them, the same steps have
    other values, and the loss does not go on from where it was. A start of at most `min_rows` rows is left out.

    Args:
        steps: Step of each row, `NO_STEP` where it has none; None: no column holds steps.
        epochs: Epoch of each row; None where no column counts them. Steps may restart in each epoch.
        series: The logged columns by catalogue name.
        min_rows: Number of rows up to which a start is too short to judge.
    """
    if steps is None or not (known := steps != NO_STEP).any():
        return {}
    filled = forward_fill(steps, known)
    levels = LossLevels(loss) if (loss := series.get("train_loss_raw")) else None
    cuts = [0]
    for row in (np.flatnonzero(np.diff(filled) < 0) + 1).tolist():
        goes_on = epochs is not None and epochs.recorded[[row - 1, row]].all() and epochs.values[row] >= epochs.values[row - 1]
        if filled[row] <= filled[cuts[-1]] and not goes_on and not (levels and levels.goes_on(row)):
            cuts.append(row)
            if levels:
                levels.start(row)
    starts = [np.arange(begin, end) for begin, end in pairwise([*cuts, len(steps)]) if end - begin > min_rows]
    logged = list(series.values())
    if not 1 < len(starts) <= MAX_RUNS or not all(_say_other_things(steps, logged, *pair) for pair in pairwise(starts)):
        return {}
    return {f"run {number}": rows for number, rows in enumerate(starts, 1)}


def _say_other_things(
    steps: NDArray[np.int64], columns: Sequence[Numbers], one: NDArray[np.int64], other: NDArray[np.int64]
) -> bool:
    """Tell whether a column has other numbers at the same steps; rows that only add to or repeat earlier ones are no start."""
    for column in columns:
        first, second = one[column.recorded[one]], other[column.recorded[other]]
        _, left, right = np.intersect1d(steps[first], steps[second], return_indices=True)
        if not np.array_equal(column.values[first][left], column.values[second][right], equal_nan=True):
            return True
    return False


def numbered_starts(steps: Sequence[int]) -> list[int]:
    """Return the number of each step's training, from 1: a new one begins where steps go back to the last start or below.

    >>> numbered_starts([1, 2, 3, 2, 3, 1, 2])
    [1, 1, 1, 1, 1, 2, 2]
    """
    numbers: list[int] = []
    begin = number = 0
    for place, step in enumerate(steps):
        if not place or (step <= begin and step < steps[place - 1]):
            begin, number = step, number + 1
        numbers.append(number)
    return numbers
