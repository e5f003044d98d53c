"""One series saved as a table of steps and values, named by its file: `train_loss.csv`, as Neptune's `fetch_values` returns it.

The header holds `step` and `value`, and at most an index and a time; only the file name says what the value is.
"""

from collections.abc import Mapping

from ckaudit.importers.formats import csvfile
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name
from ckaudit.importers.tables.table import read_table
from ckaudit.importers.tables.table_header import sniff_table
from ckaudit.importers.text.prefix import unix_time

NAME = "series CSV"
GENERIC = False
_NEEDED = {"step", "value"}
_INDEX = {"", "unnamed: 0", "index"}
_TIME = "timestamp"
_TIMES = {_TIME, "time", "wall_time"}


def detects(source: Source) -> bool:
    """Tell whether the table has such a header, and the file the name of a series."""
    table_head = sniff_table(source.head)
    if table_head is None or not _name_of(source):
        return False
    names = [name.strip().lower() for name in table_head[1]]
    others = [name for name in names if name not in _NEEDED | _INDEX]
    return set(names) >= _NEEDED and len(set(names)) == len(names) and (not others or (len(others) == 1 and others[0] in _TIMES))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the values under the name of the file, or under the name in `columns`.

    Raises:
        UnreadableError: Where no value is a number.
        UsageError: Where `columns` names something that does not exist.
    """
    table_head = sniff_table(source.head)
    if columns or table_head is None:
        return csvfile.read(source, columns)
    delimiter, header, _ = table_head
    places = {name.strip().lower(): place for place, name in enumerate(header) if name.strip().lower() not in _INDEX}
    cells = read_table(source.data, source.shown, set(places.values()), delimiter).cells
    named = {_name_of(source) if name == "value" else name if name == "step" else _TIME: cells[places[name]] for name in places}
    named |= {_TIME: [_in_seconds(cell) for cell in named[_TIME]]} if _TIME in named else {}
    text = "\n".join("\t".join(row) for row in [tuple(named), *zip(*named.values(), strict=True)])
    table, labels = csvfile.labelled_table(source.with_data(f"{text}\n".encode()), {})
    return csvfile.imported_runs(table, labels, csvfile.choices_of(table.header, {}, source.shown), source.shown, NAME)


def _in_seconds(cell: str) -> str:
    """Return a date and time in Unix seconds, any other text unchanged."""
    return cell if (seconds := unix_time(cell.strip())) is None else repr(seconds)


def _name_of(source: Source) -> str:
    name = catalogue_name(source.path.name.partition(".")[0]) or ""
    return "" if name in ("step", "time") else name
