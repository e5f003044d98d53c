"""Epoch lines, as most training scripts print them, `Epoch 3/30 - train loss: 0.49, val loss: 0.52`, in one line or several.

A line names an epoch, and perhaps a batch, `Epoch: [3][50/391] Loss 2.1 (2.3)`. Values in a line without an epoch belong to the
last epoch named before; after a line that only announces an evaluation they belong to that evaluation. The batch count restarts
in each epoch, so an update is finished epochs times batches per epoch plus batch. Without batches, epochs are the axis.

PyTorch's tutorials print the epoch and the batch as `[2,  4000] loss: 1.2` or `[0/5][50/1583] Loss_D: 0.5`, and samples instead
of batches as `Train Epoch: 2 [640/60000 (1%)]` or `loss: 2.3  [  640/60000]`. The name may come before its epoch, as in
`Loss after epoch 3: 0.5`. Successive lines that name the same epoch and no batch are its batches, in their order.

A bare `loss` in a validation line is the validation loss. So is a test loss in each epoch if no line names validation; a single
test loss, or the loss of one evaluation batch, is left out. Where no line names a loss, the one error measure that training and
validation share is the loss. Of `Loss 2.1 (2.3)` the first number is taken, the batch loss; the second is the mean so far. The
losses of several generators and discriminators, `(epoch: 1, iters: 100) D_A: 0.25 G_A: 0.32 D_B: 0.27 G_B: 0.27` from CycleGAN or
`D: 0.11, 0.10 | G: 0.14, 0.15 |` from ComboGAN, are averaged. An episode is an epoch, and its reward a return.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ckaudit.contract.schema.loss_names import may_be_adversarial
from ckaudit.contract.schema.manifest import StepUnit
from ckaudit.importers.formats.keyvalue import NAME_BEFORE, VALUE_BEHIND
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import only_loss
from ckaudit.importers.names import may_be_a_reward, shorten_name
from ckaudit.importers.tables.numbers import count_of
from ckaudit.importers.text.epoch_lines import COUNTER, NONE, EpochLine, EpochLines, in_order, lines_as_columns
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_patterns import Cell, Ints, LinePattern, Mask, learn_pattern
from ckaudit.importers.text.line_reader import MAX_FORMS, LogContent, RunFact, StepLines
from ckaudit.importers.text.line_values import COUNT, OF_TEST, TEST, is_wanted, may_hold_values_ahead, name_of, value_cells
from ckaudit.importers.text.lists_in_lines import with_pairs
from ckaudit.importers.text.log import Format, NamedLines, is_text, no_run_facts, parsed_dialect, read_scanned
from ckaudit.importers.text.named_lines import named_lines
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines, prefix_end

NAME = "epoch text log"
GENERIC = True
MIN_LINES = 5
"""Minimum number of lines with losses in a log with a mark of its own; others need two epochs."""

DETECTION_BYTES = 2**21  # bytes within which such a log has shown two epochs
_EPOCH = re.compile(
    r"(?<![A-Za-z_@])(?:epoch(?:\b|(?=\d))(?:\((?:train|val|test)\))?|episode\b|ep\b\.?(?= ?#?\d)|pass\b(?= \d+ ?/)"
    r"|train:(?= \d+ \[))[\s:#=\[(]*(\d+)(?:\s*(?:/|of)\s*(\d+))?",
    re.IGNORECASE,
)
_BATCH = re.compile(
    rf"\A\s*\]\s*[\[(]\s*({COUNT})(?:\s*/\s*({COUNT}))?\s*[\])]"
    rf"|(?<![A-Za-z_/])(?:iters?|iterations?|batch|step)(?:_?(?:id|idx|index))?\b[\s:#=\[(]*({COUNT})(?:\s*/\s*({COUNT}))?(?!\.\d)"
    rf"|(?<![\w./-])({COUNT})\s*/\s*({COUNT}) (?:mini)?batches\b",
    re.IGNORECASE,
)
_PLACE = re.compile(  # epoch and batch
    r"\[\s*(\d{1,9})(?:\s*,\s*|\s+:\s+|/\d{1,9}\]\s*\[)(\d{1,12})(?:/(\d{1,12}))?\s*\](?=.{0,40}loss)", re.IGNORECASE
)
_PLACE_MARK = re.compile(rb"\[ *\d{1,9}(?:, *| +: +|/\d{1,9}\] ?\[)\d{1,12}(?:/\d{1,12})?\]\s.{0,40}[Ll]oss")
_NAME_FIRST = re.compile(rf"{NAME_BEFORE}(epoch\s{{0,2}}[#:]?\s{{0,2}}\d{{1,9}}){VALUE_BEHIND}", re.IGNORECASE)
_IN_CHINESE = re.compile("轮|回合".encode())
_MARK = re.compile(rb"\(epoch: \d{1,9}, iters: \d|Epoch:\[\d{1,9}/\d{1,9}\]\(\d")  # of CycleGAN and its kin, and of MiniMind
_SHORT_MARK = re.compile(rb"(?<![A-Za-z_])[Ee]p\.? ?#?\d")
_SAMPLES = re.compile(r"\A[^\[]*\[\s*(\d{1,12})\s*/\s*(\d{1,12})\s*(?:\(\s*\d+(?:\.\d+)?\s*%\s*\)\s*\]|\]\s*\Z)")
_DAY = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun) [a-z]{3}")  # precedes the day of the month in the head of a log
_BEGINS = re.compile(
    r"\A\W*(?:(?:begin|start)\w*\W+(?:of\W+)?)?(eval\w*|valid\w*|test\w*)(?:\W+(?:(?:begin|start)\w*|error))?\W*\Z", re.IGNORECASE
)
_ANY_NUMBER = re.compile(r"(?<![A-Za-z_@0-9.])[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?")
_EPOCH_KEY, _BATCH_KEY, _BATCHES_KEY = " epoch", " batch", " batches"  # keys of values never begin with a blank
_EVALUATES = ("epoch(val", "epoch(test")  # as MMEngine writes it
_OF_EPISODE = ("reward", "rewards", "rew", "score")
_TIMES = ("time", "data_time", "data")
_LOSSES = ("train_loss_raw", "val_loss")
_SCORE = "microbench_score/"


def detects(source: Source) -> bool:
    """Tell whether two epochs have a loss and restart their batch count, if any; or have only losses of parts or scores."""
    if not is_text(source) or not (
        b"poch" in source.data
        or b"EPOCH" in source.data[:DETECTION_BYTES]
        or b"pisode" in source.data
        or b"EPISODE" in source.data[:DETECTION_BYTES]
        or _IN_CHINESE.search(source.data[:DETECTION_BYTES])
        or b"Train: " in source.data
        or b"pass " in source.data[:DETECTION_BYTES]
        or _PLACE_MARK.search(source.data[:DETECTION_BYTES])
        or _SHORT_MARK.search(source.data[:DETECTION_BYTES])
    ):
        return False
    lines, _ = _with_errors(lines_as_columns(_lines(source.data[:DETECTION_BYTES])))
    if _MARK.search(source.data[:DETECTION_BYTES]) and _of_parts(lines).sum() >= MIN_LINES:
        return True
    with_a_loss = lines.holding_name(*_LOSSES)
    if len(np.unique(lines.epochs[with_a_loss])) < 2:
        return not with_a_loss.any() and (_are_of_parts(lines) or _are_of_scores(lines))
    inside = lines.kept(lines.has_batch & lines.holding_name("train_loss_raw"))
    begun_anew = inside.changes & (inside.batches[1:] <= inside.batches[:-1])
    return not len(inside) or bool(2 * begun_anew.sum() >= max(1, inside.changes.sum()))  # a resume alone does so once


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read epoch lines.

    Raises:
        UnreadableError: Where no epoch has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    lines, counted = _of_one_unit(lines_as_columns(_lines(source.data)))
    errors, line_count = error_lines(source.data), source.line_count
    source.forget()
    lines, renamed = (lines, []) if columns else _with_errors(lines)
    lines, numbered = _with_numbers(lines)
    lines, tested = _with_tests(lines)
    unnamed = [key for key in lines.columns if name_of(key) is None and key != COUNTER and not _DAY.fullmatch(key)]
    unwanted = [] if columns else sorted(unnamed)
    # Lines without a known name, such as "Starting training for 30 epochs", have no step, and their time is not the training's.
    known = np.ones(len(lines), bool) if columns else lines.holding(filter(_may_be_named, lines.columns))
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
    """Tell whether two epochs share a loss, or two decimal numbers, with unknown names, such as a generator's and its judge's."""
    unnamed = {key: column.with_point for key, column in lines.columns.items() if name_of(key) is None}
    recurring = [key for key, with_point in unnamed.items() if len(np.unique(lines.epochs[with_point])) > 1]
    return len(recurring) > 1 or any("loss" in key for key in recurring)


def _are_of_scores(lines: EpochLines, *, min_epochs: int = 3) -> bool:
    """Tell whether at least `min_epochs` epochs or episodes have a score or a return with a known name."""
    scored = lines.holding(key for key in lines.columns if (name_of(key) or "").startswith(_SCORE))
    return len(np.unique(lines.epochs[scored])) >= min_epochs


class _LineForm(NamedTuple):
    """What lines from one format string of a program have in common.

    Attributes:
        pattern: The positions of their numbers.
        phase: The word for the evaluation that an earlier line announced; None where the lines name their epoch.
        with_prefix: Whether the epoch is in the part that looks like a prefix.
        in_samples: Whether the lines count samples instead of batches.
    """

    pattern: LinePattern
    phase: str | None
    with_prefix: bool
    in_samples: bool

    def texts(self, line: str, start: int, phase: str) -> dict[str, str] | None:
        """Return the numbers of a line by key, or None where the line has another form."""
        if self.phase not in {None, phase} or not (match := self.pattern.match(line, 0 if self.with_prefix else start)):
            return None
        texts = dict(zip(self.pattern.keys, match.groups(), strict=True))
        texts.pop("", None)
        return texts


class _BatchCount(NamedTuple):
    """Where a line counts its batch.

    Attributes:
        spans: Where the number of the batch, and the number of all batches, begin and end; -1 where there is none.
        end: Where the values of the line may begin.
        in_samples: Whether samples are counted instead of batches.
    """

    spans: tuple[tuple[int, int], tuple[int, int]]
    end: int
    in_samples: bool = False


def _lines(data: bytes) -> Iterator[EpochLine]:
    """Yield all lines with a value after the first named epoch; a line in a form that was learned before costs one match."""
    epoch: int | None = None
    phase = ""
    forms: list[_LineForm] = []
    for number_of, line in numbered_lines(data):
        if len(line) > MAX_LINE:
            continue
        if " epoch" in line or " Epoch" in line:
            line = _NAME_FIRST.sub(r"\2 \1: \3", line)  # noqa: PLW2901  the same content in the usual order
        line = with_pairs(line)  # noqa: PLW2901
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
    """Return the form of a line, or None where the form does not find the same numbers again."""
    with_prefix = cells[0].start < start
    begin = 0 if with_prefix else start
    spans = [(run.start(), run.end()) for run in _ANY_NUMBER.finditer(line, begin)]
    others = [Cell("", *span) for span in spans if not any(span[0] < cell.end and cell.start < span[1] for cell in cells)]
    pattern = learn_pattern(line, begin, sorted([*cells, *others], key=lambda cell: cell.start), bool)
    form = _LineForm(pattern, None if cells[0].key == _EPOCH_KEY else phase, with_prefix, in_samples)
    return form if form.texts(line, start, phase) == {cell.key: line[cell.start : cell.end] for cell in cells} else None


def _cells(line: str, start: int, phase: str) -> tuple[list[Cell], bool]:
    """Return the epoch, the batch and the values of a line, and whether the line counts samples instead of batches.

    Args:
        line: The line.
        start: Where its text begins.
        phase: The word for the evaluation that an earlier line announced; empty where none did.
    """
    place = _PLACE.match(line, start) or _PLACE.match(line)
    mark = place or _EPOCH.search(line)
    begin = mark.end() if mark else start
    ahead = line[start : mark.start()] if mark and not place else ""
    count = _BatchCount((place.span(2), place.span(3)), begin) if place else _batch_count(line, begin)
    if mark and count is None and (before := _batch_count(line[: mark.start()], start)) and not before.in_samples:
        count = before._replace(end=begin)
    cells = [Cell(_EPOCH_KEY, *mark.span(1))] if mark else []
    of_training = mark is None or not mark[0].lower().startswith(_EVALUATES)
    if count and of_training:
        cells += [Cell(key, *span) for key, span in zip((_BATCH_KEY, _BATCHES_KEY), count.spans, strict=True) if span[0] >= 0]
    values = value_cells(line, count.end if count else begin, "" if mark else phase)
    if ahead and may_hold_values_ahead(ahead):
        known = {cell.key for cell in values}
        before_mark = value_cells(line[: mark.start()] if mark else "", start)
        values += [cell for cell in before_mark if name_of(cell.key) and cell.key not in known]
    values = values if of_training else [cell._replace(key=f"val {cell.key}") if cell.key in _TIMES else cell for cell in values]
    if mark and mark[0].lower().startswith("episode"):
        values = [cell._replace(key=f"episode {cell.key}") if cell.key in _OF_EPISODE else cell for cell in values]
    of_batches = mark is not None and mark[0].lower().startswith("train")  # as timm writes it
    return ([*cells, *values] if mark or values else []), count is not None and count.in_samples and not of_batches


def _batch_count(line: str, begin: int) -> _BatchCount | None:
    """Return the count of batches or samples from a position on, or None where there is none."""
    if batch := _BATCH.search(line[begin:]):
        first = next(group for group in (1, 3, 5) if batch[group])
        at, of = batch.span(first), batch.span(first + 1)
        spans = (begin + at[0], begin + at[1]), (begin + of[0], begin + of[1]) if of[0] >= 0 else of
        return _BatchCount(spans, begin + batch.end())
    if samples := _SAMPLES.match(line[begin:]):
        at, of = samples.span(1), samples.span(2)
        return _BatchCount(((begin + at[0], begin + at[1]), (begin + of[0], begin + of[1])), begin, in_samples=True)
    return None


def _with_errors(lines: EpochLines) -> tuple[EpochLines, list[str]]:
    """Return the lines with the one shared error measure as training and validation loss if no line names a loss, and a note."""
    keys = list(lines.columns)
    lone = None if any(name_of(key) in _LOSSES for key in keys) else only_loss([TEST.sub("val", key) for key in keys])
    if lone is None or lone.val is None:
        return lines, []
    return lines.renamed({keys[lone.train]: "train loss", keys[lone.val]: "val loss"}), [
        f"no line names a loss: {shorten_name(keys[lone.train])} and {shorten_name(keys[lone.val])} were taken for it"
    ]


def _of_one_unit(lines: EpochLines) -> tuple[EpochLines, list[str]]:
    """Return the lines with sample counts divided by their greatest common divisor, and a note on it."""
    unit = int(np.gcd.reduce(np.maximum(lines.batches[lines.in_samples], 0)))
    if not unit:
        return lines, []
    batches, sizes = np.maximum(lines.batches, 0) // unit, -(-np.maximum(lines.sizes, 0) // unit)
    scaled = replace(
        lines, batches=np.where(lines.in_samples, batches, lines.batches), sizes=np.where(lines.in_samples, sizes, lines.sizes)
    )
    return scaled, [f"its lines count samples, in multiples of {unit:,}: a batch here is {unit:,} of them"]


def _with_numbers(lines: EpochLines, *, min_lines: int = 3) -> tuple[EpochLines, list[str]]:
    """Return the lines with numbers for unnumbered batches, in their order within the epoch, and a note on it.

    Such lines name their epoch and hold the only training-loss key with at least `min_lines` lines in the median epoch.
    """
    if lines.has_batch.any() or lines.counted_updates() is not None:
        return lines, []
    if 2 * len(lines) < min_lines * (1 + lines.changes.sum()):
        return lines, []  # half of the epochs cannot have as many lines
    epoch, counts = lines.places_of_epochs, {name: lines.lines_per_epoch(name) for name in ("train_loss_raw", "val_loss")}
    of_batches = [key for key, count in counts["train_loss_raw"].items() if count >= min_lines]
    if len(of_batches) != 1:
        return lines, []
    if (copies := counts["train_loss_raw"][of_batches[0]]) in counts["val_loss"].values():
        return lines, [f"each epoch's lines stand {copies:.0f} times, those on held-out data too, as of {copies:.0f} processes"]
    present = lines.columns[of_batches[0]].present
    counted, first = np.cumsum(present), np.searchsorted(epoch, epoch)
    batches = np.where(present, counted - (counted - present)[first], NONE)
    return replace(lines, batches=batches), ["no line names a batch: those of an epoch were numbered from 1, as they stand"]


def _with_tests(lines: EpochLines) -> tuple[EpochLines, list[str]]:
    """Return the lines with test losses as validation losses if several epochs have them and no line has a validation loss."""
    tested = lines.epochs[lines.columns[OF_TEST].present] if OF_TEST in lines.columns else lines.epochs[:0]
    if len(np.unique(tested)) < 2 or lines.holding_name("val_loss").any():
        return lines, []
    note = "val_loss is the loss on a test set, which is told in each epoch; no line tells of another validation"
    return lines.renamed({OF_TEST: "val loss"}), [note]


def _of_one_grain(lines: EpochLines) -> EpochLines:
    """Return the lines with training losses either of batches or of whole epochs, whichever are more."""
    has_batch, of_training = lines.has_batch, lines.holding_name("train_loss_raw")
    trained = of_training if of_training.any() else _of_parts(lines)
    of_batches = 2 * (trained & has_batch).sum() > trained.sum()
    of_evaluation = has_batch & lines.holding_name("val_loss") & ~of_training  # the loss of one evaluation batch
    whole = (has_batch == of_batches) & ~of_evaluation
    held_out = ~whole & ~has_batch
    rows = whole | (held_out & lines.holding(key for key in lines.columns if _is_held_out(key)))
    if rows.all() and whole.all():
        return lines
    columns = {key: column if _is_held_out(key) else column.only(whole) for key, column in lines.columns.items()}
    return replace(lines, sizes=np.where(whole, lines.sizes, NONE), columns=columns).kept(rows)


def _may_be_named(key: str) -> bool:
    """Tell whether a key has a common name, or one of its own beside others: of a reward, or of one side of a game."""
    return name_of(key) is not None or may_be_a_reward(key) or may_be_adversarial(key)


def _of_parts(lines: EpochLines) -> Mask:
    """Return a mask of the lines that hold a decimal number with an unknown name."""
    parts = (column.with_point for key, column in lines.columns.items() if name_of(key) is None)
    return reduce(np.logical_or, parts, np.zeros(len(lines), bool))


def _is_held_out(key: str) -> bool:
    return (name_of(key) or "").startswith(("val_loss", _SCORE))


def _rows(lines: EpochLines) -> tuple[StepLines, list[str]]:
    """Return the lines as columns by key, with the update of each line, and notes on how updates were counted."""
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
    """Give the columns their catalogue names; a validation loss that is always exactly 0 was not computed and is left out."""
    named = named_lines(rows, mapped, notes)
    columns = named.rows.columns
    if "val_loss" in columns and "train_loss_raw" in columns:
        zero = columns["val_loss"].recorded & (columns["val_loss"].values == 0)
        if zero.any() and zero.sum() == columns["val_loss"].recorded.sum():
            del columns["val_loss"]
            named.notes.append("the validation loss is exactly 0 throughout: it was not computed, and was left out")
    return named
