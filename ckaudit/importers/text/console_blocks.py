"""Consoles that show a block for each step: a line that names the step, and below it a name and a value to a line."""

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from ckaudit.importers.importer import Source
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

HEAD_BYTES = 2**18
MIN_BLOCKS = 2
Record = dict[str, str]


class ConsoleBlocks(Struct, frozen=True):
    """How one program writes its blocks.

    Attributes:
        mark: Stands in the first line of each.
        begin: Matches the first line of a block.
        step: Returns its step from that match.
        row: Matches a line with a value.
        cell: Returns name and text of the value from that match; of two of one name the first counts.
    """

    mark: bytes
    begin: Callable[[str], "re.Match[str] | None"]
    step: Callable[["re.Match[str]"], int]
    row: Callable[[str], "re.Match[str] | None"]
    cell: Callable[["re.Match[str]"], tuple[str, str]]

    def are_in(self, source: Source) -> bool:
        """Tell by the first lines of several blocks that hold numbers."""
        head = source.data[:HEAD_BYTES]
        return self.mark in head and is_text(source) and len(self.records(head)) >= MIN_BLOCKS

    def records(self, data: bytes) -> list[Record]:
        """Return the values of each block that has one, its step first."""
        return [record for record in self._blocks(data) if len(record) > 1]

    def _blocks(self, data: bytes) -> Iterator[Record]:
        record: Record = {}
        for _, line in numbered_lines(data):
            if len(line) > MAX_LINE:
                continue
            if begun := self.begin(line):
                if record:
                    yield record
                record = {"step": str(self.step(begun))}
            elif record and (row := self.row(line)):
                name, text = self.cell(row)
                record.setdefault(name, text)
        if record:
            yield record
