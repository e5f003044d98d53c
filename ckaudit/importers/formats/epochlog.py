"""Lines of epochs: what most training scripts print, `Epoch 3/30 - train loss: 0.49, val loss: 0.52`, in one line or in several.

A line names an epoch, and perhaps how far it has got, `Epoch: [3][50/391] Loss 2.1 (2.3)`; values without an epoch in their line
belong to the last one that was named, and are an evaluation's after a line that says no more than that one begins. Batches count
anew in each epoch, so an update is epochs finished times batches of an epoch plus batch; where no line names a batch, epochs are
the axis. PyTorch's tutorials print the epoch and the batch as `[2,  4000] loss: 1.2` or `[0/5][50/1583] Loss_D: 0.5`, and samples
instead of batches as `Train Epoch: 2 [640/60000 (1%)]` or `loss: 2.3  [  640/60000]`. The name may stand before its epoch, as in
`Loss after epoch 3: 0.5`. A bare `loss` in a line on validation is the validation loss, and so is one on a test after each epoch
where no line tells of validation; a single one, or one of a batch of an evaluation, is left out. Where no line names a loss, the
one measure of error that training and validation share is one. Of `Loss 2.1 (2.3)` the first number is taken, that of the batch;
the second is the mean so far. Lines in a row that name one epoch and no batch are of its batches, in their order. The losses of
several generators and discriminators, `(epoch: 1, iters: 100) D_A: 0.25 G_A: 0.32 D_B: 0.27 G_B: 0.27` as CycleGAN logs them or
`D: 0.11, 0.10 | G: 0.14, 0.15 |` as ComboGAN does, are taken as their means. An episode is an epoch, and its reward a return.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import StepUnit
from ckaudit.importers.formats.keyvalue import NAME_BEFORE, VALUE_BEHIND
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import only_loss
from ckaudit.importers.names import shorten_name
from ckaudit.importers.tables.numbers import count_of
from ckaudit.importers.text.epoch_lines import COUNTER, NONE, EpochLine, EpochLines, in_order, lines_as_columns
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_patterns import Cell, Ints, LinePattern, Mask, learn_pattern
from ckaudit.importers.text.line_reader import MAX_FORMS, LogContent, RunFact, StepLines
from ckaudit.importers.text.line_values import OF_TEST, TEST, is_wanted, name_of, named_lines, value_cells
from ckaudit.importers.text.log import Format, NamedLines, is_text, no_run_facts, parsed_dialect, read_scanned
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines, prefix_end

NAME = "epoch text log"
GENERIC = True
DETECTION_BYTES = 2**21  # bytes in which a log of this kind has shown two epochs
_EPOCH = re.compile(
    r"(?<![A-Za-z_])(?:epoch\b(?:\((?:train|val|test)\))?|episode\b|ep\b\.?(?= ?#?\d)|pass\b(?= \d+ ?/)|train:(?= \d+ \[))"
    r"[\s:#=\[(]*(\d+)(?:\s*(?:/|of)\s*(\d+))?",
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
_OF_CLASSES = re.compile(r"Pseudo dice \[([^\[\]]{1,2000})\]", re.IGNORECASE)  # as nnU-Net writes it, a number for each class
_NUMBER_OF_CLASS = re.compile(r"(?:np\.float(?:16|32|64)\()?(nan|\d{1,3}(?:\.\d{0,20})?(?:e-?\d{1,3})?)\)?(?=[,\s]|\Z)")
_LIST = re.compile(
    r"(?<![\w.])([A-Za-z]{1,12}): (-?\d{1,9}\.\d{1,20}(?:, -?\d{1,9}\.\d{1,20}){1,31}) \|"
)  # as ComboGAN writes it
_SHORT_MARK = re.compile(rb"(?<![A-Za-z_])[Ee]p\.? ?#?\d")
_SAMPLES = re.compile(r"\A[^\[]*\[\s*(\d{1,12})\s*/\s*(\d{1,12})\s*(?:\(\s*\d+(?:\.\d+)?\s*%\s*\)\s*\]|\]\s*\Z)")
_DAY = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun) [a-z]{3}")  # before the number of the day, in the head of a log
_BEGINS = re.compile(
    r"\A\W*(?:(?:begin|start)\w*\W+(?:of\W+)?)?(eval\w*|valid\w*|test\w*)(?:\W+(?:(?:begin|start)\w*|error))?\W*\Z", re.IGNORECASE
)
_ANY_NUMBER = re.compile(r"(?<![A-Za-z_@0-9.])[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?")
_EPOCH_KEY, _BATCH_KEY, _BATCHES_KEY = " epoch", " batch", " batches"  # no key of a value begins with a blank
_EVALUATES = ("epoch(val", "epoch(test")  # as MMEngine writes it
_OF_EPISODE = ("reward", "rewards", "score")
_TIMES = ("time", "data_time", "data")
_LOSSES = ("train_loss_raw", "val_loss")
_SCORE = "microbench_score/"


def detects(source: Source) -> bool:
    """Tell by two epochs with a loss each, whose batches, where they are named, count anew; or with losses of parts alone."""
    if not is_text(source) or not (
        b"poch" in source.data
        or b"pisode" in source.data
        or b"Train: " in source.data
        or b"pass " in source.data[:DETECTION_BYTES]
        or _PLACE_MARK.search(source.data[:DETECTION_BYTES])
        or _SHORT_MARK.search(source.data[:DETECTION_BYTES])
    ):
        return False
    lines, _ = _with_errors(lines_as_columns(_lines(source.data[:DETECTION_BYTES])))
    with_a_loss = lines.holding_name(*_LOSSES)
    if len(np.unique(lines.epochs[with_a_loss])) < 2:
        return not with_a_loss.any() and (_are_of_parts(lines) or _are_of_scores(lines))
    inside = lines.kept(lines.has_batch & lines.holding_name("train_loss_raw"))
    return not len(inside) or bool((inside.changes & (inside.batches[1:] <= inside.batches[:-1])).any())


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read lines of epochs.

    Raises:
        UnreadableError: Where no epoch has a value.
        UsageError: Where `columns` names what no line holds.
    """
    lines, counted = _of_one_unit(lines_as_columns(_lines(source.data)))
    errors, line_count = error_lines(source.data), source.line_count
    source.forget()
    lines, renamed = (lines, []) if columns else _with_errors(lines)
    lines, numbered = _with_numbers(lines)
    lines, tested = _with_tests(lines)
    unnamed = [key for key in lines.columns if name_of(key) is None and key != COUNTER and not _DAY.fullmatch(key)]
    unwanted = [] if columns else sorted(unnamed)
    # A line of unknown numbers, such as "Starting training for 30 epochs", is of no step, and its time is none of the training.
    known = np.ones(len(lines), bool) if columns else lines.holding(key for key in lines.columns if name_of(key))
    lines = _of_one_grain(lines.kept(known) if known.any() else lines)
    unit: StepUnit | UnsetType = UNSET if lines.has_batch.any() or lines.counted_updates() is not None else "epoch"
    rows, notes = _rows(lines)
    del lines
    notes += counted + renamed + numbered + tested
    log = LogContent(rows, [], errors, line_count, [], unwanted)

    def meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
        return replace(_named(rows, mapped, notes), step_unit=unit)

    return read_scanned(log, source, columns, Format(parsed_dialect(NAME, is_wanted), meaning, no_run_facts))


def _are_of_parts(lines: EpochLines) -> bool:
    """Tell by a loss, or two decimal numbers, of names of their own in two epochs: a generator's and its judge's, say."""
    unnamed = {key: column.with_point for key, column in lines.columns.items() if name_of(key) is None}
    recurring = [key for key, with_point in unnamed.items() if len(np.unique(lines.epochs[with_point])) > 1]
    return len(recurring) > 1 or any("loss" in key for key in recurring)


def _are_of_scores(lines: EpochLines, *, min_epochs: int = 3) -> bool:
    """Tell by a score or a return of a known name in so many epochs or episodes."""
    scored = lines.holding(key for key in lines.columns if (name_of(key) or "").startswith(_SCORE))
    return len(np.unique(lines.epochs[scored])) >= min_epochs


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
        if " | G: " in line:
            line = _LIST.sub(_numbered, line)  # noqa: PLW2901
        if "dice [" in line:
            line = _OF_CLASSES.sub(_scores_of_classes, line)  # noqa: PLW2901
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


def _numbered(losses: re.Match[str]) -> str:
    """Return a list of losses, one of each of several networks, as pairs of a name with a number and a loss."""
    return " ".join(f"{losses[1]}_{place}: {text}" for place, text in enumerate(losses[2].split(", "), 1))


def _scores_of_classes(scores: re.Match[str]) -> str:
    """Return a list of scores as pairs of a name and a number."""
    numbers = _NUMBER_OF_CLASS.findall(scores[1])
    return " ".join(f"{_SCORE}pseudo_dice_{place}: {text}" for place, text in enumerate(numbers, 1))


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
    if mark and mark[0].lower().startswith("episode"):
        values = [cell._replace(key=f"episode {cell.key}") if cell.key in _OF_EPISODE else cell for cell in values]
    of_batches = mark is not None and mark[0].lower().startswith("train")  # as timm writes it
    return ([*cells, *values] if mark or values else []), samples is not None and not of_batches


def _with_errors(lines: EpochLines) -> tuple[EpochLines, list[str]]:
    """Return the lines, the one measure of error of training and validation as their losses where none is named, and a note."""
    keys = list(lines.columns)
    lone = None if any(name_of(key) in _LOSSES for key in keys) else only_loss([TEST.sub("val", key) for key in keys])
    if lone is None or lone.val is None:
        return lines, []
    return lines.renamed({keys[lone.train]: "train loss", keys[lone.val]: "val loss"}), [
        f"no line names a loss: {shorten_name(keys[lone.train])} and {shorten_name(keys[lone.val])} were taken for it"
    ]


def _of_one_unit(lines: EpochLines) -> tuple[EpochLines, list[str]]:
    """Return the lines, samples counted in the largest number of them that divides all counts, and a note that says so."""
    unit = int(np.gcd.reduce(np.maximum(lines.batches[lines.in_samples], 0)))
    if not unit:
        return lines, []
    batches, sizes = np.maximum(lines.batches, 0) // unit, -(-np.maximum(lines.sizes, 0) // unit)
    scaled = replace(
        lines, batches=np.where(lines.in_samples, batches, lines.batches), sizes=np.where(lines.in_samples, sizes, lines.sizes)
    )
    return scaled, [f"its lines count samples, in multiples of {unit:,}: a batch here is {unit:,} of them"]


def _with_numbers(lines: EpochLines, *, min_lines: int = 3) -> tuple[EpochLines, list[str]]:
    """Return the lines, those of batches that no line numbers as they stand in their epoch, and a note that says so.

    They are lines that name their epoch and hold one key of the training loss, at least `min_lines` in the median epoch.
    """
    if lines.has_batch.any() or lines.counted_updates() is not None:
        return lines, []
    if 2 * len(lines) < min_lines * (1 + lines.changes.sum()):
        return lines, []  # half of the epochs cannot have so many
    epoch = np.concatenate([[0], np.cumsum(lines.changes)])[: len(lines)]  # which of the epochs, as they come, a line is of
    of_batches = []
    for key, column in lines.columns.items():
        if name_of(key) == "train_loss_raw":
            in_epochs = np.bincount(epoch[column.present & lines.names_epoch])
            if in_epochs.any() and np.median(in_epochs[in_epochs > 0]) >= min_lines:
                of_batches.append(key)
    if len(of_batches) != 1:
        return lines, []
    present = lines.columns[of_batches[0]].present
    counted, first = np.cumsum(present), np.searchsorted(epoch, epoch)
    batches = np.where(present, counted - (counted - present)[first], NONE)
    return replace(lines, batches=batches), ["no line names a batch: those of an epoch were numbered from 1, as they stand"]


def _with_tests(lines: EpochLines) -> tuple[EpochLines, list[str]]:
    """Return the lines, with test losses as validation losses where several epochs have them and no others."""
    tested = lines.epochs[lines.columns[OF_TEST].present] if OF_TEST in lines.columns else lines.epochs[:0]
    if len(np.unique(tested)) < 2 or lines.holding_name("val_loss").any():
        return lines, []
    note = "val_loss is the loss on a test set, which is told in each epoch; no line tells of another validation"
    return lines.renamed({OF_TEST: "val loss"}), [note]


def _of_one_grain(lines: EpochLines) -> EpochLines:
    """Return the lines, of training losses of batches and of whole epochs those of which there are more."""
    has_batch, of_training = lines.has_batch, lines.holding_name("train_loss_raw")
    trained = of_training if of_training.any() else _of_parts(lines)
    of_batches = 2 * (trained & has_batch).sum() > trained.sum()
    of_evaluation = has_batch & lines.holding_name("val_loss") & ~of_training  # a batch of one
    whole = (has_batch == of_batches) & ~of_evaluation
    held_out = ~whole & ~has_batch
    rows = whole | (held_out & lines.holding(key for key in lines.columns if _is_held_out(key)))
    if rows.all() and whole.all():
        return lines
    columns = {key: column if _is_held_out(key) else column.only(whole) for key, column in lines.columns.items()}
    return replace(lines, sizes=np.where(whole, lines.sizes, NONE), columns=columns).kept(rows)


def _of_parts(lines: EpochLines) -> Mask:
    """Tell which lines hold a decimal number of a name of its own."""
    parts = (column.with_point for key, column in lines.columns.items() if name_of(key) is None)
    return reduce(np.logical_or, parts, np.zeros(len(lines), bool))


def _is_held_out(key: str) -> bool:
    return (name_of(key) or "").startswith(("val_loss", _SCORE))


def _rows(lines: EpochLines) -> tuple[StepLines, list[str]]:
    """Return the lines as columns by key, with the update of each, and notes on how it was counted."""
    steps, notes = _steps(lines)
    return StepLines(steps, lines.origin, {key: column.numbers for key, column in in_order(lines.columns).items()}), notes


def _steps(lines: EpochLines) -> tuple[Ints, list[str]]:
    epochs = lines.epochs
    done = epochs - (int(epochs.min()) if len(epochs) and epochs.min() <= 1 else 1)  # epochs finished before each line
    inside = lines.has_batch
    if not inside.any() and (counted := lines.counted_updates()) is not None:
        return counted, [f"updates are those of {COUNTER}; a line without it stands where the last one stood"]
    if not inside.any():
        return done + 1, ["epochs are the axis, step N here is the end of the N-th; how many updates one took is not recorded"]
    from_zero = int((lines.batches == 0).any())
    size = max(int(lines.batches.max()) + from_zero, int(lines.sizes[inside].max()))
    within = np.where(inside, np.minimum(lines.batches + from_zero, size), size)
    note = f"batches count anew in each epoch: update N is epochs finished times {size:,}, plus the batch"
    return done * size + within, [note]


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
