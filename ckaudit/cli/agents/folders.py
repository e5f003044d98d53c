"""The folders that an agent may read: every path is resolved, and refused if it is outside of them."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ckaudit.contract.io.folder import shown_name
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.remote.addresses import address_of
from ckaudit.reports.escape import visible

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
HINT = "the tool runs lists what can be named"


class Root(NamedTuple):
    """One readable folder.

    Attributes:
        label: Name for the agent: relative to the working folder if inside it, else its last component.
        path: Path of the folder, with links resolved.
    """

    label: str
    path: Path


class Folders:
    """The readable folders, and the mapping from names to paths inside them."""

    def __init__(self, names: Sequence[str]) -> None:
        """Set the folders that the user named.

        Raises:
            UnreadableError: If one of them is no folder.
        """
        roots: list[Root] = []
        for name in dict.fromkeys(names):
            if not Path(name).is_dir():
                raise UnreadableError(f"{shown_name(name)} is no folder", hint="name folders with runs in them")
            path = Path(name).resolve()
            roots.append(Root(_label(path, [root.label for root in roots]), path))
        self.roots = tuple(roots)

    @property
    def allowed(self) -> str:
        """The names of the folders, for a message."""
        return ", ".join(visible(root.label) for root in self.roots)

    def find(self, name: str) -> Path:
        """Return the resolved path of a run.

        Args:
            name: A name from `name_of`, or a path: absolute, or below one of the folders or the working folder.

        Raises:
            UsageError: If it is an address, or leads out of the folders, directly or by a link in it.
            UnreadableError: If it does not exist.
        """
        if not name.strip() or "\0" in name or ADDRESS.match(name):
            raise UsageError(f"{name!r} is no path below {self.allowed}", hint=HINT)
        meant = [(candidate, Path(os.path.realpath(candidate))) for candidate in self._candidates(name)]
        inside = [real for _, real in meant if self._holds(real)]
        by_link = any(self._holds(Path(os.path.normpath(path))) and not self._holds(real) for path, real in meant)
        if by_link or not inside:
            raise UsageError(f"{name} lies outside of what may be read: {self.allowed}", hint=HINT)
        for real in inside:
            if real.is_dir() or real.is_file():
                self._refuse_links(real, name)
                return real
        raise UnreadableError(f"there is no folder and no file {name} below {self.allowed}", hint=HINT)

    def name_of(self, path: Path) -> str:
        """Return the name of a path inside the folders, for the agent."""
        root = next(root for root in self.roots if path.is_relative_to(root.path))
        relative = path.relative_to(root.path).as_posix()
        return relative if root.label == os.curdir else root.label if relative == os.curdir else f"{root.label}/{relative}"

    def named(self, text: str) -> str:
        """Return a text with the paths of the folders replaced by their names for the agent."""
        for root in sorted(self.roots, key=lambda root: -len(str(root.path))):
            label = "" if root.label == os.curdir else f"{root.label}/"
            text = text.replace(f"{root.path}{os.sep}", label).replace(str(root.path), root.label)
        return text

    def _candidates(self, name: str) -> Iterator[Path]:
        """Yield the possible paths of a name, those below each folder first."""
        path = Path(name)
        if path.is_absolute():
            yield path
            return
        for root in self.roots:
            label = () if root.label == os.curdir else Path(root.label).parts
            if path.parts[: len(label)] == label:
                yield _spelled(root.path, path.parts[len(label) :])
            yield _spelled(root.path, path.parts)
        yield Path.cwd() / path

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(root.path) for root in self.roots)

    def _refuse_links(self, run: Path, name: str) -> None:
        """Raise `UsageError` if a link inside a run leads out of the folders, because readers would follow it."""
        for folder, inner, files in os.walk(run):
            for entry in (*inner, *files):
                path = Path(folder, entry)
                if path.is_symlink() and not self._holds(Path(os.path.realpath(path))):
                    inside = path.relative_to(run).as_posix()
                    hint = "name the folder that it leads to as well, when the server is started"
                    raise UsageError(f"{name}: the link {inside} leads out of what may be read: {self.allowed}", hint=hint)


def _label(path: Path, taken: Sequence[str]) -> str:
    """Return a name for a folder that no other folder has."""
    relative = path.name if address_of(path) else os.path.relpath(path)
    label = Path(relative).as_posix() if not relative.startswith(os.pardir) else path.name or "root"
    number = 2
    while label in taken:
        label, number = f"{path.name}-{number}", number + 1
    return label


def _spelled(folder: Path, parts: Sequence[str]) -> Path:
    """Return a path from parts as they are displayed, in which unsafe characters may be escaped."""
    for part in parts:
        if part != os.pardir and not os.path.lexists(folder / part) and folder.is_dir():
            names = (entry.name for entry in folder.iterdir() if visible(shown_name(entry.name)) == part)
            part = next(names, part)  # noqa: PLW2901  the same entry, as the disk spells it
        folder /= part
    return folder
