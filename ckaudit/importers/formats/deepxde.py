"""DeepXDE's training table on the console, with the terms of each loss in brackets, and its `loss.dat`.

    Step      Train loss              Test loss               Test metric
    0         [4.66e+01, 1.52e-02]    [4.77e+01, 1.52e-02]    [1.03e+00]
    1000      [3.15e-04, 1.35e-07]    [2.59e-04, 1.35e-07]    [3.41e-04]
    # step, loss_train, loss_test, metrics_test
    0.000e+00 4.66e+01 1.52e-02 4.77e+01 1.52e-02 1.03e+00

The training loss is the sum of its terms, which are already weighted; the loss on test points is the validation loss. A file has
equally many columns for both losses, and at most one for a metric. The table does not say what a metric measures.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.numbers import number, step_number
from ckaudit.importers.text.line_reader import StepLines, step_lines
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.named_lines import read_named_lines
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "DeepXDE table"
GENERIC = False
HEAD_BYTES = 2**20
_HEADER = re.compile(rb"^Step {1,40}Train loss {1,2000}Test loss {1,2000}Test metric", re.MULTILINE)
_FILE_HEADER = re.compile(rb"\A# step, loss_train, loss_test, metrics_test\r?\n")
_LIST = r"\[([^\[\]]{0,2000})\]"
_ROW = re.compile(rf"(\d{{1,12}}) {{1,40}}{_LIST} {{1,2000}}{_LIST} {{1,2000}}\[")
_SUMS = "the training loss is the sum of the terms of Train loss, the validation loss that of Test loss"
_SAME = "the loss on test points was left out: it is that on training points to the last digit, so they are the same points"
_METRICS = "the metrics on test points were left out, for the table does not say what they measure"


def detects(source: Source) -> bool:
    """Tell whether the text has the header and a row."""
    head = source.data[:HEAD_BYTES]
    has_header = _HEADER.search(head) or _FILE_HEADER.match(head)
    return is_text(source) and has_header is not None and next(_lines(head), None) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the sums of the losses.

    Raises:
        UnreadableError: Where no row has a loss.
        UsageError: Where `columns` names something that does not exist.
    """
    rows, notes = step_lines(_lines(source.data)), [_SUMS, _METRICS]
    train, test = (rows.columns.get(name) for name in ("train loss", "test loss"))
    if not columns and train is not None and test is not None and np.array_equal(train.values, test.values, equal_nan=True):
        rows, notes = StepLines(rows.steps, rows.origin, {"train loss": train}), [_SUMS, _SAME, _METRICS]
    return read_named_lines(source, columns, NAME, rows, notes=notes)


def _lines(data: bytes) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Yield the line number, the step and the losses of each row."""
    parsed = _of_file if _FILE_HEADER.match(data) else _of_console
    for line_number, line in numbered_lines(data):
        row = parsed(line) if len(line) <= MAX_LINE else None
        losses = {name: loss for name, loss in row[1].items() if loss is not None} if row else {}
        if row and losses:
            yield line_number, row[0], losses


def _of_console(line: str) -> tuple[int, dict[str, float | None]] | None:
    """Return the step and the losses of a row in the console's table."""
    row = _ROW.match(line)
    return (int(row[1]), {"train loss": _sum(row[2].split(",")), "test loss": _sum(row[3].split(","))}) if row else None


def _of_file(line: str) -> tuple[int, dict[str, float | None]] | None:
    """Return the step and the losses of a row in `loss.dat`."""
    first, *cells = line.split() or [""]
    step, terms = step_number(number(first)), len(cells) // 2
    if step is None or not terms:
        return None
    return step, {"train loss": _sum(cells[:terms]), "test loss": _sum(cells[terms : 2 * terms])}


def _sum(terms: Sequence[str]) -> float | None:
    """Return the sum of the terms of a loss, or None where a term is not a number."""
    values = [value for term in terms if (value := number(term)) is not None]
    return sum(values) if len(values) == len(terms) else None
