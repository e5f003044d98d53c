"""What an importer hands on: the lines of a scalar log, what the format knew of the run, and what must be said aloud."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.source import Source

Row = dict[str, float | str]
Document = Mapping[str, Any]


class Imported(Struct, frozen=True):
    """One run out of another tracker's log.

    Attributes:
        table: Lines of `ck.scalars.v1` as columns: values by catalogue name, in the order of sessions, then of steps. A cell
            that is not recorded was not there; a NaN was recorded as NaN.
        manifest: What the format knew of the run as a whole.
        notes: What was recognised, what was left out, what the format cannot tell; one sentence each.
        source: Name of the format.
        name: Which of several runs in one source; empty: there is only this one.
        documents: Checkpoints of `ck.analysis.v1` that per-layer statistics make, in the order of steps: each has a `step`
            and sections such as {"gradients": {"layer.0": {"norm": 1.5}}}.
    """

    table: LineTable
    manifest: Manifest
    notes: tuple[str, ...]
    source: str
    name: str = ""
    documents: Sequence[Document] = ()

    @property
    def rows(self) -> list[Row]:
        """The lines, a dictionary each."""
        return rows_of(self.table)


def rows_of(table: LineTable) -> list[Row]:
    """Return the lines of a table: `step`, `session` where there are several, and what was recorded."""
    several = bool(table.sessions.any())
    rows: list[Row] = [
        {"step": step, "session": session} if several else {"step": step}
        for step, session in zip(table.steps.tolist(), table.sessions.tolist(), strict=True)
    ]
    for index, name in enumerate(table.names):
        values = table.values[index].tolist()
        known = None if table.recorded is None else table.recorded[index].tolist()
        for position, value in enumerate(values):
            if known is None or known[position]:
                rows[position][name] = value
    for name, words in table.texts.items():
        for row, word in zip(rows, words, strict=True):
            if word is not None:
                row[name] = word
    return rows


class Importer(Protocol):
    """What a module of this package offers to become an importer.

    Attributes:
        NAME: The format, as a user would call it.
        GENERIC: The format has no mark of its own, so that every other importer is asked first.
    """

    NAME: str
    GENERIC: bool

    def detects(self, source: Source) -> bool:
        """Tell whether this importer reads a source: a file by its first bytes, a folder by what lies in it."""

    def read(self, source: Source, columns: Mapping[str, str]) -> list[Imported]:
        """Read every run of the source; `columns` names its own columns for catalogue names.

        Raises:
            UnreadableError: Where the source is of this format, but broken or without a single value.
            UsageError: Where `columns` names what is not there.
        """
