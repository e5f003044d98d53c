"""A list of findings that a broken file cannot make endless."""

from collections import Counter
from typing import Any

from msgspec import Struct, field

from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import Kind


class Bounded(Struct):
    """Findings of one file: the first `limit` of each kind, then one that counts the others.

    Attributes:
        file: Name of the file in findings.
        limit: Findings of one kind that are kept; a reader looks at no more.
    """

    file: str
    limit: int = 20
    _kept: list[Finding] = field(default_factory=list)
    _counts: Counter[Kind] = field(default_factory=Counter)

    def add(self, kind: Kind, message: str, **place: Any) -> None:
        """Enter one finding."""
        self._counts[kind] += 1
        if self._counts[kind] <= self.limit:
            self._kept.append(kind.at(self.file, message, **place))

    def close(self) -> list[Finding]:
        """Return what was kept, and a finding for what was only counted."""
        more = [
            kind.at(self.file, f"{count - self.limit:,} more places, as those above")
            for kind, count in self._counts.items()
            if count > self.limit
        ]
        return self._kept + more
