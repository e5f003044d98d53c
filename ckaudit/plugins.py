"""Rules, causes and metrics of other packages, found by their entry points and loaded together with a catalogue."""

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS = ("ckaudit.metrics", "ckaudit.rules", "ckaudit.causes")


class BrokenPlugin(Struct, frozen=True):
    """A plugin that did not load.

    Attributes:
        group: The entry point group, such as "ckaudit.rules".
        package: Name and version of the package that declares it.
        target: The module or object that was to be loaded.
        error: What went wrong.
    """

    group: str
    package: str
    target: str
    error: str

    def __str__(self) -> str:
        """Return the problem as one sentence."""
        return f"{self.group.partition('.')[2]} of {self.package} ({self.target}) did not load: {self.error}"


_BROKEN: dict[tuple[str, str], BrokenPlugin] = {}


def has_any(group: str) -> bool:
    """Tell whether an installed package has an entry point in a group."""
    return any(point.group == group for point in _points())


@cache
def load(group: str) -> None:
    """Import everything that installed packages declare in a group; importing a unit adds it to its catalogue.

    An import that raises is kept for `broken`, and does not affect the others.
    """
    for point in sorted(_points(), key=lambda point: (point.value, point.name)):
        if point.group != group:
            continue
        try:
            point.load()
        except Exception as error:  # noqa: BLE001  another package must not make the audit fail
            package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed package"
            _BROKEN[group, point.value] = BrokenPlugin(group, package, point.value, f"{type(error).__name__}: {error}")


@cache
def _points() -> "tuple[EntryPoint, ...]":
    """Return the entry points of all groups; installed packages are searched only once."""
    if not any(_may_have_some(folder) for folder in sys.path):
        return ()
    from importlib.metadata import entry_points

    return tuple(point for group in GROUPS for point in entry_points(group=group))


def _may_have_some(folder: str) -> bool:
    """Tell whether a package installed in a folder may have one of our entry points.

    The library that really knows takes longer to import than a small run takes to audit: it is used only if an entry_points.txt
    contains our name, or if there is an archive instead of a folder.
    """
    root = Path(folder)
    if root.is_file():
        return True
    try:
        return any(_names_us(path / "entry_points.txt") for path in root.iterdir() if path.suffix in (".dist-info", ".egg-info"))
    except OSError:
        return False


def _names_us(file: Path) -> bool:
    try:
        return b"[ckaudit." in file.read_bytes()
    except OSError:
        return False


def broken() -> tuple[BrokenPlugin, ...]:
    """Return the plugins that failed to load, for the catalogues loaded so far."""
    return tuple(_BROKEN.values())


def packages() -> list[str]:
    """Return the name and version of each installed package that has one of our entry points."""
    return sorted({f"{point.dist.name} {point.dist.version}" for point in _points() if point.dist})
