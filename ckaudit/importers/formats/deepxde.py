"""DeepXDE's table of a training, the terms of each loss in brackets.

    Step      Train loss              Test loss               Test metric
    0         [4.66e+01, 1.52e-02]    [4.77e+01, 1.52e-02]    [1.03e+00]
    1000      [3.15e-04, 1.35e-07]    [2.59e-04, 1.35e-07]    [3.41e-04]

The loss that is trained is the sum of its terms, each already weighted; the one on test points is the validation loss. What a
metric measures the table does not say.
"""

import re
from collections.abc import Iterator, Mapping

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.numbers import number
from ckaudit.importers.text.line_reader import step_lines
from ckaudit.importers.text.line_values import read_named_lines
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "DeepXDE table"
GENERIC = False
HEAD_BYTES = 2**20
_HEADER = re.compile(rb"^Step {1,40}Train loss {1,2000}Test loss {1,2000}Test metric", re.MULTILINE)
_LIST = r"\[([^\[\]]{0,2000})\]"
_ROW = re.compile(rf"(\d{{1,12}}) {{1,40}}{_LIST} {{1,2000}}{_LIST} {{1,2000}}\[")
_SUMS = "the training loss is the sum of the terms of Train loss, the validation loss that of Test loss"
_METRICS = "the metrics on test points were left out, for the table does not say what they measure"


def detects(source: Source) -> bool:
    """Tell by the header, and a row."""
    head = source.data[:HEAD_BYTES]
    return is_text(source) and _HEADER.search(head) is not None and next(_lines(head), None) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the sums of the losses.

    Raises:
        UnreadableError: Where no row has a loss.
        UsageError: Where `columns` names what is not there.
    """
    return read_named_lines(source, columns, NAME, step_lines(_lines(source.data)), notes=[_SUMS, _METRICS])


def _lines(data: bytes) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Yield the number of each line with a row, its step, and the losses of it."""
    for line_number, line in numbered_lines(data):
        row = _ROW.match(line) if len(line) <= MAX_LINE else None
        sums = {"train loss": _sum(row[2]), "test loss": _sum(row[3])} if row else {}
        losses = {name: loss for name, loss in sums.items() if loss is not None}
        if row and losses:
            yield line_number, int(row[1]), losses


def _sum(listed: str) -> float | None:
    """Return the sum of the terms of a loss, None where one is no number, or there is none."""
    terms = [value for term in listed.split(",") if (value := number(term)) is not None]
    return sum(terms) if len(terms) == listed.count(",") + 1 else None
