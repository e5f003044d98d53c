"""CSV and TSV files with a header line: one row per logged step, columns with any names.

A column may name the run of a row, or say whether the row belongs to training or held-out data.

Where no column holds the step but one counts epochs, as in Keras' CSVLogger, epochs are the axis. Episodes are the axis where
the column called steps only holds the length of each episode.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace
from numpy.typing import NDArray

from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import adversarial_pair, episode_counter, train_and_val_columns, words_in
from ckaudit.importers.layers.names import place_of
from ckaudit.importers.names import (
    SHORT_NAMES,
    catalogue_name,
    factor_of,
    list_names,
    policy_losses,
    recognise_columns,
    resolve_columns,
)
from ckaudit.importers.notes_on_names import hint_on_unknown_names, note_on_other_choices, note_on_taken, notes_on_left_out
from ckaudit.importers.other_languages import in_english
from ckaudit.importers.tables.curves import (
    CALLS,
    CARRIED,
    ONLY_CALLS,
    Curves,
    StepAxis,
    broken_losses,
    counted_from_zero,
    counter_of_updates,
    drop_placeholders,
    imported_run,
    steps_in_epochs,
    steps_of,
    steps_of_epochs,
    steps_of_tokens,
    take_adversarial_sum,
    take_unix_time,
)
from ckaudit.importers.tables.data_loading_time import named_times, take_times
from ckaudit.importers.tables.long_form import LabelColumn, label_columns, runs_of, split_columns, split_note, split_of, starts_of
from ckaudit.importers.tables.loss_file_names import loss_named_by_file
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, forward_fill, steps_from
from ckaudit.importers.tables.step_counters import (
    counts_environment_steps,
    fullest_counter,
    may_count_steps,
    only_counter,
    steps_of_episodes,
)
from ckaudit.importers.tables.table import NumberTable, read_numbers, read_table
from ckaudit.importers.tables.table_header import holds_numbers, sniff_table

NAME = "CSV"
GENERIC = True
EPOCH = "epoch"
NUMBERED = "no column holds the step: rows were numbered from 1; name one with --map step=COLUMN"
_LOSSES = {"train_loss_raw", "val_loss"}
_VALUE = "value"  # the column of a single metric's download from TensorBoard or MLflow
_OF_REWARDS = frozenset({"reward", "rewards", "return", "returns", "score", "scores"})


def detects(source: Source) -> bool:
    """Tell whether the file starts as a table: a header, with numbers below it or a known name in it."""
    table_head = sniff_table(source.head)
    if table_head is None:
        return False
    _, header, rows = table_head
    named_so = source.path.name.removesuffix(".gz").removesuffix(".zst").lower().endswith((".csv", ".tsv"))
    return named_so or any(map(catalogue_name, header)) or holds_numbers(rows, len(header))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read a table; columns that `columns` does not name are recognised by their common names.

    An empty cell is not recorded. The word nan is recorded as NaN, unless it occurs between the numbers of its column so often
    that it can only mean *no value*; a loss of nan alone is not a number.

    Raises:
        UnreadableError: Where no column can be recognised, or none holds a value.
        UsageError: Where `columns` names something that does not exist.
    """
    of_file = {} if _LOSSES & {SHORT_NAMES.get(name, name) for name in columns} else _named_by_file(source)
    columns = {**of_file, **columns}
    table, labels = labelled_table(source, columns)
    source.forget()
    notes = [f"the file's name says that {list_names([*of_file.values()])} are losses"] if of_file else []
    choices = choices_of(table.header, columns, source.shown)
    return imported_runs(replace(table, notes=[*table.notes, *notes]), labels, choices, source.shown, NAME)


def _named_by_file(source: Source) -> dict[str, str]:
    """Return the columns that are losses by the file's name: those named after their data alone, or "value"."""
    table_head = sniff_table(source.head)
    header = [] if table_head is None else table_head[1]
    loss = loss_named_by_file(source.path.name)
    if loss is None or _LOSSES & recognise_columns(header).keys():
        return {}
    if value := next((name for name in header if name.lower() == _VALUE), ""):
        return {loss.catalogue_name: value}
    untested = [name for name in header if name.lower() not in ("test", "testing")]
    pair = train_and_val_columns(untested) or train_and_val_columns(header)
    return dict(zip(("train_loss_raw", "val_loss"), pair, strict=True)) if pair else {}


def imported_runs(
    table: NumberTable, labels: Mapping[str, LabelColumn], choices: Mapping[str, Sequence[int]], shown: str, source: str
) -> list[Imported]:
    """Return the runs of a table.

    Args:
        table: All rows; values on held-out data are in columns of their own.
        labels: Columns that may tell runs apart, by name.
        choices: Columns by catalogue name.
        shown: The file's name in messages.
        source: Name of the format.
    """
    steps = _counted(table, choices)
    runs = runs_of(labels, steps)
    if not runs and (chosen := {name: places[0] for name, places in choices.items() if name not in ("step", "time")}):
        epoch = epoch_of(table.header)
        logged = {name: table.columns[place] for name, place in chosen.items() if place in table.columns}
        runs = starts_of(steps, None if epoch is None else table.columns.get(epoch), logged)
    importeds = []
    for name, part in {name: table.rows(own) for name, own in runs.items()}.items() or [("", table)]:
        curves = curves_of(part, choices)
        run = imported_run(curves, shown, source, size=part.size_text, notes=part.notes, name=name)
        run.manifest.name = name or UNSET
        importeds.append(run)
    return importeds


def table_of(source: Source, columns: Mapping[str, str]) -> tuple[NumberTable, Curves]:
    """Return the table of one run, and its series under catalogue names.

    Raises:
        UnreadableError: Where no column can be recognised.
        UsageError: Where `columns` names something that does not exist.
    """
    table, _ = labelled_table(source, columns)
    return table, curves_of(table, choices_of(table.header, columns, source.shown))


def labelled_table(source: Source, columns: Mapping[str, str]) -> tuple[NumberTable, dict[str, LabelColumn]]:
    """Return a table with separate columns for rows of held-out data, and the columns that may tell runs apart.

    Raises:
        UnreadableError: Where no column can be recognised.
        UsageError: Where `columns` names something that does not exist.
    """
    shown = source.shown
    table_head = sniff_table(source.head)
    if table_head is None:
        raise UnreadableError(f"{shown} has no header line", hint="Write the names of the columns in its first line.")
    delimiter, header, _ = table_head
    labels = _labels_of(source, header, delimiter)
    split = split_of(labels)
    known = {name: column for name, column in columns.items() if column in header} if split else columns
    table = read_numbers(source.data, shown, header, columns_to_read(header, choices_of(header, known, shown)), delimiter)
    if not all(len(column.codes) == len(table.lines) for column in labels.values()):
        return table, {}
    return (with_split_columns(table, split, labels[split]) if split else table), labels


def _labels_of(source: Source, header: Sequence[str], delimiter: str) -> dict[str, LabelColumn]:
    """Return the columns that may say what a row belongs to, by name."""
    positions = {name: header.index(name) for name in label_columns(header)}
    if not positions:
        return {}
    cells = read_table(source.data, source.shown, set(positions.values()), delimiter).cells
    return {name: LabelColumn.of(cells[position]) for name, position in positions.items()}


def with_split_columns(table: NumberTable, name: str, split: LabelColumn) -> NumberTable:
    """Return a table with separate columns for the rows that do not belong to the training data."""
    parted = split_columns({table.header[position]: column for position, column in table.columns.items()}, split)
    header = [*table.header, *(own for own in parted if own not in table.header)]
    columns = {header.index(own): column for own, column in parted.items()}
    return NumberTable(header, columns, table.lines, table.delimiter, [split_note(name, split), *table.notes])


def _counted(table: NumberTable, choices: Mapping[str, Sequence[int]]) -> NDArray[np.int64] | None:
    """Return the step or the epoch of each row, or None where no column counts either."""
    epoch = epoch_of(table.header)
    of_environments = [place for place in table.columns if counts_environment_steps(table.header[place])]
    counters = choices.get("step") or of_environments[:1] or ([] if epoch is None else [epoch])
    return steps_from(table.columns[fullest_counter(table.header, counters, table.columns)]) if counters else None


def imported_records(
    records: Sequence[Mapping[str, str]], source: Source, columns: Mapping[str, str], name: str, notes: Sequence[str] = ()
) -> list[Imported]:
    """Return the runs of a log whose records hold numbers as text by name; it is read as a table with one row per record.

    Args:
        records: The records, in the order of the log.
        source: The log.
        columns: Names that the user mapped, by catalogue name.
        name: The format.
        notes: How the records were obtained.

    Raises:
        UnreadableError: Where no name can be recognised, or none has a value.
        UsageError: Where `columns` names something that does not exist.
    """
    header = list(dict.fromkeys(key for record in records for key in record))
    rows = [[record.get(key, "") for key in header] for record in records]
    text = "\n".join("\t".join(row) for row in [header, *rows])
    table, labels = labelled_table(source.with_data(f"{text}\n".encode()), columns)
    choices = choices_of(table.header, columns, source.shown)
    return imported_runs(replace(table, delimiter="", notes=[*table.notes, *notes]), labels, choices, source.shown, name)


def columns_to_read(header: Sequence[str], choices: Mapping[str, Sequence[int]]) -> set[int]:
    """Return the columns to read: those of `choices`, those of tensors and layers, and possible counters of steps or epochs."""
    chosen = {position for positions in choices.values() for position in positions}
    counters = {position for position, name in enumerate(header) if may_count_steps(name)}
    passes = {place for place in (epoch_of(header), episode_counter(header)) if place is not None}
    axis = passes if "step" in choices else counters | passes
    times = named_times(header)
    return (
        chosen
        | axis
        | ({header.index(times.data), header.index(times.whole)} if times else set())
        | {*policy_losses(header), *_adversarial_positions(header)}
        | {position for position, name in enumerate(header) if place_of(name) is not None}
    )


def epoch_of(header: Sequence[str]) -> int | None:
    """Return the position of the column that counts epochs; "ep" is not taken as one beside rewards, where it may be an episode.

    >>> epoch_of(["", "ep", "train"]), epoch_of(["ep", "Epoch"]), epoch_of(["ep", "reward"])
    (1, 1, None)
    """
    names = [in_english(name).lower() for name in header]
    is_of_rewards = any(words_in(name) & _OF_REWARDS for name in header)
    words = (EPOCH,) if is_of_rewards else (EPOCH, "epochs", "ep")
    return next((names.index(word) for word in words if word in names), None)


def choices_of(header: Sequence[str], columns: Mapping[str, str], shown: str) -> dict[str, list[int]]:
    """Return the columns that may hold each catalogue name; a column that the user mapped is used for that name alone.

    Raises:
        UnreadableError: Where no column can be recognised.
        UsageError: Where `columns` names something that does not exist.
    """
    mapped = {name: [position] for name, position in resolve_columns(columns, header).items()}
    used = {positions[0] for positions in mapped.values()}
    choices = {
        name: kept
        for name, positions in recognise_columns(header).items()
        if (kept := [position for position in positions if position not in used])
    }
    if "step" in choices and (episode := episode_counter(header)) is not None and episode not in used:
        choices["step"].append(episode)
    choices |= mapped
    recognised = set(choices) - {"step", "time"} or policy_losses(header) or adversarial_pair(header)
    if not recognised and not any(place_of(name) for name in header):
        raise UnreadableError(
            f"{shown} is a table, but none of its columns has a name that is known: {list_names(header)}",
            hint=hint_on_unknown_names(header, "COLUMN"),
        )
    return choices


def curves_of(table: NumberTable, choices: Mapping[str, Sequence[int]]) -> Curves:
    """Return the series of a table with a step for each row; of several columns for one name the fullest is taken."""
    of_policy = [position for position in policy_losses(table.header) if position in table.columns]
    choices = _with_unnamed(table, choices, of_policy)
    chosen = {name: fullest_counter(table.header, positions, table.columns) for name, positions in choices.items()}
    series = {name: _in_catalogue_unit(table, position) for name, position in chosen.items()}
    named = {name: table.header[position] for name, position in chosen.items()}
    notes = drop_placeholders(series, named, nan="nan")
    timing, timed = _take_times(table, series)
    notes += _take_adversaries(table, series)
    notes += take_unix_time(series)
    axis = _steps(table, series, chosen, choices.get("step", ()))
    used = {position for positions in choices.values() for position in positions}
    unread = {*of_policy, *(() if timed else timing)} - used
    read = {position: column for position, column in table.columns.items() if position not in unread}
    layers = {
        table.header[position]: column
        for position, column in read.items()
        if position not in used | timing | {epoch_of(table.header), *_adversarial_positions(table.header)}
    }
    passed = _passed_over(table.header, chosen, choices, read)
    notes = [*note_on_taken(named, many="columns"), *passed, *axis.notes, *timed, *notes]
    # A column without any value tells nothing about the run.
    filled = [name for place, name in enumerate(table.header) if place not in table.columns or table.columns[place].count]
    plain = {name: values for name, values in series.items() if name != "step"}
    return Curves(axis.steps, plain, notes, layers, filled, axis.unit)


def _with_unnamed(
    table: NumberTable, choices: Mapping[str, Sequence[int]], of_policy: Sequence[int]
) -> Mapping[str, Sequence[int]]:
    """Return the choices with a step and a loss that no name gives: the only counter, and policy losses that diverged."""
    used = {position for positions in choices.values() for position in positions}
    free = {position: column for position, column in table.columns.items() if position not in used}
    if "step" not in choices and (counter := only_counter(table.header, free)) is not None:
        choices = {**choices, "step": [counter]}
    broken = [of_policy[place] for place in broken_losses([table.columns[position] for position in of_policy])]
    return ({"train_loss_raw": broken} if broken else {}) | {**choices}


def _in_catalogue_unit(table: NumberTable, position: int) -> Numbers:
    values, factor = table.columns[position], factor_of(table.header[position])
    return values if factor == 1 else values.times(factor)


def _take_times(table: NumberTable, series: dict[str, Numbers]) -> tuple[set[int], list[str]]:
    """Return the columns that may hold the time of a step, and a note where they were used for it."""
    times = named_times(table.header)
    if times is None:
        return set(), []
    columns = {name: table.columns[table.header.index(name)] for name in (times.data, times.whole)}
    notes = [] if "dataloader_stall_frac" in series else take_times(series, times, columns)
    return {table.header.index(name) for name in columns}, notes


def _adversarial_positions(header: Sequence[str]) -> tuple[()] | tuple[int, int]:
    """Return the positions of the generator's and the discriminator's loss, or nothing."""
    losses = adversarial_pair(header)
    return () if losses is None else (losses.generator, losses.discriminator)


def _take_adversaries(table: NumberTable, series: dict[str, Numbers]) -> list[str]:
    """Add the sum of generator and discriminator loss as the training loss where there is no other, and return notes on it."""
    places = _adversarial_positions(table.header)
    if not places or "train_loss_raw" in series:
        return []
    generator, discriminator = places
    names = table.header[generator], table.header[discriminator]
    return take_adversarial_sum(series, names, [table.columns[place] for place in places])


def _steps(table: NumberTable, series: Mapping[str, Numbers], chosen: Mapping[str, int], counters: Sequence[int]) -> StepAxis:
    episode = episode_counter(table.header)
    if episode is not None and chosen.get("step", episode) == episode:
        others = [column for name, column in series.items() if name != "step"]
        if axis := steps_of_episodes(table.header[episode], table.columns[episode], others):
            return axis
    if "step" in series:
        named = {table.header[position]: table.columns[position] for position in counters}
        steps, notes = steps_of(series["step"], table.lines)
        if better := counter_of_updates(named, series):
            steps = steps_from(named[better])
            steps, notes = forward_fill(steps, steps != NO_STEP), [CARRIED.format(better)]
        elif table.header[chosen["step"]] == CALLS:
            notes.append(ONLY_CALLS)
        epoch = epoch_of(table.header)
        steps, anew = steps_in_epochs(steps, None if epoch is None else table.columns.get(epoch))
        notes += anew
        return StepAxis(steps, [*notes, *counted_from_zero(steps, series)])
    if "tokens_seen" in series and "tokens_per_update" in series:
        derived = steps_of_tokens(series["tokens_seen"], series["tokens_per_update"])
        if derived is not None:
            return StepAxis(derived, ["no column holds the step: it was computed as tokens seen over tokens per update"])
    epoch = epoch_of(table.header)
    if epoch is not None and (axis := steps_of_epochs(table.columns[epoch], series.values())):
        return axis
    rows = np.arange(1, len(table.lines) + 1)
    return StepAxis(rows, [NUMBERED], "entry")


def _passed_over(
    header: Sequence[str], chosen: Mapping[str, int], choices: Mapping[str, Sequence[int]], read: Collection[int]
) -> list[str]:
    notes = []
    for name, positions in choices.items():
        if len(positions) > 1:
            others = [header[position] for position in positions if position != chosen[name]]
            notes.append(note_on_other_choices(name, others))
    unread = {position: name for position, name in enumerate(header) if position not in read}
    labels = label_columns(unread.values())
    taken = [name for position, name in enumerate(header) if position in read]
    return notes + notes_on_left_out([name or "(no name)" for name in unread.values() if name not in labels], taken)
