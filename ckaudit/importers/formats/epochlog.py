"""Lines of epochs: what most training scripts print, `Epoch 3/30 - train loss: 0.49, val loss: 0.52`, in one line or in several.

A line names an epoch, and perhaps how far it has got, `Epoch: [3][50/391] Loss 2.1 (2.3)`; values without an epoch in their line
belong to the last one that was named, and are an evaluation's after a line that says no more than that one begins. Batches count
anew in each epoch, so an update is epochs finished times batches of an epoch plus batch; where no line names a batch, epochs are
the axis. A bare `loss` in a line on validation is the validation loss, one in a line on a test or on a batch of an evaluation is
left out. Of `Loss 2.1 (2.3)` the first number is taken, that of the batch; the second is the mean so far.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from ckaudit.importers.formats.keyvalue import PAIR, name_of
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import shorten_name
from ckaudit.importers.tables.numbers import Numbers, fill_missing, number
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_patterns import NO_RANK, LineOrigin
from ckaudit.importers.text.line_reader import Dialect, Fact, LogContent, StepLines
from ckaudit.importers.text.log import Format, NamedLines, is_text, read_scanned
from ckaudit.importers.text.prefix import MAX_LINE, blocks, mark_of, prefix_end

NAME = "epoch text log"
GENERIC = True
MAX_TOLD = 2**21  # bytes in which a log of this kind has shown two epochs
_EPOCH = re.compile(r"(?<![A-Za-z_])epoch\b[\s:#=\[(]*(\d+)(?:\s*(?:/|of)\s*(\d+))?", re.IGNORECASE)
_BATCH = re.compile(
    r"\A\s*\]\s*\[\s*(\d+)(?:\s*/\s*(\d+))?\s*\]|(?<![A-Za-z_])(?:iter(?:ation)?|batch|step)\b[\s:#=\[(]*(\d+)(?:\s*/\s*(\d+))?",
    re.IGNORECASE,
)
_HELD_OUT = re.compile(r"(?<![A-Za-z])(?:val|valid|validation|eval|evaluation|dev)(?![A-Za-z])", re.IGNORECASE)
_BEGINS = re.compile(
    r"\A\W*(?:(?:begin|start)\w*\W+(?:of\W+)?)?(eval\w*|valid\w*|test\w*)(?:\W+(?:begin|start)\w*)?\W*\Z", re.IGNORECASE
)
_TEST = re.compile(r"(?<![A-Za-z])(?:test|testing)(?![A-Za-z])", re.IGNORECASE)
_MEAN = re.compile(r"[ _](?:avg|average|mean|is)\Z|\A(?:avg|average|mean)[ _]")
_LOSSES = ("train_loss_raw", "val_loss")


class EpochLine(Struct, frozen=True):
    """The values of one line, and where in the training it stands.

    Attributes:
        line: Its number.
        text: What stands before its values: time and rank.
        epoch: The epoch that it names, or the last one named before it.
        batch: Batch of the epoch, None where the line tells of the epoch as a whole.
        batches: Batches of an epoch, None where the line does not say.
        values: Text of the values by key.
    """

    line: int
    text: str
    epoch: int
    batch: int | None
    batches: int | None
    values: dict[str, str]


def detects(source: Source) -> bool:
    """Tell by two epochs with a loss each, whose batches, where they are named, count anew."""
    if not is_text(source) or b"poch" not in source.data:
        return False
    with_a_loss = [line for line in _lines(source.data[:MAX_TOLD]) if any(_holds(line, name) for name in _LOSSES)]
    if len({line.epoch for line in with_a_loss}) < 2:
        return False
    inside = [line for line in with_a_loss if line.batch is not None and _holds(line, "train_loss_raw")]
    return not inside or any(
        after.epoch != before.epoch and (after.batch or 0) <= (before.batch or 0) for before, after in pairwise(inside)
    )


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read lines of epochs.

    Raises:
        UnreadableError: Where no epoch has a value.
        UsageError: Where `columns` names what no line holds.
    """
    lines = list(_lines(source.data))
    rows, notes = _rows(_of_one_grain(lines))
    count = source.data.count(b"\n") + 1
    keys = {key for line in lines for key in line.values}
    unwanted = [] if columns else sorted(key for key in keys if name_of(key) is None)
    log = LogContent(rows, [], error_lines(source.data), count, [], unwanted)

    def meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[Fact]) -> NamedLines:
        return _named(rows, mapped, notes)

    return read_scanned(log, source, columns, Format(_DIALECT, meaning, _manifest))


def _lines(data: bytes) -> Iterator[EpochLine]:
    """Yield every line with a value, once an epoch was named."""
    epoch: int | None = None
    phase = ""
    for block in blocks(data):
        for number_of, line in enumerate([*block.lines, *([block.torn] if block.torn else [])], block.first):
            if len(line) > MAX_LINE:
                continue
            mark = _EPOCH.search(line)
            if mark:
                epoch, phase = int(mark[1]), ""
            elif begins := _BEGINS.match(line[prefix_end(line) :]):
                phase = f"{begins[1]} "
            if epoch is None:
                continue
            begin = mark.end() if mark else prefix_end(line)
            batch = _BATCH.search(line[begin:])
            after = begin + (batch.end() if batch else 0)
            if values := _values(line, after, phase):
                at, of = (batch[1] or batch[3], batch[2] or batch[4]) if batch else (None, None)
                text = line[: prefix_end(line)]
                yield EpochLine(number_of, text, epoch, int(at) if at else None, int(of) if of else None, values)


def _values(line: str, begin: int, phase: str) -> dict[str, str]:
    """Return the values of a line by key: `loss` in a line on validation is "val loss", in one on a test it is none.

    Args:
        line: The line.
        begin: Where its values begin.
        phase: The word of the evaluation that an earlier line began, empty where none did.
    """
    values: dict[str, str] = {}
    for pair in PAIR.finditer(line, begin):
        key = _MEAN.sub("", pair[1].lower())
        if key == "loss" or (key.endswith("loss") and name_of(key) == "train_loss_raw" and "train" not in key):
            before = phase + line[: pair.start()]
            if _TEST.search(before):
                continue
            key = "val loss" if _HELD_OUT.search(before) else key
        values.setdefault(key, pair[2])
    return values


def _of_one_grain(lines: Sequence[EpochLine]) -> list[EpochLine]:
    """Return the lines, of training losses of batches and of whole epochs those of which there are more."""
    trained = [line for line in lines if _holds(line, "train_loss_raw")]
    inside = [line for line in trained if line.batch is not None]
    of_batches = len(inside) > len(trained) - len(inside)
    chosen = []
    for line in lines:
        if line.batch is not None and _holds(line, "val_loss") and not _holds(line, "train_loss_raw"):
            continue  # a batch of an evaluation
        if (line.batch is not None) == of_batches:
            chosen.append(line)
        elif held_out := {key: text for key, text in line.values.items() if name_of(key) == "val_loss" and line.batch is None}:
            chosen.append(EpochLine(line.line, line.text, line.epoch, None, None, held_out))
    return chosen


def _holds(line: EpochLine, name: str) -> bool:
    return any(name_of(key) == name for key in line.values)


def _rows(lines: Sequence[EpochLine]) -> tuple[StepLines, list[str]]:
    """Return the lines as columns by key, with the update of each, and notes on how it was counted."""
    keys = list(dict.fromkeys(key for line in lines for key in line.values))
    columns = {}
    for key in keys:
        values = [number(line.values[key].replace(",", "")) if key in line.values else None for line in lines]
        known = np.array([value is not None for value in values], bool)
        columns[key] = Numbers(np.array([np.nan if value is None else value for value in values], np.float64), known)
    marks = [mark_of(line.text) for line in lines]
    origin = LineOrigin(
        np.array([line.line for line in lines], np.int64),
        np.array([NO_RANK if mark.rank is None else mark.rank for mark in marks], np.int64),
        np.array([np.nan if mark.time is None else mark.time for mark in marks], np.float64),
    )
    steps, notes = _steps(lines)
    return StepLines(steps, origin, columns), notes


def _steps(lines: Sequence[EpochLine]) -> tuple[np.ndarray, list[str]]:
    epochs = np.array([line.epoch for line in lines], np.int64)
    done = epochs - (int(epochs.min()) if len(epochs) and epochs.min() <= 1 else 1)  # epochs finished before each line
    inside = [line for line in lines if line.batch is not None]
    if not inside:
        return done + 1, ["epochs are the axis, step N here is the end of the N-th; how many updates one took is not recorded"]
    last = max(line.batch or 0 for line in inside)
    from_zero = int(any(line.batch == 0 for line in inside))
    size = max([last + from_zero, *(line.batches for line in inside if line.batches)])
    within = [size if line.batch is None else min(line.batch + from_zero, size) for line in lines]
    note = f"batches count anew in each epoch: update N is epochs finished times {size:,}, plus the batch"
    return done * size + np.array(within, np.int64), [note]


def _named(rows: StepLines, mapped: Mapping[str, str], notes: Sequence[str]) -> NamedLines:
    """Give the columns their names; a validation loss of exactly 0 beside a training loss was not computed."""
    columns: dict[str, Numbers] = {}
    taken = []
    for key, column in rows.columns.items():
        name = mapped.get(key) or name_of(key)
        if name and name not in ("step", "time", "step_time"):
            columns[name] = fill_missing(columns[name], column) if name in columns else column
            taken.append(f"{name} from {shorten_name(key)}")
    loss_notes = []
    if "val_loss" in columns and "train_loss_raw" in columns:
        zero = columns["val_loss"].recorded & (columns["val_loss"].values == 0)
        if zero.any() and zero.sum() == columns["val_loss"].recorded.sum():
            del columns["val_loss"]
            loss_notes.append("the validation loss is exactly 0 throughout: it was not computed, and was left out")
    return NamedLines(StepLines(rows.steps, rows.origin, columns), [f"taken: {', '.join(taken)}", *notes, *loss_notes])


def _manifest(*_: object) -> list[str]:
    """Say nothing: such a log tells nothing of its run as a whole."""
    return []


def _no_cells(*_: object) -> None:
    """Find no cells: the lines were taken apart already."""


def _nothing_follows(_: str) -> bool:
    return False


def _no_facts(_: str) -> tuple[tuple[str, str], ...]:
    return ()


_DIALECT = Dialect(NAME, (), _no_cells, lambda key: name_of(key) is not None, _nothing_follows, (), _no_facts)
