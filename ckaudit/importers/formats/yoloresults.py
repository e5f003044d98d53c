"""`results.txt` of YOLOv3, v5 and v7 as Ultralytics and its forks wrote it: one row per epoch, without a header.

    0/299  11.8G  0.0698  0.0315  0  0.1013  30  640  0.00464  0.290  0.00140  0.00022  0.0934  0.0385  0

The columns are the epoch, memory, box, objectness, class and their sum, labels, image size, precision, recall, mAP at 0.5, mean
mAP (or F1), and the three parts of the validation loss, which is their sum.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from ckaudit.importers.formats.yolo import EPOCH_AXIS, EPOCHS_FROM_ZERO, without_zeros
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.numbers import number
from ckaudit.importers.text.line_reader import step_lines
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.named_lines import read_named_lines
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "YOLO results.txt"
GENERIC = False
HEAD_BYTES = 2**16
COLUMNS = 15
HELD_OUT = "val loss"
_ROW = re.compile(r"\s{0,20}(\d{1,6})/\d{1,6}\s{1,20}\d{1,5}(?:\.\d{1,4})?G\s")
_SUM = "the training loss is the sum of box, objectness and class in the sixth column; the validation loss that of the last three"


def detects(source: Source) -> bool:
    """Tell whether the first two lines are such rows; the file holds nothing else."""
    if not is_text(source):
        return False
    places = [line for line, _, _ in islice(_lines(source.data[:HEAD_BYTES]), 2)]
    return places == [1, 2]


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the rows.

    Raises:
        UnreadableError: Where no row has a loss.
        UsageError: Where `columns` names something that does not exist.
    """
    rows, notes = step_lines(_lines(source.data)), [_SUM, EPOCH_AXIS, EPOCHS_FROM_ZERO]
    if (held_out := rows.columns.get(HELD_OUT)) is not None:
        rows.columns[HELD_OUT], unmeasured = without_zeros(held_out)
        notes += unmeasured
    return read_named_lines(source, columns, NAME, rows, notes=notes, step_unit="epoch")


def _lines(data: bytes) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Yield the line number, the epoch counted from 1, and the losses of each row."""
    for line_number, line in numbered_lines(data):
        row = _ROW.match(line) if len(line) <= MAX_LINE else None
        cells = line.split()[2:] if row else []
        known = [value for cell in cells if (value := number(cell)) is not None]
        if row is None or len(known) != len(cells) or len(known) != COLUMNS - 2:
            continue
        yield line_number, int(row[1]) + 1, {"train loss": known[3], HELD_OUT: sum(known[-3:])}
