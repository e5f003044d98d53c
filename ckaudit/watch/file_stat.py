"""What tells one state of a file from another without reading it."""

from pathlib import Path
from typing import NamedTuple


class Stamp(NamedTuple):
    """Device and inode, size in bytes, and when it was last written, in ns."""

    file: tuple[int, int]
    size: int
    time: int


GONE = Stamp((0, 0), -1, -1)
"""The stamp of what is not there, or may not be looked at."""


def stamp_of(path: Path | None) -> Stamp:
    """Return the stamp of a file or a folder."""
    if path is None:
        return GONE
    try:
        found = path.stat()
    except OSError:
        return GONE
    return Stamp((found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns)
