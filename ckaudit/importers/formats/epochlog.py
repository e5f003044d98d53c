"""Lines of epochs: what most training scripts print, `Epoch 3/30 - train loss: 0.49, val loss: 0.52`, in one line or in several.

A line names an epoch, and perhaps how far it has got, `Epoch: [3][50/391] Loss 2.1 (2.3)`; values without an epoch in their line
belong to the last one that was named, and are an evaluation's after a line that says no more than that one begins. Batches count
anew in each epoch, so an update is epochs finished times batches of an epoch plus batch; where no line names a batch, epochs are
the axis. PyTorch's tutorials print the epoch and the batch as `[2,  4000] loss: 1.2` or `[0/5][50/1583] Loss_D: 0.5`, and samples
instead of batches as `Train Epoch: 2 [640/60000 (1%)]` or `loss: 2.3  [  640/60000]`. The name may stand before its epoch, as in
`Loss after epoch 3: 0.5`. A bare `loss` in a line on validation is the validation loss, and so is one on a test after each epoch
where no line tells of validation; a single one, or one of a batch of an evaluation, is left out. Where no line names a loss, the
one measure of error that training and validation share is one. Of `Loss 2.1 (2.3)` the first number is taken, that of the batch;
the second is the mean so far. Lines in a row that name one epoch and no batch are of its batches, in their order.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import StepUnit
from ckaudit.importers.formats.keyvalue import NAME_BEFORE, VALUE_BEHIND
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import only_loss
from ckaudit.importers.names import shorten_name
from ckaudit.importers.tables.numbers import Numbers, count_of, number
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_patterns import NO_RANK, Cell, LineOrigin, LinePattern, learn_pattern
from ckaudit.importers.text.line_reader import MAX_FORMS, LogContent, RunFact, StepLines
from ckaudit.importers.text.line_values import OF_TEST, TEST, is_wanted, name_of, named_lines, value_cells
from ckaudit.importers.text.log import Format, NamedLines, is_text, no_run_facts, parsed_dialect, read_scanned
from ckaudit.importers.text.prefix import MAX_LINE, NOBODY, mark_of, numbered_lines, prefix_end

NAME = "epoch text log"
GENERIC = True
MAX_TOLD = 2**21  # bytes in which a log of this kind has shown two epochs
_EPOCH = re.compile(
    r"(?<![A-Za-z_])(?:epoch\b(?:\((?:train|val|test)\))?|episode\b|train:(?= \d+ \[))[\s:#=\[(]*(\d+)(?:\s*(?:/|of)\s*(\d+))?",
    re.IGNORECASE,
)
_BATCH = re.compile(
    r"\A\s*\]\s*\[\s*(\d+)(?:\s*/\s*(\d+))?\s*\]|(?<![A-Za-z_])(?:iters?|iterations?|batch|step)\b[\s:#=\[(]*(\d+)(?:\s*/\s*(\d+))?",
    re.IGNORECASE,
)
_PLACE = re.compile(  # epoch and batch
    r"\[\s*(\d{1,9})(?:\s*,\s*|/\d{1,9}\]\s*\[)(\d{1,12})(?:/(\d{1,12}))?\s*\](?=.{0,40}loss)", re.IGNORECASE
)
_PLACE_MARK = re.compile(rb"\[ *\d{1,9}(?:, *|/\d{1,9}\] ?\[)\d{1,12}(?:/\d{1,12})?\]\s.{0,40}[Ll]oss")
_NAME_FIRST = re.compile(rf"{NAME_BEFORE}(epoch\s{{0,2}}[#:]?\s{{0,2}}\d{{1,9}}){VALUE_BEHIND}", re.IGNORECASE)
_SAMPLES = re.compile(r"\A[^\[]*\[\s*(\d{1,12})\s*/\s*(\d{1,12})\s*(?:\(\s*\d+(?:\.\d+)?\s*%\s*\)\s*\]|\]\s*\Z)")
_BEGINS = re.compile(
    r"\A\W*(?:(?:begin|start)\w*\W+(?:of\W+)?)?(eval\w*|valid\w*|test\w*)(?:\W+(?:(?:begin|start)\w*|error))?\W*\Z", re.IGNORECASE
)
_ANY_NUMBER = re.compile(r"(?<![A-Za-z_@0-9.])[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?")
_EPOCH_KEY, _BATCH_KEY, _BATCHES_KEY = " epoch", " batch", " batches"  # no key of a value begins with a blank
_EVALUATES = ("epoch(val", "epoch(test")  # as MMEngine writes it
_TIMES = ("time", "data_time")
_COUNTER = "global_step"
_LOSSES = ("train_loss_raw", "val_loss")
_SCORE = "microbench_score/"


class EpochLine(Struct, frozen=True, gc=False):
    """The values of one line, and where in the training it stands.

    Attributes:
        line: Its number.
        text: What stands before its values: time and rank.
        epoch: The epoch that it names, or the last one named before it.
        batch: Batch of the epoch, None where the line tells of the epoch as a whole.
        batches: Batches of an epoch, None where the line does not say.
        values: Text of the values by key.
        in_samples: Whether it counts samples, not batches.
        names_epoch: Whether the line names its epoch itself.
    """

    line: int
    text: str
    epoch: int
    batch: int | None
    batches: int | None
    values: dict[str, str]
    in_samples: bool = False
    names_epoch: bool = False


def detects(source: Source) -> bool:
    """Tell by two epochs with a loss each, whose batches, where they are named, count anew; or with losses of parts alone."""
    if not is_text(source) or not (
        b"poch" in source.data
        or b"pisode" in source.data
        or b"Train: " in source.data
        or _PLACE_MARK.search(source.data[:MAX_TOLD])
    ):
        return False
    lines, _ = _with_errors(list(_lines(source.data[:MAX_TOLD])))
    with_a_loss = [line for line in lines if any(_holds(line, name) for name in _LOSSES)]
    if len({line.epoch for line in with_a_loss}) < 2:
        return not with_a_loss and (_are_of_parts(lines) or _are_of_scores(lines))
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
    lines, counted = _of_one_unit(list(_lines(source.data)))
    lines, renamed = (lines, []) if columns else _with_errors(lines)
    lines, numbered = _with_numbers(lines)
    lines, tested = _with_tests(lines)
    # A line of unknown numbers, such as "Starting training for 30 epochs", is of no step, and its time is none of the training.
    known = lines if columns else [line for line in lines if any(name_of(key) for key in line.values)]
    chosen = _of_one_grain(known or lines)
    rows, notes = _rows(chosen)
    unit: StepUnit | UnsetType = UNSET if any(line.batch is not None for line in chosen) or _counters(chosen) else "epoch"
    notes += counted + renamed + numbered + tested
    keys = {key for line in lines for key in line.values}
    unwanted = [] if columns else sorted(key for key in keys if name_of(key) is None and key != _COUNTER)
    log = LogContent(rows, [], error_lines(source.data), source.line_count, [], unwanted)

    def meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
        return replace(_named(rows, mapped, notes), step_unit=unit)

    return read_scanned(log, source, columns, Format(parsed_dialect(NAME, is_wanted), meaning, no_run_facts))


def _are_of_parts(lines: Sequence[EpochLine]) -> bool:
    """Tell by a loss, or two decimal numbers, of names of their own in two epochs: a generator's and its judge's, say."""
    epochs: dict[str, set[int]] = {}
    for line in lines:
        for key, text in line.values.items():
            if "." in text and name_of(key) is None:
                epochs.setdefault(key, set()).add(line.epoch)
    told = [key for key, of in epochs.items() if len(of) > 1]
    return len(told) > 1 or any("loss" in key for key in told)


def _are_of_scores(lines: Sequence[EpochLine], *, min_epochs: int = 3) -> bool:
    """Tell by a score or a return of a known name in so many epochs or episodes."""
    scored = {line.epoch for line in lines if any((name_of(key) or "").startswith(_SCORE) for key in line.values)}
    return len(scored) >= min_epochs


class _LineForm(NamedTuple):
    """What the lines have in common that a program prints by one format string.

    Attributes:
        pattern: Where their numbers stand.
        phase: The word of the evaluation that an earlier line began, None where they name their epoch.
        with_prefix: Whether the epoch stands in what looks like a prefix.
        in_samples: Whether they count samples, not batches.
    """

    pattern: LinePattern
    phase: str | None
    with_prefix: bool
    in_samples: bool

    def texts(self, line: str, start: int, phase: str) -> dict[str, str] | None:
        """Return the numbers of a line by key, None where it is of another form."""
        if self.phase not in {None, phase} or not (match := self.pattern.match(line, 0 if self.with_prefix else start)):
            return None
        texts = dict(zip(self.pattern.keys, match.groups(), strict=True))
        texts.pop("", None)
        return texts


def _lines(data: bytes) -> Iterator[EpochLine]:
    """Yield every line with a value, once an epoch was named; a line of a form that was seen before costs one match."""
    epoch: int | None = None
    phase = ""
    forms: list[_LineForm] = []
    for number_of, line in numbered_lines(data):
        if len(line) > MAX_LINE:
            continue
        if " epoch" in line or " Epoch" in line:
            line = _NAME_FIRST.sub(r"\2 \1: \3", line)  # noqa: PLW2901  the same in the usual order
        start = prefix_end(line)
        for form in forms:
            if (texts := form.texts(line, start, phase)) is not None:
                in_samples = form.in_samples
                break
        else:
            cells, in_samples = _cells(line, start, phase)
            if not cells and (begins := _BEGINS.match(line[start:])):
                phase = f"{begins[1]} "
            texts = {cell.key: line[cell.start : cell.end] for cell in cells}
            if cells and len(forms) < MAX_FORMS and (learned := _learn(line, start, cells, phase, in_samples)):
                forms.append(learned)
        names_epoch = _EPOCH_KEY in texts
        if names_epoch:
            epoch, phase = count_of(texts.pop(_EPOCH_KEY)), ""
        batch, batches = count_of(texts.pop(_BATCH_KEY, "")), count_of(texts.pop(_BATCHES_KEY, ""))
        if epoch is not None and texts:
            yield EpochLine(number_of, line[:start], epoch, batch, batches, texts, in_samples, names_epoch)


def _learn(line: str, start: int, cells: Sequence[Cell], phase: str, in_samples: bool) -> _LineForm | None:
    """Return the form of a line, None where it would not find the same numbers again."""
    with_prefix = cells[0].start < start
    begin = 0 if with_prefix else start
    spans = [(run.start(), run.end()) for run in _ANY_NUMBER.finditer(line, begin)]
    others = [Cell("", *span) for span in spans if not any(span[0] < cell.end and cell.start < span[1] for cell in cells)]
    pattern = learn_pattern(line, begin, sorted([*cells, *others], key=lambda cell: cell.start), bool)
    form = _LineForm(pattern, None if cells[0].key == _EPOCH_KEY else phase, with_prefix, in_samples)
    return form if form.texts(line, start, phase) == {cell.key: line[cell.start : cell.end] for cell in cells} else None


def _cells(line: str, start: int, phase: str) -> tuple[list[Cell], bool]:
    """Return the epoch, the batch and the values of a line, and whether it counts samples in place of batches.

    Args:
        line: The line.
        start: Where its text begins.
        phase: The word of the evaluation that an earlier line began, empty where none did.
    """
    place = _PLACE.match(line, start) or _PLACE.match(line)
    mark = place or _EPOCH.search(line)
    begin = mark.end() if mark else start
    batch = None if place else _BATCH.search(line[begin:])
    samples = None if place or batch else _SAMPLES.match(line[begin:])
    counted = place or batch or samples
    groups = (2, 3) if place else (1, 2) if samples or (batch and batch[1]) else (3, 4)
    moved = 0 if place else begin
    cells = [Cell(_EPOCH_KEY, *mark.span(1))] if mark else []
    of_training = mark is None or not mark[0].lower().startswith(_EVALUATES)
    if counted and of_training:
        spans = zip((_BATCH_KEY, _BATCHES_KEY), map(counted.span, groups), strict=True)
        cells += [Cell(key, moved + at, moved + to) for key, (at, to) in spans if at >= 0]
    values = value_cells(line, begin + (batch.end() if batch else 0), "" if mark else phase)
    values = values if of_training else [cell._replace(key=f"val {cell.key}") if cell.key in _TIMES else cell for cell in values]
    of_batches = mark is not None and mark[0].lower().startswith("train")  # as timm writes it
    return ([*cells, *values] if mark or values else []), samples is not None and not of_batches


def _with_errors(lines: list[EpochLine]) -> tuple[list[EpochLine], list[str]]:
    """Return the lines, the one measure of error of training and validation as their losses where none is named, and a note."""
    keys = list(dict.fromkeys(key for line in lines for key in line.values))
    lone = None if any(name_of(key) in _LOSSES for key in keys) else only_loss([TEST.sub("val", key) for key in keys])
    if lone is None or lone.val is None:
        return lines, []
    names = {keys[lone.train]: "train loss", keys[lone.val]: "val loss"}
    renamed = [replace(line, values={names.get(key, key): text for key, text in line.values.items()}) for line in lines]
    return renamed, [
        f"no line names a loss: {shorten_name(keys[lone.train])} and {shorten_name(keys[lone.val])} were taken for it"
    ]


def _of_one_unit(lines: list[EpochLine]) -> tuple[list[EpochLine], list[str]]:
    """Return the lines, samples counted in the largest number of them that divides all counts, and a note that says so."""
    unit = math.gcd(*(line.batch or 0 for line in lines if line.in_samples))
    if not unit:
        return lines, []
    scaled = [
        replace(line, batch=(line.batch or 0) // unit, batches=-(-(line.batches or 0) // unit)) if line.in_samples else line
        for line in lines
    ]
    return scaled, [f"its lines count samples, in multiples of {unit:,}: a batch here is {unit:,} of them"]


def _with_numbers(lines: list[EpochLine], *, min_lines: int = 3) -> tuple[list[EpochLine], list[str]]:
    """Return the lines, those of batches that no line numbers as they stand in their epoch, and a note that says so.

    They are lines that name their epoch and hold one key of the training loss, at least `min_lines` in the median epoch.
    """
    if any(line.batch is not None for line in lines) or _counters(lines):
        return lines, []
    if 2 * len(lines) < min_lines * (1 + sum(after.epoch != before.epoch for before, after in pairwise(lines))):
        return lines, []  # half of the epochs cannot have so many
    epochs = [list(of_epoch) for _, of_epoch in groupby(lines, key=lambda line: line.epoch)]
    repeats: dict[str, list[int]] = {}
    for of_epoch in epochs:
        keys = Counter(key for line in of_epoch if line.names_epoch for key in line.values if name_of(key) == "train_loss_raw")
        for key, in_epoch in keys.items():
            repeats.setdefault(key, []).append(in_epoch)
    of_batches = [key for key, in_epochs in repeats.items() if np.median(in_epochs) >= min_lines]
    if len(of_batches) != 1:
        return lines, []
    numbered: list[EpochLine] = []
    for of_epoch in epochs:
        batch = 0
        for line in of_epoch:
            batch += of_batches[0] in line.values
            numbered.append(replace(line, batch=batch) if of_batches[0] in line.values else line)
    return numbered, ["no line names a batch: those of an epoch were numbered from 1, as they stand"]


def _with_tests(lines: list[EpochLine]) -> tuple[list[EpochLine], list[str]]:
    """Return the lines, their test losses as validation losses where these are told in several epochs and no others are."""
    tested = {line.epoch for line in lines if OF_TEST in line.values}
    if len(tested) < 2 or any(_holds(line, "val_loss") for line in lines):
        return lines, []
    renamed = [
        replace(line, values={"val loss" if key == OF_TEST else key: text for key, text in line.values.items()}) for line in lines
    ]
    return renamed, ["val_loss is the loss on a test set, which is told in each epoch; no line tells of another validation"]


def _of_one_grain(lines: Sequence[EpochLine]) -> list[EpochLine]:
    """Return the lines, of training losses of batches and of whole epochs those of which there are more."""
    of_parts = (line for line in lines if any("." in text and name_of(key) is None for key, text in line.values.items()))
    trained = [line for line in lines if _holds(line, "train_loss_raw")] or list(of_parts)
    inside = [line for line in trained if line.batch is not None]
    of_batches = len(inside) > len(trained) - len(inside)
    chosen = []
    for line in lines:
        if line.batch is not None and _holds(line, "val_loss") and not _holds(line, "train_loss_raw"):
            continue  # a batch of an evaluation
        if (line.batch is not None) == of_batches:
            chosen.append(line)
        elif held_out := {key: text for key, text in line.values.items() if _is_held_out(key) and line.batch is None}:
            chosen.append(EpochLine(line.line, line.text, line.epoch, None, None, held_out))
    return chosen


def _is_held_out(key: str) -> bool:
    return (name_of(key) or "").startswith(("val_loss", _SCORE))


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
    ranks, times = np.full(len(lines), NO_RANK, np.int64), np.full(len(lines), np.nan)
    for place, line in enumerate(lines):
        if (mark := mark_of(line.text)) is NOBODY:
            continue
        ranks[place] = NO_RANK if mark.rank is None else mark.rank
        times[place] = np.nan if mark.time is None else mark.time
    origin = LineOrigin(np.array([line.line for line in lines], np.int64), ranks, times)
    steps, notes = _steps(lines)
    return StepLines(steps, origin, columns), notes


def _steps(lines: Sequence[EpochLine]) -> tuple[np.ndarray, list[str]]:
    epochs = np.array([line.epoch for line in lines], np.int64)
    done = epochs - (int(epochs.min()) if len(epochs) and epochs.min() <= 1 else 1)  # epochs finished before each line
    inside = [line for line in lines if line.batch is not None]
    if not inside and (counted := _counters(lines)):
        return np.array(counted, np.int64), [
            f"updates are those of {_COUNTER}; a line without it stands where the last one stood"
        ]
    if not inside:
        return done + 1, ["epochs are the axis, step N here is the end of the N-th; how many updates one took is not recorded"]
    last = max(line.batch or 0 for line in inside)
    from_zero = int(any(line.batch == 0 for line in inside))
    size = max([last + from_zero, *(line.batches for line in inside if line.batches)])
    within = [size if line.batch is None else min(line.batch + from_zero, size) for line in lines]
    note = f"batches count anew in each epoch: update N is epochs finished times {size:,}, plus the batch"
    return done * size + np.array(within, np.int64), [note]


def _counters(lines: Sequence[EpochLine]) -> list[int]:
    """Return the update of each line by the counter that all lines with a training loss hold, none where one does not."""
    counted: list[int] = []
    for line in lines:
        own = count_of(line.values.get(_COUNTER, ""))
        if own is None and (not counted or _holds(line, "train_loss_raw")):
            return []
        counted.append(counted[-1] if own is None else own)
    return counted


def _named(rows: StepLines, mapped: Mapping[str, str], notes: Sequence[str]) -> NamedLines:
    """Give the columns their names; a validation loss of exactly 0 beside a training loss was not computed."""
    named = named_lines(rows, mapped, notes)
    columns = named.rows.columns
    if "val_loss" in columns and "train_loss_raw" in columns:
        zero = columns["val_loss"].recorded & (columns["val_loss"].values == 0)
        if zero.any() and zero.sum() == columns["val_loss"].recorded.sum():
            del columns["val_loss"]
            named.notes.append("the validation loss is exactly 0 throughout: it was not computed, and was left out")
    return named
