"""Roles of the columns of rows without a header: from the file's name and the course of their numbers."""

from collections.abc import Sequence
from shlex import quote

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.importers.column_name import TRAIN
from ckaudit.importers.names import RETURN, list_names
from ckaudit.importers.tables.curves import UNIX_TIME
from ckaudit.importers.tables.loss_file_names import NamedLoss, is_of_rewards, loss_named_by_file
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, steps_from

_UNNAMED = "nothing names the columns"


class ColumnRoles(Struct, frozen=True):
    """The roles of the columns.

    Attributes:
        names: The name of each, from its position: "column 1", "column 2" and so on.
        measured: Columns that are neither counters nor times.
        taken: Columns by catalogue name, where a role is known.
        note: How the roles were found.
        offer: The option that takes another column for the validation loss; empty where there is none.
    """

    names: list[str]
    measured: list[str]
    taken: dict[str, str]
    note: str = ""
    offer: str = ""


def roles_of(columns: Sequence[Numbers], file_name: str) -> ColumnRoles:
    """Return the roles of columns without names.

    In a file that is named after a loss, the first column that is not a counter is that loss; two columns are the training and
    the held-out loss where the name says both. In one named after rewards, the last column is the reward, though it may be an
    integer, unless it is that of a falling exploration rate. In a training log, a loss and an accuracy are recognized by their
    course.
    """
    names = [f"column {place}" for place in range(1, len(columns) + 1)]
    if is_of_rewards(file_name):
        return _of_rewards(columns, names)
    axes = {name for name, column in zip(names, columns, strict=True) if is_axis(column)}
    measured = [name for name in names if name not in axes]
    counters = names[: names.index(measured[0])] if measured else names  # before the first measured one
    step = _step_of([columns[names.index(name)] for name in counters])
    taken = {} if step is None else {"step": names[step]}
    if not measured:
        return ColumnRoles(names, measured, taken)
    if (loss := loss_named_by_file(file_name)) is not None:
        found = _of_loss(loss, measured)
        return ColumnRoles(names, measured, taken | found, _note_on(found), _offer_beside(found, measured))
    pair = [columns[names.index(name)] for name in measured]
    if counters and len(pair) == 2 and names[-1] == measured[-1] and are_loss_and_accuracy(*pair):
        what = f"{measured[0]} falls while {measured[1]} rises between 0 and 1"
        note = f"{_UNNAMED}: {what}, so they were taken for a training loss and an accuracy, which was left out"
        return ColumnRoles(names, measured, taken | {"train_loss_raw": measured[0]}, note)
    return ColumnRoles(names, measured, taken)


def _of_rewards(columns: Sequence[Numbers], names: list[str]) -> ColumnRoles:
    """Return the roles of columns in a file that is named after rewards."""
    place = len(columns) - 1
    while place and _is_exploration_rate(columns[place]):
        place -= 1
    step = _step_of(columns[:place])
    taken = {RETURN: names[place]} if step is None else {"step": names[step], RETURN: names[place]}
    return ColumnRoles(names, [names[place]], taken, f"{_UNNAMED}: by the file's name {names[place]} is its reward")


def _is_exploration_rate(column: Numbers, *, min_falling: float = 0.9) -> bool:
    """Tell whether a column lies between 0 and 1 and hardly ever rises, as the share of random actions does."""
    values = column.values[column.recorded]
    if len(values) < 2 or not 0 <= values.min() < values.max() <= 1:
        return False
    return bool((np.diff(values) <= 0).mean() >= min_falling)


def _of_loss(loss: NamedLoss, measured: Sequence[str]) -> dict[str, str]:
    """Return the columns of the loss that a file is named after, by catalogue name."""
    kinds = ["train_loss_raw" if data == TRAIN else "val_loss" for data in loss.data] or ["train_loss_raw"]
    if len(kinds) == len(measured) == len(set(kinds)):
        return dict(zip(kinds, measured, strict=True))
    return {loss.catalogue_name: measured[0]}


def _note_on(found: dict[str, str]) -> str:
    """Return a note on how the columns were recognized."""
    return (
        f"{_UNNAMED}: by the file's name {list_names([*found.values()])} {'is its loss' if len(found) == 1 else 'are its losses'}"
    )


def _offer_beside(found: dict[str, str], measured: Sequence[str]) -> str:
    """Return the option that takes the next column for the validation loss, where only the training loss was found."""
    others = [name for name in measured if name not in found.values()]
    if not others or [*found] != ["train_loss_raw"]:
        return ""
    return f"; where {others[0]} is that of validation, --map {quote(f'val_loss={others[0]}')} takes it"


def _step_of(counters: Sequence[Numbers], *, min_rising: float = 0.9) -> int | None:
    """Return the index of the counter that rises from row to row, or None; a single counter may restart now and then."""
    for place, counter in enumerate(counters):
        steps = steps_from(counter)
        rises = np.diff(steps) > 0
        if (steps != NO_STEP).all() and (rises.all() or (len(counters) == 1 and rises.mean() >= min_rising)):
            return place
    return None


def is_axis(column: Numbers) -> bool:
    """Tell whether numbers are counts or times: integers, numbers with a constant increment, or Unix times.

    >>> rows = [1, 1, 2, 2.0], [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
    >>> [is_axis(Numbers(np.array(row), np.ones(4, bool))) for row in rows]
    [True, True, False]
    """
    values = column.values[column.recorded]
    if len(values) < 2 or not np.isfinite(values).all():
        return False
    rises = np.diff(values)
    low, high = UNIX_TIME
    is_whole = bool((steps_from(column)[column.recorded] != NO_STEP).all())
    is_even = bool(rises[0] > 0 and np.allclose(rises, rises[0], rtol=1e-3, atol=0))
    return is_whole or is_even or bool(((values > low) & (values < high) & (rises.min() >= 0)).all())


def are_loss_and_accuracy(first: Numbers, second: Numbers, *, min_rows: int = 10, max_order: float = -0.5) -> bool:
    """Tell whether a column falls while the next one rises between 0 and 1, with fluctuations that a schedule does not have.

    Args:
        first: The possible loss.
        second: The possible accuracy.
        min_rows: Minimum number of rows for a decision.
        max_order: Maximum rank correlation of the two; for two unrelated series it is near 0.
    """
    loss, accuracy = first.values, second.values
    if len(loss) < min_rows or not (np.isfinite(loss) & (loss >= 0) & (accuracy >= 0) & (accuracy <= 1)).all():
        return False
    part = max(len(loss) // 4, 1)
    falls = float(np.median(loss[-part:])) < float(np.median(loss[:part]))
    rises = float(np.median(accuracy[-part:])) > float(np.median(accuracy[:part]))
    is_no_schedule = bool((np.diff(loss) > 0).mean() >= 0.05)
    return falls and rises and is_no_schedule and float(np.corrcoef(_ranks(loss), _ranks(accuracy))[0, 1]) <= max_order


def _ranks(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")
