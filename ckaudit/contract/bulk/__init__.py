"""Bulk checks of checkpoints: files of a run are similar, and testing a bound on thirty costs hardly more than on one.

A bulk proof shows that the ordinary checks would find nothing. Files without a proof go through the ordinary checks, which remain
the only source of findings.
"""

from struct import error as NotNumbers  # noqa: N812  an exception by any other name
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, field

from ckaudit.contract.bulk.column_store import (
    Bools,
    FileBlock,
    Floats,
    LearnedLayout,
    PackedGrids,
    learn_layout,
    pack_grids,
    write_columns,
)
from ckaudit.contract.bulk.specialized_decoder import ENTRIES, FieldKey, FileColumns, SpecializedDecoder, build_decoder
from ckaudit.contract.bulk.vectorized_checks import PROOFS, provable
from ckaudit.contract.check import CheckedCheckpoint, check_checkpoint, colons_elsewhere, forgiven_text_findings
from ckaudit.contract.checks import CheckInput, MeaningCheck, checks, recorded_members
from ckaudit.contract.checks.grids import FIELDS
from ckaudit.contract.io.codec import Decoded
from ckaudit.contract.io.json_locations import escape, with_lines
from ckaudit.contract.schema.checkpoint import GRID, VERSION
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.unknown_fields import UnknownField, unknown_findings
from ckaudit.contract.violations import BARE_NAN, UNKNOWN_FIELD


class FilePattern(Struct, frozen=True):
    """Common layout of the files of a run, learned from one of them.

    Attributes:
        decoder: Reads such files.
        layout: Facts of the sample file that the proofs use.
        proved: Checks that can be proved.
        recorded: Small sections and head members of that file.
        alone: Checks that must read each file, by its differences from the sample.
    """

    decoder: SpecializedDecoder
    layout: LearnedLayout
    proved: frozenset[MeaningCheck]
    recorded: frozenset[str]
    alone: dict[tuple[frozenset[FieldKey], frozenset[str]], tuple[MeaningCheck, ...]] = field(default_factory=dict)

    def remaining(self, changed: frozenset[FieldKey], recorded: frozenset[str]) -> tuple[MeaningCheck, ...]:
        """Return the checks that must read a file: their input has changed, or is neither proved nor kept."""
        key = changed, recorded
        if key not in self.alone:
            packed = {(name, field) for name, section in self.decoder.sections.items() for field in section.packed}
            head = recorded | self.recorded
            self.alone[key] = tuple(
                check
                for check in checks()
                if _columns(check) & changed
                or (check not in self.proved and (_columns(check) & packed or check.members.difference(ENTRIES) & head))
            )
        return self.alone[key]


def _columns(check: MeaningCheck) -> set[FieldKey]:
    """Return the columns that a check reads."""
    parts = [path.split(".") for path in check.reads]
    return {(part[0], part[2]) for part in parts if part[0] in ENTRIES}


def learn_pattern(data: bytes, file: str, checked: CheckedCheckpoint) -> FilePattern | None:
    """Learn from one file the layout that others may have.

    Args:
        data: Its bytes.
        file: Its name.
        checked: Result of the ordinary checks.

    Returns:
        The pattern; None if the file has faults other than an unknown field or a bare word, or cannot serve as a pattern.
    """
    codes = {finding.code for finding in checked.findings}
    if checked.document is None or not codes <= {BARE_NAN.code, UNKNOWN_FIELD.code}:
        return None
    unknown = [finding.found or "" for finding in checked.findings if finding.code == UNKNOWN_FIELD.code]
    decoder = build_decoder(checked.tables, unknown, words=BARE_NAN.code in codes)
    if decoder is None:
        return None
    layout = learn_layout(CheckInput(file, checked.document, checked.tables), decoder)
    recorded = {(name, column) for name, columns in checked.tables.items() for column in columns.columns}
    proved = frozenset(check for check in checks() if provable(check, decoder, _columns(check) & recorded))
    pattern = FilePattern(decoder, layout, proved, _recorded(checked.document))
    taken = match_file(pattern, data, file, np.empty(layout.width))
    return pattern if taken is not None and taken.checked.findings == checked.findings else None


def _recorded(document: Any) -> frozenset[str]:
    """Return the names of a document's recorded members other than its large sections."""
    return recorded_members(document).difference(ENTRIES)


class PendingFile(Struct, frozen=True):
    """A file whose checks are pending until its block is proved.

    Attributes:
        data: Its bytes.
        file: Its name.
        findings: Findings already returned.
        proved: Checks that remain to be proved.
        grids: Its packed grids.
    """

    data: bytes
    file: str
    findings: list[Finding]
    proved: frozenset[MeaningCheck]
    grids: dict[FieldKey, PackedGrids]


class RecognisedFile(Struct, frozen=True):
    """A file that fits the pattern: its result so far, and what is pending."""

    checked: CheckedCheckpoint
    waiting: PendingFile


def match_file(pattern: FilePattern, data: bytes, file: str, row: Floats) -> RecognisedFile | None:
    """Read a file and run the checks that cannot be proved later.

    Args:
        pattern: The expected layout.
        data: Its bytes.
        file: Its name.
        row: Receives its numbers, shape (layout.width,).

    Returns:
        None if the file does not fit the pattern.
    """
    if b"\\" in data or (cut := pattern.decoder.read(data)) is None:
        return None
    colons = np.count_nonzero(np.frombuffer(cut.text, np.uint8) == ord(":"))
    if colons != cut.colons + sum(colons_elsewhere(cut.document, cut.tables)):
        return None
    try:
        write_columns(pattern.layout.slots, cut.tables, row.data)
    except (NotNumbers, TypeError):
        return None
    grids = _grids(pattern.layout, cut)
    remaining = pattern.remaining(cut.changed.difference(grids), _recorded(cut.document))
    document = cut.document
    findings = forgiven_text_findings(Decoded(document, cut.text, cut.bare_words), file)
    if cut.unknown:
        findings += unknown_findings(_unknown(cut), file, VERSION)
    subject = CheckInput(file, document, cut.tables)
    wrong = [finding for check in remaining for finding in check.function(subject)]
    checked = CheckedCheckpoint(cut.document, cut.tables, findings + with_lines(wrong, cut.text) if wrong else findings)
    return RecognisedFile(checked, PendingFile(data, file, checked.findings, pattern.proved.difference(remaining), grids))


def _grids(layout: LearnedLayout, cut: FileColumns) -> dict[FieldKey, PackedGrids]:
    """Pack the grids of each field that can be packed."""
    columns = {}
    for name, table in cut.tables.items():
        for grid_field in FIELDS:
            if grid_field in table.columns:
                heads = table.columns.get("heads") if grid_field != GRID else None
                try:
                    shapes = layout.shapes[name] if grid_field == GRID else None
                    columns[name, grid_field] = pack_grids(table.columns[grid_field], shapes, heads)
                except (NotNumbers, TypeError):
                    continue
    return columns


def _unknown(cut: FileColumns) -> dict[str, UnknownField]:
    """Return the unknown fields of a file by path."""
    unknown = {}
    for (section, key), column in cut.unknown.items():
        if times := len(column) - column.count(UNSET):
            row = next(index for index, value in enumerate(column) if value is not UNSET)
            stem = f"/{section}/{escape(cut.tables[section].names[row])}" if section else ""
            unknown[f"{section}.*.{key}" if section else key] = UnknownField(times, f"{stem}/{escape(key)}")
    return unknown


class BulkChecker(Struct):
    """Checks checkpoints one after another, and proves deferred checks for a block of files at a time.

    Attributes:
        files: Files per block: enough to make numpy calls cheap.
        size: Bytes per block, whose texts are kept until it is proved.
        patience: How far files without a fitting pattern or a proof, each counted twice, may outnumber the others before bulk
            checks stop.
        lessons: Largest number of patterns: each creates types that are never freed.
    """

    files: int = 24
    size: int = 8 * 2**20
    patience: int = 24
    lessons: int = 32
    _pattern: FilePattern | None = None
    _numbers: Floats = field(default_factory=lambda: np.empty((0, 0)))
    _block: list[PendingFile] = field(default_factory=list)
    _late: list[Finding] = field(default_factory=list)
    _misses: int = 0

    def check(self, data: bytes, file: str) -> CheckedCheckpoint:
        """Check one checkpoint, except for checks that are deferred to the end of its block."""
        if self._misses > self.patience:
            return check_checkpoint(data, file)
        row = self._numbers[len(self._block)] if self._pattern else self._numbers
        if self._pattern and (taken := match_file(self._pattern, data, file, row)) is not None:
            self._misses = max(self._misses - 1, 0)
            self._block.append(taken.waiting)
            if len(self._block) >= self.files or sum(len(waiting.data) for waiting in self._block) >= self.size:
                self._prove()
            return taken.checked
        self._misses += 2
        checked = check_checkpoint(data, file)
        if self.lessons and (pattern := learn_pattern(data, file, checked)) is not None:
            self._prove()
            self._pattern, self._numbers = pattern, np.empty((self.files, pattern.layout.width))
            self.lessons -= 1
        return checked

    def close(self) -> list[Finding]:
        """Prove what is left, and return all findings of files whose proof failed."""
        self._prove()
        late, self._late = self._late, []
        return late

    def _prove(self) -> None:
        """Prove one block; files whose proof fails go through the ordinary checks from the start."""
        if self._pattern is None or not self._block:
            return
        for index in np.flatnonzero(_doubtful(self._pattern, self._block, self._numbers)):
            doubt = self._block[index]
            self._late += [
                finding for finding in check_checkpoint(doubt.data, doubt.file).findings if finding not in doubt.findings
            ]
            self._misses += 2
        self._block = []


def _doubtful(pattern: FilePattern, taken: list[PendingFile], numbers: Floats) -> Bools:
    """Return which files of a block are not proved, shape (files,)."""
    block = FileBlock(
        numbers=numbers[: len(taken)],
        layout=pattern.layout,
        grids={
            place: [waiting.grids.get(place, PackedGrids([], b"")) for waiting in taken]
            for place in {place for waiting in taken for place in waiting.grids}
        },
        names={name: len(section.names) for name, section in pattern.decoder.sections.items()},
    )
    doubtful = block.none()
    with np.errstate(all="ignore"):
        for check in pattern.proved:
            if (wrong := PROOFS[check.function](block)).any():
                doubtful |= wrong & np.array([check in waiting.proved for waiting in taken])
    return doubtful
