"""Series of one file by catalogue name: the update of each row, and their conversion to an imported run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import UNSET, Struct, UnsetType, field
from numpy.typing import NDArray

from ckaudit.contract.schema.manifest import Manifest, StepUnit
from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported
from ckaudit.importers.kinds_of_loss import have_adversarial_losses, loss_kind_of_names
from ckaudit.importers.layers.to_checkpoints import LayerStatistics
from ckaudit.importers.names import SLICE, list_names, shorten_name, slices_of
from ckaudit.importers.notes_on_names import policy_note
from ckaudit.importers.tables.merge import merge_notes, merge_numbers
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, counted, steps_from, without_placeholders

CALLS = "_step"  # the key of Weights & Biases
CARRIED = "steps are those of {}; an entry without it stands where the last one with it stood"
ONLY_CALLS = "_step counts calls of log, which may be more or fewer than updates; --map step=NAME decides otherwise"
SCALARS_ONLY = "a table holds scalars only: weights, gradients, activations and attention of single tensors were not recorded"
UNIX_TIME = (1e8, 1e11)  # s; from 1973 to 5138: other clocks count from zero, or in milliseconds
_LOSSES = ("train_loss_raw", "val_loss")
_BESIDE = "Log the gradient norm and the time of a step beside it: these are judged"


class Curves(Struct):
    """The series of one file before they are joined.

    Attributes:
        steps: Shape (N,); step of each row, `NO_STEP` where the row has none.
        series: Columns of N cells by catalogue name.
        notes: How they were obtained.
        layers: Columns of N cells by the file's own name of a statistic of one tensor or layer.
        names: The file's own names of all logged quantities.
        step_unit: The unit of a step; UNSET: an update.
    """

    steps: NDArray[np.int64]
    series: dict[str, Numbers]
    notes: list[str] = field(default_factory=list)
    layers: dict[str, Numbers] = field(default_factory=dict)
    names: Sequence[str] = ()
    step_unit: StepUnit | UnsetType = UNSET


class StepAxis(NamedTuple):
    """The step of each row.

    Attributes:
        steps: Shape (N,).
        notes: How they were counted.
        unit: The unit of a step; UNSET: an update.
    """

    steps: NDArray[np.int64]
    notes: list[str]
    unit: StepUnit | UnsetType = UNSET


def imported_run(
    curves: Curves, shown: str, source: str, *, size: str, notes: Iterable[str] = (), last: str = SCALARS_ONLY, name: str = ""
) -> Imported:
    """Join the curves to the lines of a run, and note what was read.

    Args:
        curves: Steps and series.
        shown: The file's name in messages.
        source: Name of the format.
        size: The size of the contents, in a few words.
        notes: Notes on the file as a whole.
        last: A note on what the format cannot hold.
        name: Name among several runs.

    Raises:
        UnreadableError: Where no value is left.
    """
    merged = merge_numbers(curves.steps, curves.series)
    layers = layers_of(curves)
    if not len(merged.table.steps) and not layers:
        raise _nothing(curves, shown)
    empty = sorted(series for series, values in curves.series.items() if not values.count)
    all_notes = [
        f"read as {source}: {size}",
        *curves.notes,
        *notes,
        *([f"no value was recorded in {list_names(empty)}"] if empty else []),
        *merge_notes(merged),
        *layers.notes(),
        *([] if layers else [last]),
    ]
    manifest = Manifest(
        schema_version="ck.run.v1", source=source, loss_kind=loss_kind_of_names(curves.names) or UNSET, step_unit=curves.step_unit
    )
    if have_adversarial_losses(curves.names):
        manifest.takes_turns = True
    if slices := slices_of(merged.table.names):
        manifest.slices = slices
    if tensors := layers.tensors():
        manifest.tensors = tensors
    return Imported(merged.table, manifest, tuple(all_notes), source, name, layers.documents())


def _nothing(curves: Curves, shown: str) -> UnreadableError:
    """Return the error for a file of which no value is left: it has none, or only a policy's loss."""
    if note := policy_note(curves.names):
        what, _, option = note[0].partition("; ")
        return UnreadableError(f"{shown} holds nothing to judge: {what}", hint=f"{option or _BESIDE}.")
    return UnreadableError(f"{shown} holds no value at any step", hint="Name the columns: --map step=COLUMN --map loss=COLUMN.")


def layers_of(curves: Curves) -> LayerStatistics:
    """Return the statistics of single tensors and layers among the columns."""
    layers = LayerStatistics()
    for name, statistic in curves.layers.items():
        placed = statistic.recorded & (curves.steps != NO_STEP)
        layers.take_series(name, curves.steps[placed], statistic.values[placed])
    return layers


def take_unix_time(series: dict[str, Numbers]) -> list[str]:
    """Convert a `time` in milliseconds to seconds, remove one that is no Unix time, and return a note on it."""
    if "time" not in series:
        return []
    low, high = UNIX_TIME
    time = series["time"]
    times = time.values[time.recorded]
    if ((times >= low) & (times <= high)).all():
        return []
    if ((times >= 1e3 * low) & (times <= 1e3 * high)).all():
        series["time"] = time.times(1e-3)
        return ["the times are milliseconds"]
    del series["time"]
    return ["the times were left out: they are no Unix times"]


def drop_placeholders(series: dict[str, Numbers], keys: Mapping[str, str], *, nan: str = "NaN") -> list[str]:
    """Remove the NaN that stand for *no value*, and return a note on each series that held them.

    A loss with only NaN is a broken loss, unless another loss of the same rows continues in numbers: a model that gives NaN
    once never computes a number again.

    Args:
        series: In the order of the file, by catalogue name; changed in place.
        keys: The file's own name of each.
        nan: NaN as the file writes it.
    """
    cleared = {
        name: real for name, values in series.items() if name != "step" and (real := without_placeholders(values)) is not None
    }
    notes = []
    for name, values in cleared.items():
        if values.count or not _is_broken_throughout(name, series):
            place = "stands between numbers all along" if values.count else "stands alone"
            notes.append(f"{nan} in {shorten_name(keys[name])} {place}: read as not recorded")
            series[name] = values
    return notes


def take_adversarial_sum(series: dict[str, Numbers], names: tuple[str, str], losses: Sequence[Numbers]) -> list[str]:
    """Add the sum of two adversarial losses as the training loss where both are recorded, and return a note on it."""
    generator, discriminator = losses
    both = generator.recorded & discriminator.recorded
    if not both.any():
        return []
    series["train_loss_raw"] = Numbers(np.where(both, generator.values + discriminator.values, np.nan), both)
    return [f"train_loss_raw is {' + '.join(map(shorten_name, names))}, which play against each other and need not fall"]


def broken_losses(columns: Sequence[Numbers]) -> list[int]:
    """Return the positions of losses that hold NaN or infinity; one with only NaN counts unless another loss holds numbers.

    An unused part of the loss is logged as NaN only.
    """
    real = [without_placeholders(column) for column in columns]
    broken = [
        place
        for place, (column, cleared) in enumerate(zip(columns, real, strict=True))
        if (column.recorded & ~np.isfinite(column.values)).any() and (cleared is None or _holds_infinity(cleared))
    ]
    alone = [place for place, cleared in enumerate(real) if cleared is not None and not cleared.count]
    goes_on = any(np.isfinite(columns[place].values).any() for place in range(len(columns)) if place not in alone)
    return broken if goes_on else sorted({*broken, *alone})


def _holds_infinity(column: Numbers) -> bool:
    return bool((column.recorded & np.isinf(column.values)).any())


def _is_broken_throughout(name: str, series: Mapping[str, Numbers]) -> bool:
    """Tell whether a series with only NaN is a loss, and no other loss holds a number after its first NaN."""
    if not _is_loss(name):
        return False
    first = int(series[name].recorded.argmax())
    others = [values for other, values in series.items() if other != name and _is_loss(other)]
    return not any(np.isfinite(values.values[first + 1 :]).any() for values in others)


def _is_loss(name: str) -> bool:
    return name in (*_LOSSES, "train_loss_ema") or name.startswith(SLICE)


def steps_of(values: Numbers, lines: Sequence[int]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the step of each row, and a note on rows without one."""
    steps = steps_from(values)
    without_step = np.flatnonzero(steps == NO_STEP)
    if not len(without_step):
        return steps, []
    first = lines[without_step[0]]
    return steps, [
        f"{counted(len(without_step), 'row has', 'rows have')} no whole step of 0 or more: left out, first line {first:,}"
    ]


def steps_of_tokens(tokens: Numbers, per_update: Numbers) -> NDArray[np.int64] | None:
    """Return tokens / tokens_per_update where both are known in all rows and the quotient is an integer, else None."""
    if not (tokens.recorded & per_update.recorded & (per_update.values != 0)).all():
        return None
    with np.errstate(invalid="ignore"):
        steps = steps_from(Numbers(tokens.values / per_update.values, tokens.recorded))
    return None if (steps == NO_STEP).any() else steps


def steps_of_epochs(epochs: Numbers, series: Iterable[Numbers]) -> StepAxis | None:
    """Return one step per epoch and a note on it, or None where a row has no integer epoch or a series has two rows of one epoch.

    Epochs that count from 0 are counted from 1: step N is the end of the N-th.

    Args:
        epochs: Epoch of each row.
        series: The series logged in the same rows.
    """
    steps = steps_from(epochs)
    steps_by_series = [steps[column.recorded] for column in series]
    if not len(steps) or (steps == NO_STEP).any() or any((own[1:] == own[:-1]).any() for own in steps_by_series):
        return None
    shift = int(steps.min() == 0)
    counted = ", which the file counts from 0" if shift else ""
    note = f"no column holds the step: epochs are the axis, step N here is the end of epoch N{counted}"
    return StepAxis(steps + shift, [f"{note}; how many updates an epoch took is not recorded"], "epoch")


def steps_in_epochs(steps: NDArray[np.int64], epochs: Numbers | None) -> tuple[NDArray[np.int64], list[str]]:
    """Return the updates of steps that count anew in each epoch, and a note on it; other steps are returned as they are.

    Args:
        steps: Step of each row, `NO_STEP` where it has none.
        epochs: Epoch of each row; None: no column holds it.

    >>> steps_in_epochs(np.array([10, 20, 10, 20]), Numbers(np.array([0.0, 0, 1, 1]), np.ones(4, bool)))[0].tolist()
    [10, 20, 30, 40]
    """
    own = np.flatnonzero(steps != NO_STEP)
    if epochs is None or not len(own):
        return steps, []
    epoch, step = steps_from(epochs)[own], steps[own]
    begins = np.diff(epoch) > 0
    falls = np.diff(step) < 0
    if (epoch == NO_STEP).any() or (np.diff(epoch) < 0).any() or not begins.any() or (begins != falls).any():
        return steps, []
    from_zero = int((step == 0).any())
    size = int(step.max()) + from_zero
    first = int(epoch.min())
    updates = steps.copy()
    updates[own] = (epoch - (min(first, 1))) * size + step + from_zero
    return updates, [f"the step counts anew in each epoch: update N is epochs finished times {size:,}, plus the step"]


def counter_of_updates(counters: Mapping[str, Numbers], series: Mapping[str, Numbers]) -> str:
    """Return the counter of updates to use instead of W&B's `_step`, which counts log calls: a counter logged with every loss.

    Args:
        counters: Columns that may hold the step, by their own names.
        series: Columns by catalogue name.

    Returns:
        Its name; empty: there is none, or no counter is `_step`.
    """
    losses = [series[name].recorded for name in _LOSSES if name in series]
    if not losses or CALLS not in counters:
        return ""
    has_loss = np.logical_or.reduce(losses)
    return next((name for name, column in counters.items() if name != CALLS and column.recorded[has_loss].all()), "")


def counted_from_zero(steps: NDArray[np.int64], series: Mapping[str, Numbers]) -> list[str]:
    """Return a note that steps count from 0, where the first row has a training loss at step 0."""
    loss = series.get("train_loss_raw")
    if loss is None or not len(steps) or steps[0] != 0 or not loss.recorded[0]:
        return []
    return ["its steps count from 0 and were kept: step N here may be update N + 1"]
