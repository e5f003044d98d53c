"""Lines of losses, or else of returns, that name no step and no epoch, `Training Loss: 0.1345`: they are numbered in order.

A count beside each loss is the step if it always rises, as in MMEngine's `Iter(train) [  50/40000]  loss: 1.73`, Tacotron 2's
`Train loss 50 1.73`, a printed dictionary, `{'step': 50, 'loss': 1.73}`, or `batch 50: loss 1.73`. Validation values between two
such lines belong to the first of them.
"""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.continued_counts import LossLevels
from ckaudit.importers.tables.numbers import count_of
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_patterns import Ints
from ckaudit.importers.text.line_reader import LogContent, RunFact, StepLines, step_lines
from ckaudit.importers.text.line_values import COUNT, has_reward, has_training_loss, is_wanted, known_values, name_of
from ckaudit.importers.text.log import Format, NamedLines, is_text, no_run_facts, parsed_dialect, read_scanned
from ckaudit.importers.text.named_lines import named_lines
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines, prefix_end

NAME = "lines of losses"
GENERIC = True
_NUMBERED = (
    "no line names a step: lines with a training loss, or else a return, were numbered from 1; how many updates lie between them "
    "is not known"
)
MIN_LINES = 5
"""Minimum number of lines with a training loss, or else a return, in a log; a report of results has fewer."""

HEAD_BYTES = 2**21

MAX_OPENING, MIN_LETTERS = 20, 4
"""Most lines before the first loss that are looked for again, and the fewest letters of one: a rule of dashes says nothing."""

_LETTER = re.compile(r"[^\W\d_]")
_COUNT_OF_ALL = re.compile(r"\[ {0,12}(\d{1,12})/ {0,12}\d{1,12}\]")
_COUNT_BEHIND_NAME = re.compile(r"(?<=loss )(\d{1,12}):? {1,6}(?=\d{1,12}\.\d)", re.IGNORECASE)
_NAMED_COUNT = re.compile(
    r"(?<![\w./-])(?:(?:global[_ ])?(?:step|iter|iteration|update)|it|itr|(?:mini[_-]?)?batch|round|(?:n|num)_updates)s?"
    rf"(?: ?[:=#] ?| )#?({COUNT})(?![\w.%]|,\d)|\A\W{{0,4}}({COUNT})(?=[:\]]? .{{0,40}}(?:loss|reward))",
    re.IGNORECASE,
)
_MARK = re.compile(rb"oss|eward|eturn")
_MMENGINE_EVALUATION = "(val)"
Numbered = tuple[int, int, dict[str, float]]


def detects(source: Source) -> bool:
    """Tell whether several lines have a training loss or a return; formats whose lines name a step are tried earlier."""
    if not is_text(source) or not _MARK.search(source.data[:HEAD_BYTES]):
        return False
    return len(_counted(source.data[:HEAD_BYTES])[1]) >= MIN_LINES


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the lines.

    Raises:
        UnreadableError: Where no line has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    numbered, counts = _counted(source.data)
    rows = step_lines(numbered)
    steps, note = _steps(np.asarray(counts))
    if note == _NUMBERED and len(rows.steps):
        steps = _numbered_by_start(source.data, rows)
    rows = StepLines(steps[rows.steps - 1], rows.origin, rows.columns)
    unwanted = [] if columns else [key for key in rows.columns if name_of(key) is None]
    log = LogContent(rows, [], error_lines(source.data), source.line_count, [], unwanted)

    def meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
        return replace(named_lines(rows, mapped, [note]), step_unit="entry" if note == _NUMBERED else UNSET)

    return read_scanned(log, source, columns, Format(parsed_dialect(NAME, is_wanted), meaning, no_run_facts))


def _counted(data: bytes) -> tuple[list[Numbered], "array[int]"]:
    """Return the lines with known values, and the count beside each training loss; where no line has one, beside each return."""
    for is_counted in (has_training_loss, has_reward):
        counts = array("q")
        if (numbered := list(_lines(data, counts, is_counted))) and counts:
            break
    return numbered, counts


def _lines(data: bytes, counts: "array[int]", is_counted: Callable[[Iterable[str]], bool]) -> Iterator[Numbered]:
    """Yield the line number, the index among the counted lines, and the values of each line with a known name.

    Args:
        data: The file.
        counts: Gets the count in each counted line, -1 where there is none.
        is_counted: Tells whether a line with values of these keys is counted.
    """
    for line_number, line in numbered_lines(data):
        if len(line) > MAX_LINE or not ("oss" in line or "eward" in line or "eturn" in line or _MMENGINE_EVALUATION in line):
            continue
        behind = _COUNT_BEHIND_NAME.search(line)
        text = line[: behind.start()] + line[behind.end() :] if behind else line
        values = known_values(text)
        if is_counted(values):
            count = behind or _COUNT_OF_ALL.search(line) or _NAMED_COUNT.search(line)
            known = count_of(count[count.lastindex or 1]) if count else None
            counts.append(-1 if known is None else known)
        if values and counts:
            yield line_number, len(counts), values


def _numbered_by_start(data: bytes, rows: StepLines) -> Ints:
    """Return the number of each training loss within its training.

    A program prints its first lines again when it is started again. Some print such lines in each epoch, so the loss must be
    back at where it began as well.
    """
    count, losses = int(rows.steps[-1]), named_lines(rows, {}, []).rows.columns.get("train_loss_raw")
    starts = [0]
    if losses is not None:
        levels = LossLevels(losses)
        repeats = [*_repeats_of_opening(data, int(rows.origin.lines[0]))]
        for row in np.unique(np.searchsorted(rows.origin.lines, repeats)).tolist():
            if row < len(rows.steps) and levels.begins_anew(row):
                levels.start(row)
                starts.append(int(rows.steps[row]) - 1)
    numbers: Ints = np.arange(1, count + 1) - np.repeat(starts, np.diff([*starts, count]))
    return numbers


def _repeats_of_opening(data: bytes, first_loss: int) -> Iterator[int]:
    """Yield the numbers of the lines that say again what a line before the first loss said, but for the prefix."""
    opening: dict[str, None] = {}
    for line_number, line in numbered_lines(data):
        if line_number < first_loss:
            text = line[prefix_end(line) : MAX_LINE].strip()
            if len(opening) < MAX_OPENING and len(_LETTER.findall(text)) >= MIN_LETTERS:
                opening[text] = None
        elif any(text in line for text in opening) and line[prefix_end(line) : MAX_LINE].strip() in opening:
            yield line_number


def _steps(counts: Ints) -> tuple[Ints, str]:
    """Return the step of each training loss, and a note on it: the counts beside the losses if all have one and they rise."""
    if not len(counts) or counts[0] < 0 or (np.diff(counts) <= 0).any():
        return np.arange(1, len(counts) + 1), _NUMBERED
    if counts[0] == 0:
        return counts + 1, "the counts beside the losses begin at 0: N was taken as step N + 1"
    return counts, "steps are the counts beside the losses"
