"""Contradictions within one checkpoint: values that contradict each other or the definition of their field.

Each check is a function `CheckInput -> findings`, registered by the decorator `check`; the modules of this folder are imported. A
check must be cheap if nothing is wrong: it tests whole columns first, and single tensors only to name them.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import astuple

from ckaudit.catalogue import import_all
from ckaudit.contract.io.columns import EMPTY, SectionColumns
from ckaudit.contract.io.json_locations import pointer_of
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import ViolationKind

PointerParts = tuple[str | int, ...]


class CheckInput(Struct, frozen=True):
    """One checkpoint under examination: its typed form, and its sections as columns."""

    file: str
    document: Checkpoint
    tables: dict[str, SectionColumns]

    def table(self, section: str) -> SectionColumns:
        """Return a section's columns; an unrecorded section has none."""
        return self.tables.get(section, EMPTY)

    def entries(self, section: str) -> Mapping[str, Any]:
        """Return the entries of a section by name, for any form of the document; empty if it is not recorded."""
        section_entries = getattr(self.document, section)
        if section_entries is UNSET or isinstance(section_entries, dict):
            return section_entries or {}
        return dict(zip(self.tables[section].names, astuple(section_entries), strict=True))

    def find(
        self, kind: ViolationKind, place: PointerParts, expected: str, found: object, *, where: str | None = None
    ) -> Finding:
        """Return a finding on a value that cannot be.

        Args:
            kind: What is wrong.
            place: Keys and indices that lead to the value.
            expected: The expected value, in words.
            found: The actual value.
            where: The tensor, layer or scalar; default: the second key.
        """
        shown = f"{found:.6g}" if isinstance(found, float) else str(found)
        return kind.at(
            self.file,
            f"{'.'.join(map(str, place))} is {shown}, not {expected}",
            where=where or (str(place[1]) if len(place) > 1 else None),
            first_step=self.document.step,
            last_step=self.document.step,
            pointer=pointer_of(iter(place)),
            expected=expected,
            found=shown,
        )


CheckFunction = Callable[[CheckInput], Iterator[Finding]]


class MeaningCheck(Struct, frozen=True, eq=False):
    """A check, the kinds of violation it can find, and the fields it reads."""

    function: CheckFunction
    kinds: tuple[ViolationKind, ...]
    reads: tuple[str, ...]

    @property
    def members(self) -> frozenset[str]:
        """The members of a checkpoint that it reads."""
        return frozenset(path.split(".")[0] for path in self.reads)


_CHECKS: list[MeaningCheck] = []


def check(*kinds: ViolationKind, reads: tuple[str, ...]) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function as a check.

    Args:
        kinds: Every kind of violation the function can yield.
        reads: Paths of the fields it reads, such as "weights.*.percentiles".
    """

    def enter(function: CheckFunction) -> CheckFunction:
        _CHECKS.append(MeaningCheck(function, kinds, reads))
        return function

    return enter


@cache
def checks() -> tuple[MeaningCheck, ...]:
    """Return every check of this folder."""
    import_all(__name__)
    return tuple(_CHECKS)


@cache
def checks_of(recorded: frozenset[str]) -> tuple[MeaningCheck, ...]:
    """Return the checks that read any of a checkpoint's members."""
    return tuple(meaning_check for meaning_check in checks() if meaning_check.members & recorded)


def recorded_members(document: Struct) -> frozenset[str]:
    """Return the names of a document's recorded members."""
    members = zip(document.__struct_fields__, astuple(document), strict=True)
    return frozenset([name for name, value in members if value is not UNSET])


def run_checks(subject: CheckInput) -> list[Finding]:
    """Return the findings of all checks in one checkpoint."""
    applicable = checks_of(recorded_members(subject.document))
    return [finding for meaning_check in applicable for finding in meaning_check.function(subject)]
