"""CSV (RFC 4180): a value that was not recorded is an empty cell, one that is not finite is a word."""

from typing import BinaryIO

import numpy as np

from ckaudit.audit.measure import Measurement
from ckaudit.contract.schema.numbers import to_word
from ckaudit.reports.escape import visible
from ckaudit.reports.metrics.long import COLUMNS, SeriesPart, pieces
from ckaudit.run.read import Progress


def write(measurement: Measurement, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write the long form, a piece at a time."""
    sink.write((",".join(COLUMNS) + "\n").encode())
    sink.writelines(_lines(piece).encode() for piece in pieces(measurement, progress))


def _lines(piece: SeriesPart) -> str:
    values = [repr(value) for value in piece.values.tolist()]
    for row in np.flatnonzero(~np.isfinite(piece.values)).tolist():
        values[row] = str(to_word(float(piece.values[row]))) if piece.recorded[row] else ""
    names = f"{quoted(piece.metric)},{quoted(piece.label)}"
    flags = ["true" if known else "false" for known in piece.recorded.tolist()]
    rows = zip(piece.steps.tolist(), values, flags, strict=True)
    return "".join([f"{step},{names},{value},{flag}\n" for step, value, flag in rows])


def quoted(text: str) -> str:
    """Return one cell, in quotes where it needs them.

    >>> quoted('a "b", c')
    '"a ""b"", c"'
    """
    text = visible(text)
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text
