"""A scalar of TensorBoard saved as CSV: wall time, step and value; what the value is stands in the name of the file alone.

The browser calls it `run-RUN-tag-TAG.csv`. A file of another name needs `--map loss=Value`.
"""

import re
from collections.abc import Mapping

from ckaudit.importers.formats import csvfile
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name
from ckaudit.importers.tables.table_header import sniff_table

NAME = "TensorBoard CSV"
GENERIC = False
HEADER = ["Wall time", "Step", "Value"]
_TAG = re.compile(r"run-.*-tag-(.+?)(?: ?\(\d+\))?\.csv(?:\.gz|\.zst)?\Z", re.IGNORECASE)


def detects(source: Source) -> bool:
    """Tell by the header."""
    table_head = sniff_table(source.head)
    return table_head is not None and table_head[1] == HEADER


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the values under the tag that the file's name gives, or under the name that `columns` gives them.

    Raises:
        UnreadableError: Where neither says what the values are, or none is a number.
        UsageError: Where `columns` names what is not there.
    """
    tag = _TAG.match(source.path.name)
    if columns or tag is None or catalogue_name(tag[1]) is None:
        return csvfile.read(source, columns)
    _, _, rows = source.data.partition(b"\n")
    return csvfile.read(source.with_data(f"wall_time,step,{catalogue_name(tag[1])}\n".encode() + rows), columns)
