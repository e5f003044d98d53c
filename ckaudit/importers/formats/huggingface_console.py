"""Console output of the Hugging Face Trainer: its log entries as dictionaries, between the progress bars.

`{'loss': '2.63', 'grad_norm': '1.2', 'learning_rate': '5e-05', 'epoch': '0.1'}` names its epoch but not its step. The training's
progress bar, ` 2%|▏ | 10/500 [00:05<04:10, 1.96it/s]`, is drawn again after each entry and gives its step, as
ms-swift's `'global_step/max_steps': '10/500'` does. Without them, the step follows from the duration and the steps per second in
the final summary. With neither, entries with a training loss are numbered in order. Where the epoch falls back to the first one,
another run begins; where it falls back to any other, the run was resumed.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from sys import intern

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike

from ckaudit.importers.formats.huggingface import NO_SERIES, members_by_name, names_of_members
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.curves import StepAxis
from ckaudit.importers.tables.numbers import MAX_STEP, Numbers, fill_missing, number
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_reader import LogContent, RunFact, StepLines, step_lines
from ckaudit.importers.text.log import Format, NamedLines, no_run_facts, parsed_dialect, read_scanned

NAME = "Hugging Face Trainer's console"
GENERIC = False
HEAD_BYTES = 2**21
MIN_ENTRIES = 2
_MARK = b"'epoch': "
_OWN = {"learning_rate", "grad_norm", "eval_runtime", "train_runtime"}
_TOKEN = re.compile(r"\| {0,8}(\d{1,10})/(\d{1,10}) \[|(\{'[^{}\r\n]{4,4000}\})|\n")
_MEMBER = re.compile(r"'([^'\\]{1,200})': (?:'([^']{1,40})'|([^,'}]{1,40}))")
_PLACE = re.compile(r"'global_step/max_steps': '(\d{1,10})/(\d{1,10})'")


class PrintedEntry(Struct):
    """One dictionary, and the progress bars after it.

    Attributes:
        line: Its line number.
        values: Its numbers by key.
        bars: Position of the first bar of each total, by total: the bars of the training and of its evaluations.
    """

    line: int
    values: dict[str, float]
    bars: dict[int, int]

    @property
    def epoch(self) -> float:
        """The epoch of the entry, with fractions."""
        return self.values["epoch"]

    @property
    def is_trained(self) -> bool:
        """Whether the entry holds a training loss, and so is neither an evaluation nor a summary."""
        return "loss" in self.values


def detects(source: Source) -> bool:
    """Tell whether two entries have an epoch and a loss, and an entry has a member that only this trainer logs."""
    if source.is_folder or _MARK not in source.data[:HEAD_BYTES]:
        return False
    text = source.data[:HEAD_BYTES].decode("utf-8", errors="replace")
    entries = list(_entries(text))
    with_a_loss = [entry for entry in entries if {"loss", "eval_loss"} & entry.values.keys()]
    is_own = _PLACE.search(text) is not None or any(_OWN & entry.values.keys() for entry in entries)
    return is_own and len(with_a_loss) >= MIN_ENTRIES


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the entries; `columns` may name further members of them.

    Raises:
        UnreadableError: Where no entry has a value.
        UsageError: Where `columns` names a member that no entry has.
    """
    lines: list[tuple[int, int, dict[str, float]]] = []
    axis = StepAxis(np.empty(0, np.int64), [])
    for entries in _trainings(list(_entries(source.text))):
        axis = _steps(entries)
        lines += [
            (entry.line, step, entry.values)
            for entry, step in zip(entries, axis.steps.tolist(), strict=True)
            if "train_runtime" not in entry.values
        ]
    rows = step_lines(lines)
    rows.columns = {key: column for key, column in rows.columns.items() if not NO_SERIES.fullmatch(key)}
    names = names_of_members(rows.columns, {}, _losses(rows))
    unwanted = [] if columns else [key for key in rows.columns if key not in dict(members_by_name(rows.columns, names))]
    log = LogContent(rows, [], error_lines(source.data), source.line_count, [], unwanted)

    def named(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
        return _named(rows, mapped, axis)

    return read_scanned(log, source, columns, Format(parsed_dialect(NAME, lambda _: True), named, no_run_facts))


def _entries(text: str) -> Iterator[PrintedEntry]:
    """Yield the dictionaries that name an epoch, each with the bars after it."""
    entry: PrintedEntry | None = None
    line = 1
    for token in _TOKEN.finditer(text):
        if token[3]:
            members = _MEMBER.findall(token[3])
            values = {intern(key): value for key, *texts in members if (value := number("".join(texts))) is not None}
            if "epoch" not in values:
                continue
            if entry:
                yield entry
            place = _PLACE.search(token[3])
            entry = PrintedEntry(line, values, {int(place[2]): int(place[1])} if place else {})
        elif token[1] and entry:
            entry.bars.setdefault(int(token[2]), int(token[1]))
        line += token[0] == "\n"
    if entry:
        yield entry


def _trainings(entries: list[PrintedEntry]) -> Iterator[list[PrintedEntry]]:
    """Yield the entries of each training: a new one begins where the epoch falls to the first epoch or below."""
    starts = [
        place for place, (before, after) in enumerate(pairwise(entries), 1) if after.epoch <= entries[0].epoch < before.epoch
    ]
    for begin, end in pairwise([0, *starts, len(entries)]):
        if any("loss" in key for entry in entries[begin:end] for key in entry.values):
            yield entries[begin:end]


def _steps(entries: Sequence[PrintedEntry]) -> StepAxis:
    """Return the step of each entry of a training, from the first method in which the steps of training entries rise."""
    totals = Counter(total for entry in entries if entry.is_trained for total in entry.bars)
    total = totals.most_common(1)[0][0] if totals else 0
    if per_epoch := _steps_of_epoch(entries, total):
        by_epochs = np.rint([entry.epoch * per_epoch for entry in entries])
        by_bars = [min(entry.bars.get(total, step), MAX_STEP) for entry, step in zip(entries, by_epochs.tolist(), strict=True)]
        if total and _rise(by_bars, entries):
            return StepAxis(np.array(by_bars, np.int64), ["steps were taken from bars"])
        if _rise(by_epochs, entries):
            return StepAxis(by_epochs.astype(np.int64), ["steps follow from epochs, and may be wrong by a few"])
    note = (
        "no line names a step: entries with a training loss were numbered from 1; how many updates lie between them is not known"
    )
    return StepAxis(np.cumsum([entry.is_trained for entry in entries]), [note], "entry")


def _rise(steps: ArrayLike, entries: Sequence[PrintedEntry]) -> bool:
    """Tell whether numbers are valid steps, and those of training entries rise."""
    numbers = np.asarray(steps, float)
    return bool((np.abs(numbers) < MAX_STEP).all() and (np.diff(numbers[[entry.is_trained for entry in entries]]) > 0).all())


def _steps_of_epoch(entries: Sequence[PrintedEntry], total: int) -> float:
    """Return the number of steps per epoch, from the training's bars or its summary; 0 where neither gives it."""
    shares = [entry.bars[total] / entry.epoch for entry in entries if entry.bars.get(total) and entry.epoch > 0]
    if shares:
        return float(np.median(shares))
    for entry in entries:
        seconds, speed = entry.values.get("train_runtime"), entry.values.get("train_steps_per_second")
        if seconds and speed and entry.epoch > 0:
            return round(seconds * speed) / entry.epoch
    return 0.0


def _losses(rows: StepLines) -> Sequence[float]:
    loss = rows.columns.get("loss")
    return [] if loss is None else loss.values[loss.recorded].tolist()


def _named(rows: StepLines, mapped: Mapping[str, str], axis: StepAxis) -> NamedLines:
    """Give the columns their catalogue names."""
    columns: dict[str, Numbers] = {}
    names = names_of_members(rows.columns, mapped, _losses(rows))
    for key, name in members_by_name(rows.columns, names):
        columns[name] = fill_missing(columns[name], rows.columns[key]) if name in columns else rows.columns[key]
    return NamedLines(StepLines(rows.steps, rows.origin, columns), axis.notes, step_unit=axis.unit)
