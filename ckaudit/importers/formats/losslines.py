"""Lines of losses that name neither a step nor an epoch, `Training Loss: 0.1345`: they are numbered as they stand.

What lines tell of a validation between two of them holds at the one before.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.numbers import number
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_reader import LogContent, RunFact, StepLines, step_lines
from ckaudit.importers.text.line_values import is_wanted, name_of, named_lines, value_cells
from ckaudit.importers.text.log import Format, NamedLines, is_text, no_run_facts, parsed_dialect, read_scanned
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "lines of losses"
GENERIC = True
MIN_LINES = 5
"""Lines with a training loss that make a log: a report of results has fewer."""

HEAD_BYTES = 2**21
Numbered = tuple[int, int, dict[str, float]]


def detects(source: Source) -> bool:
    """Tell by several lines with a training loss; whatever names a step is told by another format before."""
    if not is_text(source) or b"oss" not in source.data[:HEAD_BYTES]:
        return False
    return sum(_is_trained(values) for _, _, values in _lines(source.data[:HEAD_BYTES])) >= MIN_LINES


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the lines.

    Raises:
        UnreadableError: Where no line has a value.
        UsageError: Where `columns` names what no line holds.
    """
    rows = step_lines(_lines(source.data))
    unwanted = [] if columns else [key for key in rows.columns if name_of(key) is None]
    log = LogContent(rows, [], error_lines(source.data), source.line_count, [], unwanted)
    return read_scanned(log, source, columns, Format(parsed_dialect(NAME, is_wanted), _named, no_run_facts))


def _lines(data: bytes) -> Iterator[Numbered]:
    """Yield the number, the place among the training losses, and the values of each line with a name that is known."""
    place = 0
    for line_number, line in numbered_lines(data):
        if len(line) > MAX_LINE or "oss" not in line:
            continue
        found = ((cell.key, number(line[cell.start : cell.end].replace(",", ""))) for cell in value_cells(line))
        values = {key: value for key, value in found if value is not None and name_of(key)}
        place += _is_trained(values)
        if values and place:
            yield line_number, place, values


def _is_trained(values: Mapping[str, float]) -> bool:
    return any(name_of(key) == "train_loss_raw" for key in values)


def _named(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
    note = "no line names a step: lines with a training loss were numbered from 1; how many updates lie between them is not known"
    return replace(named_lines(rows, mapped, [note]), step_unit="entry")
