"""A second pass over the scalar logs, only where a step may hold one name twice: the lines apart that contradict each other."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from ckaudit.contract.lines import Row
from ckaudit.contract.logs import read_lines
from ckaudit.contract.report import Finding
from ckaudit.validate.catalogue import CONFLICT
from ckaudit.validate.finding_cap import Bounded
from ckaudit.validate.scalar_stream_checks import contradicted

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
