"""Spools: the folders of this machine in which runs wait for their way to an address, and what of them is up already."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct, field

from ckaudit.remote.location import EXTRA_OF, SPELLINGS, is_uri, scheme_of, shown

DEFAULT_GB = 2.0
"""Size that all spools together keep to, as far as what is up already can be deleted."""

_FACTS, _LOCK, _UNFINISHED = "spool.json", "lock", "unfinished-"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Spool(Struct, frozen=True):
    """The folder of one address.

    Attributes:
        address: Where the run belongs.
        folder: The spool's own folder, with what is known of the way of its files.
        run: The run folder: in it, or elsewhere where a run that lies here is put up.
    """

    address: str
    folder: Path
    run: Path

    def make(self) -> None:
        """Make the folder where it is missing; it is the user's alone.

        Raises:
            OSError: If it cannot be made, or lies in a folder that another user has put where ours should be.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.folder.parent.is_relative_to(gettempdir()) and self.folder.parent.stat().st_uid != _user():
            raise PermissionError(f"{self.folder.parent} is another user's: set CKAUDIT_SPOOL to a folder of yours")
        self.folder.mkdir(exist_ok=True, mode=0o700)
        self.run.mkdir(parents=True, exist_ok=True)
        facts, wanted = self.folder / _FACTS, msgspec.json.encode({"address": self.address, "run": os.fspath(self.run)})
        if not facts.exists() or facts.read_bytes() != wanted:
            write_whole(facts, wanted)

    def lock(self, *, alone: bool = False) -> int | None:
        """Return an open file that tells other processes that this one puts the run up; None where another does.

        A killed process holds none, and neither do children that were forked.

        Args:
            alone: Whether no other process may; the recorders of several ranks share a spool.
        """
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            import fcntl

            fcntl.lockf(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            return None
        except (ImportError, OSError):
            pass  # a system or a file system without such locks
        return descriptor

    def note_unfinished(self, rank: int = 0) -> None:
        """Note that something may not be up, until `note_finished` is called for the same rank."""
        (self.folder / f"{_UNFINISHED}{rank}").touch()

    def note_finished(self, rank: int = 0) -> None:
        """Note that everything of a rank is up."""
        (self.folder / f"{_UNFINISHED}{rank}").unlink(missing_ok=True)

    @property
    def is_complete(self) -> bool:
        """Whether everything was up when the last recorder or push ended, so that the spool may be deleted for others."""
        return not any(self.folder.glob(f"{_UNFINISHED}*"))

    def size(self) -> int:
        """Return its bytes on disk; files may come and go meanwhile."""
        return sum(map(_size, (entry for folder in {self.run, self.folder} for entry in _files(folder))))


def spool_of(address: str, *, run: Path | None = None) -> Spool:
    """Return the spool of an address: always the same one, whether it is there or not.

    Args:
        address: The address of a run.
        run: A run folder elsewhere that is to be put up there.
    """
    address = address.rstrip("/")
    last = _UNSAFE.sub("-", shown(address).rpartition("/")[2])[-60:].strip(".-") or "run"
    folder = root() / f"{last}-{sha256(address.encode()).hexdigest()[:12]}"
    return Spool(address, folder, run.absolute() if run else folder / last)


def spools() -> Iterator[Spool]:
    """Yield all spools of this machine by their names."""
    with suppress(OSError):
        for folder in sorted(root().iterdir()):
            with suppress(OSError, ValueError, KeyError, TypeError):
                facts = msgspec.json.decode((folder / _FACTS).read_bytes())
                yield Spool(facts["address"], folder, Path(facts["run"]))


def root() -> Path:
    """Return the folder that holds all spools.

    It is the one that CKAUDIT_SPOOL names, else the user's folder for states of programs; where that cannot be written to,
    as in many a container, the folder for temporary files.
    """
    if chosen := os.environ.get("CKAUDIT_SPOOL"):
        return Path(chosen).absolute()
    states = os.environ.get("XDG_STATE_HOME", "")
    home = Path(os.path.expanduser("~/.local/state"))  # noqa: PTH111  where there is no home, it does not raise
    folder = (Path(states) if states.startswith("/") else home) / "ckaudit" / "spool"
    if folder.is_absolute() and _takes_files(folder):
        return folder
    return Path(gettempdir()) / f"ckaudit-spool-{_user()}"


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _takes_files(folder: Path) -> bool:
    """Tell whether files can be made in a folder, or it can be made."""
    existing = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    return os.access(existing, os.W_OK | os.X_OK)


def limit_bytes() -> float:
    """Return what all spools together keep to: CKAUDIT_SPOOL_GB, in thousands of millions of bytes."""
    with suppress(ValueError):
        return float(os.environ.get("CKAUDIT_SPOOL_GB", DEFAULT_GB)) * 1e9
    return DEFAULT_GB * 1e9


def make_room(keep: Spool) -> float:
    """Delete complete spools, those first that have waited longest, until all keep to the limit.

    Args:
        keep: The spool that is not deleted.

    Returns:
        What is left for it.
    """
    others = [spool for spool in spools() if spool.folder != keep.folder]
    sizes = {spool.folder: _or_zero(spool) for spool in others}
    left = limit_bytes() - sum(sizes.values())
    for spool in sorted((other for other in others if other.is_complete), key=lambda other: _time(other.folder)):
        if left >= _or_zero(keep):
            break
        with suppress(OSError):
            if (lock := spool.lock(alone=True)) is not None:
                shutil.rmtree(spool.folder)
                os.close(lock)
                left += sizes[spool.folder]
    return left


def _or_zero(spool: Spool) -> int:
    try:
        return spool.size()
    except OSError:
        return 0


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def _files(folder: Path) -> Iterator["os.DirEntry[str]"]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        yield from (entry for entry in entries if entry.is_file(follow_symlinks=False))


# What is known of the way of the files.
class Sent(Struct, frozen=True):
    """A file as it was when it was put up."""

    size: int
    time: int


class Stretch(Struct, frozen=True):
    """The part of the log that one object holds: from the one byte up to the other."""

    start: int
    end: int


class JournalEntry(Struct, omit_defaults=True):
    """A line of the journal: one thing that happened."""

    name: str
    sent: Sent | None = None
    lines: Stretch | None = None
    manifest: str | None = None  # the hash of run.json
    sessions: int = 0
    is_freed: bool = False
    is_aside: bool = False
    is_gone: bool = False


class Journal(Struct):
    """What is up, kept in a file to which a line is added for each thing that happens.

    A line that is lost costs that its file is put up once more, which changes nothing.

    Attributes:
        path: The file.
        sent: Files that are up, as they were.
        freed: Those of them that are no longer here.
        aside: Names of checkpoints at the address that a resume has made history, and that are not renamed there yet.
        lines: Which part of the log each object holds, in their order.
        manifests: Hashes of every run.json that was put up.
        manifest: The hash of the latest.
        sessions: How many sessions it has.
    """

    path: Path
    sent: dict[str, Sent] = field(default_factory=dict)
    freed: set[str] = field(default_factory=set)
    aside: set[str] = field(default_factory=set)
    lines: dict[str, Stretch] = field(default_factory=dict)
    manifests: set[str] = field(default_factory=set)
    manifest: str = ""
    sessions: int = 0

    @classmethod
    def load(cls, path: Path) -> "Journal":
        """Read the journal, in which a torn line counts as not written, and shorten it where it has become long."""
        journal, decoder = cls(path), msgspec.json.Decoder(JournalEntry)
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        for line in lines:
            with suppress(msgspec.DecodeError):
                journal._take(decoder.decode(line))
        entries = [*journal._entries()]
        if len(lines) > 100 + 2 * len(entries):
            with suppress(OSError):
                write_whole(path, b"".join(b"\n" + msgspec.json.encode(entry) for entry in entries))
        return journal

    def _entries(self) -> Iterator[JournalEntry]:
        """Yield the fewest entries that say the same."""
        for name, sent in self.sent.items():
            yield JournalEntry(name, sent=sent)
        for name, lines in self.lines.items():
            yield JournalEntry(name, lines=lines)
        for name in self.freed:
            yield JournalEntry(name, is_freed=True)
        for name in self.aside:
            yield JournalEntry(name, is_aside=True)
        for manifest in sorted(self.manifests, key=lambda manifest: manifest == self.manifest):  # the latest last
            yield JournalEntry("", manifest=manifest, sessions=self.sessions)

    def add(self, name: str, **happened: Any) -> None:
        """Take what happened to a file, and keep it; where the disk is full it is known until the process ends."""
        entry = JournalEntry(name, **happened)
        self._take(entry)
        with suppress(OSError), self.path.open("ab") as stream:
            stream.write(b"\n" + msgspec.json.encode(entry))  # first, so that a torn line before it stays alone

    def _take(self, entry: JournalEntry) -> None:
        name = entry.name
        if entry.sent is not None:
            self.sent[name] = entry.sent
            self.freed.discard(name)
        if entry.lines is not None:
            self.lines[name] = entry.lines
        if entry.manifest is not None:
            self.manifest, self.sessions = entry.manifest, entry.sessions
            self.manifests.add(entry.manifest)
        if entry.is_freed:
            self.freed.add(name)
        if entry.is_gone:
            self.sent.pop(name, None)
            self.lines.pop(name, None)
            self.freed.discard(name)
            self.aside.discard(name)
        if entry.is_aside:
            self.aside.add(name)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def address_of(folder: str | os.PathLike[str]) -> str | None:
    """Return the address that a recorder was given for its folder; None where it is a folder of this machine.

    `Path("s3://bucket/run")` has one stroke less, and is understood as well.

    >>> address_of(Path("s3://bucket/run")), address_of("run/"), address_of("file:///runs/nano")
    ('s3://bucket/run', None, None)
    """
    text = os.fspath(folder)
    if is_uri(text):
        return None if scheme_of(text) == "file" else text
    scheme, separator, rest = text.partition(":/")
    known = separator and not isinstance(folder, str) and scheme in {*EXTRA_OF, *SPELLINGS}
    return f"{scheme}://{rest}" if known else None


def folder_of(folder: str | os.PathLike[str]) -> Path:
    """Return the folder of this machine that a recorder writes to: the one that it was given, or the spool of an address."""
    address, text = address_of(folder), os.fspath(folder)
    if address:
        return spool_of(address).run
    return Path(unquote(urlsplit(text).path) if scheme_of(text) == "file" else text).absolute()
