"""The baseline: findings accepted once, so that a gate on a project with old findings fails only for new ones.

An entry is matched by what stays the same while a run goes on and when it is trained again: the code, the place, and roughly when
it began. Value, worst step and last step change with every step, and wording with every version. The start is not hashed, because
every rounding has an edge on whose two sides two equal runs can fall.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Struct

from ckaudit.contract.schema.numbers import doc
from ckaudit.contract.schema.report import SEVERITIES, Accepted, Finding
from ckaudit.errors import UsageError

VERSION: Literal["ck.baseline.v1"] = "ck.baseline.v1"

Spot = tuple[str, str | None, str | None]


class BaselineFile(Struct, frozen=True, kw_only=True):
    """The file as written: one for all commands, each of which uses its own entries."""

    schema_version: Annotated[Literal["ck.baseline.v1"], doc("Version of the contract that this file follows.")]
    accepted: Annotated[list[Accepted], doc("Accepted findings.")]


class Baseline(Struct, frozen=True, kw_only=True):
    """Accepted findings of one command.

    Attributes:
        file: Name of the file to show.
        entries: The accepted findings.
        adopts: Whether every finding is accepted now.
    """

    file: str
    entries: Sequence[Accepted]
    adopts: bool = False

    def matched(self, findings: Sequence[Finding]) -> dict[int, Accepted]:
        """Return the matching entry of each finding, by the finding's index; an entry matches one finding, the nearest."""
        candidates: dict[Spot, list[int]] = {}
        for number, entry in enumerate(self.entries):
            candidates.setdefault(_spot(entry), []).append(number)
        pairs = sorted(
            (_distance(entry, finding), index, number)
            for index, finding in enumerate(findings)
            for number in candidates.get(_spot(finding), ())
            if is_same(entry := self.entries[number], finding)
        )
        entries: dict[int, Accepted] = {}
        used: set[int] = set()
        for _, index, number in pairs:
            if index not in entries and number not in used:
                entries[index] = self.entries[number]
                used.add(number)
        return entries

    def gone(self, findings: Sequence[Finding]) -> list[Accepted]:
        """Return the entries that no finding matches, not even a more severe one."""
        by_spot: dict[Spot, list[Finding]] = {}
        for finding in findings:
            by_spot.setdefault(_spot(finding), []).append(finding)
        return [entry for entry in self.entries if not any(is_near(entry, finding) for finding in by_spot.get(_spot(entry), ()))]


def is_same(entry: Accepted, finding: Finding) -> bool:
    """Tell whether a finding is the accepted one: near it, and with at least half of its places known.

    The tensor that represents many may change; a problem that has spread to twice as many places is a new one.
    """
    before, now = _places(entry), _places(finding)
    return is_near(entry, finding) and 2 * len(before & now) >= len(now)


def is_near(entry: Accepted, finding: Finding, *, near: int = 50, share: float = 0.25) -> bool:
    """Tell whether a finding may be a later state of the accepted one.

    Args:
        entry: The accepted finding.
        finding: The current finding.
        near: Steps by which the start may differ: one interval of the default cadence up to step 1,000.
        share: Share of its start by which a later one may differ.
    """
    if _spot(entry) != _spot(finding) or not _places(entry) & _places(finding):
        return False
    if entry.first_step is None or finding.first_step is None:
        return entry.first_step is finding.first_step
    return _distance(entry, finding) <= max(near, share * entry.first_step)


def is_graver(finding: Finding, entry: Accepted) -> bool:
    """Tell whether a finding is more severe than the accepted one."""
    return SEVERITIES.index(finding.severity) < SEVERITIES.index(entry.severity)


def _spot(entry: Accepted | Finding) -> Spot:
    """Return the key that must be equal for an entry to match a finding."""
    return entry.code, entry.file, entry.pointer


def _places(entry: Accepted | Finding) -> set[str | None]:
    return {entry.where, *entry.also}


def _distance(entry: Accepted, finding: Finding) -> int:
    return abs((entry.first_step or 0) - (finding.first_step or 0))


def accepted(finding: Finding, command: str, reason: str | None) -> Accepted:
    """Return the entry for a finding."""
    return Accepted(
        command=command,
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        message=finding.message,
        where=finding.where,
        also=finding.also,
        first_step=finding.first_step,
        file=finding.file,
        pointer=finding.pointer,
        reason=reason,
    )


def read_baseline(path: Path) -> list[Accepted]:
    """Return the entries of a baseline file.

    Raises:
        UsageError: If the file does not exist or is not a baseline.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"--baseline: {path} is not a regular file", hint="name the file that --update-baseline wrote")
    try:
        return msgspec.json.decode(path.read_bytes(), type=BaselineFile).accepted
    except FileNotFoundError:
        raise UsageError(f"--baseline: there is no file {path}", hint="--update-baseline writes it") from None
    except OSError as error:
        raise UsageError(f"--baseline: cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"--baseline: {path} is no baseline: {error}", hint="--update-baseline writes a new one") from None


def file_of(entries: Collection[Accepted]) -> BaselineFile:
    """Return the file of some entries, in an order that keeps diffs small."""
    ordered = sorted(
        entries,
        key=lambda entry: (
            entry.command,
            entry.code,
            entry.file or "",
            entry.where or "",
            entry.first_step or 0,
            entry.pointer or "",
        ),
    )
    return BaselineFile(schema_version=VERSION, accepted=ordered)
