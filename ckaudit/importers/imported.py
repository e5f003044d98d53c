"""What an importer hands on: the lines of a scalar log, what the format knew of the run, and what must be said aloud."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ckaudit.contract.manifest import Manifest

Row = dict[str, float | str]


class Imported(Struct, frozen=True):
    """One run out of another tracker's log.

    Attributes:
        rows: Lines of `ck.scalars.v1`: `step`, `session` where the log went back, and values by catalogue name. A value
            that is absent was not recorded; a NaN was recorded as NaN. In the order of sessions, then of steps.
        manifest: What the format knew of the run as a whole.
        notes: What was recognised, what was left out, what the format cannot tell; one sentence each.
        source: Name of the format.
    """

    rows: list[Row]
    manifest: Manifest
    notes: tuple[str, ...]
    source: str


class Importer(Protocol):
    """What a module of this package offers to become an importer.

    Attributes:
        NAME: The format, as a user would call it.
        GENERIC: The format has no mark of its own, so that every other importer is asked first.
    """

    NAME: str
    GENERIC: bool

    def detects(self, path: Path, head: bytes) -> bool:
        """Tell by the first bytes of a file whether this importer reads it."""

    def read(self, path: Path, data: bytes, columns: Mapping[str, str]) -> Imported:
        """Read the whole file; `columns` names the file's own columns for catalogue names.

        Raises:
            UnreadableError: Where the file is of this format, but broken or without a single value.
            UsageError: Where `columns` names what is not there.
        """
