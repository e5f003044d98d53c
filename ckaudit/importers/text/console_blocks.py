"""Consoles that print a block per step: a line that names the step, then lines with a name and a value each."""

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
    """The format of one program's blocks.

    Attributes:
        mark: Occurs in the first line of each block.
        begin: Matches the first line of a block.
        step: Returns the block's step from that match.
        row: Matches a line with a value.
        cell: Returns name and text of the value from that match; of two values with one name the first counts.
    """

    mark: bytes
    begin: Callable[[str], "re.Match[str] | None"]
    step: Callable[["re.Match[str]"], int]
    row: Callable[[str], "re.Match[str] | None"]
    cell: Callable[["re.Match[str]"], tuple[str, str]]

    def are_in(self, source: Source) -> bool:
        """Tell whether the text has the first lines of several blocks that hold numbers."""
        head = source.data[:HEAD_BYTES]
        return self.mark in head and is_text(source) and len(self.records(head)) >= MIN_BLOCKS

    def records(self, data: bytes) -> list[Record]:
        """Return the values of each block that has any, step first."""
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
