"""Files of copies that are still being fetched: reading one waits for it, and listing a folder includes it."""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol


class ReadAgainError(Exception):
    """The objects at an address changed, or fetching broke off, while a command was reading: it must start again."""


class Arrivals(Protocol):
    """The pending files of one copy."""

    @property
    def awaited(self) -> Collection[str]:
        """The names of the pending files."""
        ...

    def wait_for(self, name: str) -> None:
        """Return once a file is complete.

        Raises:
            ReadAgainError: If it will never be complete.
            CkauditError: If it cannot be fetched.
        """
        ...

    def end(self, *, needed: bool) -> None:
        """Wait for the rest if it is `needed`, else stop fetching."""
        ...


_COMING: dict[Path, Arrivals] = {}
"""Pending files by the folder of the copy."""


def expect(folder: Path, arrivals: Arrivals) -> None:
    """Make readers of a folder wait for its files."""
    _COMING[folder] = arrivals


def is_expected(folder: Path) -> bool:
    """Tell whether files of a folder are being fetched."""
    return folder in _COMING


def names_to_come(folder: Path) -> Collection[str]:
    """Return the names of the files that a folder will have in addition to those that it has."""
    arrivals = _COMING.get(folder)
    return arrivals.awaited if arrivals else ()


def wait_for(path: Path) -> None:
    """Return once a file is complete, at once if it is not being fetched; see `Arrivals.wait_for`."""
    if _COMING and (arrivals := _COMING.get(path.parent)):
        arrivals.wait_for(path.name)


def let_arrive(folder: Path) -> None:
    """Wait for all pending files of a folder, and release their fetcher."""
    if arrivals := _COMING.pop(folder, None):
        arrivals.end(needed=True)


def end_all(*, needed: bool) -> None:
    """Wait for all pending files if they are `needed`, else stop fetching."""
    while _COMING:
        _, arrivals = _COMING.popitem()
        arrivals.end(needed=needed)
