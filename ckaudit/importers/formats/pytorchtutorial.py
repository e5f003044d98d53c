"""Lines of PyTorch's tutorials on recurrent networks: time, iteration, percentage, and the mean loss since the last line.

2m 8s (- 6m 24s) (25000 25%) 2.3920
25000 25% (2m 8s) 2.3920 Rovigatti / Italian
"""

import re
from collections.abc import Iterator, Mapping

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.numbers import number
from ckaudit.importers.text.line_reader import step_lines
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.named_lines import read_named_lines
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "lines of PyTorch's tutorials"
GENERIC = False
HEAD_BYTES = 2**20
MIN_LINES = 3
_TIME = r"\d{1,5}m \d{1,2}s"
_LOSS = r"(\d{1,12}\.\d{1,20}|nan|inf)"
_LINE = re.compile(
    rf"{_TIME} (?:\(- {_TIME}\) )?\((\d{{1,12}}) \d{{1,3}}%\) {_LOSS}(?![\w.])"
    rf"|(?<![\w.])(\d{{1,12}}) \d{{1,3}}% \({_TIME}\) {_LOSS}(?![\w.])"
)


def detects(source: Source) -> bool:
    """Tell whether the text has several such lines."""
    if not is_text(source) or b"%" not in source.data[:HEAD_BYTES]:
        return False
    lines = _lines(source.data[:HEAD_BYTES])
    return sum(1 for _, _ in zip(range(MIN_LINES), lines, strict=False)) == MIN_LINES


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the iterations and their losses.

    Raises:
        UnreadableError: Where no line has a loss.
        UsageError: Where `columns` names something that does not exist.
    """
    return read_named_lines(source, columns, NAME, step_lines(_lines(source.data)))


def _lines(data: bytes) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Yield the line number, the iteration and the loss of each line with a loss."""
    for line_number, line in numbered_lines(data):
        match = _LINE.search(line) if "%" in line and len(line) <= MAX_LINE else None
        loss = number(match[2] or match[4]) if match else None
        if match and loss is not None:
            yield line_number, int(match[1] or match[3]), {"train loss": loss}
