"""The scalar logs of one run, read in one pass each: what their lines violate, and what the run is judged by."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from ckaudit.contract.lines import Row
from ckaudit.contract.logs import read_lines
from ckaudit.contract.report import Finding
from ckaudit.validate.catalogue import CONFLICT
from ckaudit.validate.file_facts import LogFacts, RunFacts
from ckaudit.validate.finding_cap import Bounded
from ckaudit.validate.scalar_stream_checks import Walk, contradicted, repeated_stretches

# A second pass over the scalar logs, only where a step may hold one name twice: the lines apart that contradict each other.
Ranges = dict[int, list[tuple[int, int]]]


def conflicts(logs: Iterable[tuple[Path, str]], ranges: Ranges, *, root: Path | None, limit: int = 200_000) -> list[Finding]:
    """Return the values that contradict an earlier line of the same step and session.

    Args:
        logs: Files and their names in findings, in the order they are read.
        ranges: Steps to look at, by session.
        root: The folder that files must not leave by a link.
        limit: Steps kept at once; a session that goes back further is compared up to there. 200,000 lines take 120 MB.
    """
    seen: dict[tuple[int, int], tuple[Row, str]] = {}
    found: list[Finding] = []
    for path, shown in logs:
        bounded = Bounded(shown)
        for row, number in _rows_within(path, shown, ranges, root):
            key = (int(row["step"] or 0), int(row.get("session") or 0))
            older, where = seen.get(key, ({}, shown))
            _compare(older, row, bounded, number=number, before=where)
            if key in seen or len(seen) < limit:
                seen[key] = older | row, shown
        found += bounded.close()
    return found


def _compare(older: Row, newer: Row, found: Bounded, *, number: int, before: str) -> None:
    for name in contradicted(older, newer):
        message = f"{name} of step {newer['step']} is {newer[name]} in line {number}, {older[name]} in {before} before"
        place = {"where": name, "line": number, "first_step": newer["step"]}
        found.add(CONFLICT, message, expected=str(older[name]), found=str(newer[name]), **place)


def _rows_within(path: Path, shown: str, ranges: Ranges, root: Path | None) -> Iterator[tuple[Row, int]]:
    for lines in read_lines(path, shown, root=root):
        for row, number in zip(lines.rows, lines.numbers, strict=True):
            spans = ranges.get(int(row.get("session") or 0))
            if spans and any(first <= int(row["step"] or 0) <= last for first, last in spans):
                yield row, number


class LogsRead(Struct):
    """What the logs of a run held.

    Attributes:
        facts: What is kept of each log.
        findings: What lines and their order violate.
        conflicts: Values that one step and session has twice; some are among `findings` already.
        notes: What a reader must know though nobody did wrong.
    """

    facts: list[LogFacts] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    conflicts: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_logs(files: Sequence[tuple[Path, str]], run: RunFacts, tick: Callable[[], None]) -> LogsRead:
    """Read every scalar log of a run.

    Args:
        files: The logs, each with its name in findings.
        run: The run, its checkpoints read.
        tick: Called after each log.
    """
    root, read, walks = run.folder.root, LogsRead(), []
    wanted = {each.step for each in run.checkpoints}
    for path, shown in files:
        walk = Walk(Bounded(shown), wanted)
        for lines in read_lines(path, shown, root=root):
            walk.take(lines)
            read.findings += lines.findings
            read.notes += lines.notes
        facts, findings = walk.close()
        read.facts.append(facts)
        read.findings += findings
        walks.append(walk)
        tick()
    if ranges := repeated_stretches(walks):
        read.conflicts += conflicts(files, ranges, root=root)
    return read
