"""Files of copies that are still on their way: whoever reads one waits for it, and whoever lists a folder sees it."""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol


class ReadAgainError(Exception):
    """What lies at an address changed, or its fetching broke off, while a command was reading: nothing that it read counts."""


class Arrivals(Protocol):
    """The files of one copy that are still to come."""

    @property
    def awaited(self) -> Collection[str]:
        """Their names."""
        ...

    def wait_for(self, name: str) -> None:
        """Return once a file is there.

        Raises:
            ReadAgainError: If it will never be.
            CkauditError: Where it cannot be fetched.
        """
        ...

    def end(self, *, needed: bool) -> None:
        """Let the rest arrive where it is `needed`, or give it up."""
        ...


_COMING: dict[Path, Arrivals] = {}
"""By the folder of the copy."""


def expect(folder: Path, arrivals: Arrivals) -> None:
    """Have whoever reads from a folder wait for its files."""
    _COMING[folder] = arrivals


def is_expected(folder: Path) -> bool:
    """Tell whether files of a folder were on their way, and none is given up."""
    return folder in _COMING


def names_to_come(folder: Path) -> Collection[str]:
    """Return the names of the files that a folder will hold besides those that it holds."""
    arrivals = _COMING.get(folder)
    return arrivals.awaited if arrivals else ()


def wait_for(path: Path) -> None:
    """Return once a file is there, at once where nothing is on its way; see `Arrivals.wait_for`."""
    if _COMING and (arrivals := _COMING.get(path.parent)):
        arrivals.wait_for(path.name)


def let_arrive(folder: Path) -> None:
    """Wait for all files of a folder that are on their way, and let go of who fetches them."""
    if arrivals := _COMING.pop(folder, None):
        arrivals.end(needed=True)


def end_all(*, needed: bool) -> None:
    """Let everything that is on its way arrive where it is `needed`, or give it up."""
    while _COMING:
        _, arrivals = _COMING.popitem()
        arrivals.end(needed=needed)
