"""The log of a run as objects in a store: stores cannot append, so the last object is rewritten until it is full."""

import re
from collections.abc import Iterator
from pathlib import Path

from ckaudit.contract.io.files import SCALARS_NAME
from ckaudit.recorder.files.scalar_log import BLOCK
from ckaudit.remote.put import RemoteFolder
from ckaudit.remote.spool import Journal, Stretch

SEGMENT_BYTES = 4 * 2**20
"""Bytes of lines after which a new object starts, so that rewriting the last one stays cheap."""

_SEGMENT_NAME = re.compile(r"scalars_(\d{6})\.jsonl")


class LogSegments:
    """Uploads a log: each object holds a segment of it, and the objects' names sort in log order.

    Args:
        log: The log on this machine.
        remote: Folder of the objects.
    """

    def __init__(self, log: Path, remote: RemoteFolder) -> None:
        self._log, self._remote = log, remote

    def end(self, journal: Journal) -> int:
        """Return the offset after the last whole line: a killed recorder leaves a torn line, a live one may be writing it."""
        known = end_of_segments(journal)
        try:
            size = self._log.stat().st_size
        except FileNotFoundError:
            return 0
        with self._log.open("rb") as stream:
            while size:
                start = max(0, size - BLOCK, known if size > known else 0)
                stream.seek(start)
                newline = stream.read(size - start).rfind(b"\n")
                if newline >= 0:
                    return start + newline + 1
                if start == known:
                    return known
                size = start
        return 0

    def put(self, end: int, journal: Journal) -> Iterator[str]:
        """Upload the lines up to a byte offset of the log, and yield the name of each uploaded object."""
        if 0 < end < end_of_segments(journal):
            self._forget(end, journal)
        while end_of_segments(journal) < end:
            name, start = _open_segment(journal)
            with self._log.open("rb") as stream:
                stream.seek(start)
                data = stream.read(min(end - start, SEGMENT_BYTES))
                if start + len(data) < end:
                    data += stream.readline()
            self._remote.put(name, data)
            journal.add(name, lines=Stretch(start, start + len(data)))
            yield name

    def _forget(self, end: int, journal: Journal) -> None:
        """Have lines after the end of the local log uploaded again: a lost disk has taken some lines with it."""
        for name, stretch in [*journal.lines.items()]:
            if stretch.start < end < stretch.end:
                journal.add(name, lines=Stretch(stretch.start, stretch.start))
            elif stretch.start >= end:
                self._remote.remove(name)
                journal.add(name, is_gone=True)


def is_segment(name: str) -> bool:
    """Tell whether an object is a segment of a log."""
    return name == SCALARS_NAME or _SEGMENT_NAME.fullmatch(name) is not None


def end_of_segments(journal: Journal) -> int:
    """Return the offset up to which the log is uploaded."""
    return max((stretch.end for stretch in journal.lines.values()), default=0)


def _open_segment(journal: Journal) -> tuple[str, int]:
    """Return the name of the object that the next lines belong to, and its offset in the log."""
    if not journal.lines:
        return SCALARS_NAME, 0
    name, stretch = max(journal.lines.items())
    if stretch.end - stretch.start < SEGMENT_BYTES:
        return name, stretch.start
    match = _SEGMENT_NAME.fullmatch(name)
    return f"scalars_{int(match[1]) + 1 if match else 1:06d}.jsonl", stretch.end
