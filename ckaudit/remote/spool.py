"""Spools: local folders in which runs wait for their upload to an address, and journals of what is uploaded."""

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
"""Size limit of all spools together; only uploaded files can be deleted to keep it."""

_FACTS, _LOCK, _UNFINISHED = "spool.json", "lock", "unfinished-"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Spool(Struct, frozen=True):
    """The spool of one address.

    Attributes:
        address: Address of the run.
        folder: The spool's own folder, with the journals of its uploads.
        run: The run folder: inside the spool, or elsewhere if an existing run is uploaded.
    """

    address: str
    folder: Path
    run: Path

    def make(self) -> None:
        """Create the folder if it is missing, accessible to the user only.

        Raises:
            OSError: If it cannot be created, or its parent belongs to another user.
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
        """Return an open lock file that shows other processes that this one uploads the run; None if another does.

        A killed process loses its lock, and forked children have none.

        Args:
            alone: Whether to exclude all other processes; the recorders of several ranks share a spool.
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
        """Note that files may not be uploaded, until `note_finished` is called for the same rank."""
        (self.folder / f"{_UNFINISHED}{rank}").touch()

    def note_finished(self, rank: int = 0) -> None:
        """Note that all files of a rank are uploaded."""
        (self.folder / f"{_UNFINISHED}{rank}").unlink(missing_ok=True)

    @property
    def is_complete(self) -> bool:
        """Whether everything was uploaded when the last recorder or push ended, so that the spool may be deleted."""
        return not any(self.folder.glob(f"{_UNFINISHED}*"))

    def size(self) -> int:
        """Return its bytes on disk; files may be created and deleted meanwhile."""
        return sum(map(_size, (entry for folder in {self.run, self.folder} for entry in _files(folder))))


def spool_of(address: str, *, run: Path | None = None) -> Spool:
    """Return the spool of an address: always the same one, whether it exists or not.

    Args:
        address: The address of a run.
        run: A run folder elsewhere that is to be uploaded.
    """
    address = address.rstrip("/")
    last = _UNSAFE.sub("-", shown(address).rpartition("/")[2])[-60:].strip(".-") or "run"
    folder = root() / f"{last}-{sha256(address.encode()).hexdigest()[:12]}"
    return Spool(address, folder, run.absolute() if run else folder / last)


def spools() -> Iterator[Spool]:
    """Yield all spools on this machine by name."""
    with suppress(OSError):
        for folder in sorted(root().iterdir()):
            with suppress(OSError, ValueError, KeyError, TypeError):
                facts = msgspec.json.decode((folder / _FACTS).read_bytes())
                yield Spool(facts["address"], folder, Path(facts["run"]))


def root() -> Path:
    """Return the folder that contains all spools.

    It is CKAUDIT_SPOOL, else the user's folder for program state; if that is not writable, as in many containers, it is the
    folder for temporary files.
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
    """Tell whether a folder is writable, or can be created."""
    existing = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    return os.access(existing, os.W_OK | os.X_OK)


def limit_bytes() -> float:
    """Return the limit of all spools together in bytes: CKAUDIT_SPOOL_GB, in units of 10^9 bytes."""
    with suppress(ValueError):
        return float(os.environ.get("CKAUDIT_SPOOL_GB", DEFAULT_GB)) * 1e9
    return DEFAULT_GB * 1e9


def make_room(keep: Spool) -> float:
    """Delete complete spools, the oldest first, until all are within the limit.

    Args:
        keep: The spool that is not deleted.

    Returns:
        Bytes that are left for it.
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


# The journal of uploads.
class Sent(Struct, frozen=True):
    """A file as it was when it was uploaded."""

    size: int
    time: int


class Stretch(Struct, frozen=True):
    """The part of the log in one object: a range of bytes."""

    start: int
    end: int


class JournalEntry(Struct, omit_defaults=True):
    """A line of the journal: one event."""

    name: str
    sent: Sent | None = None
    lines: Stretch | None = None
    manifest: str | None = None  # the hash of run.json
    sessions: int = 0
    is_freed: bool = False
    is_aside: bool = False
    is_gone: bool = False


class Journal(Struct):
    """The uploaded files, kept in a journal with a line for each event.

    If a line is lost, its file is uploaded again, which is harmless.

    Attributes:
        path: The file.
        sent: Uploaded files, as they were at the upload.
        freed: Uploaded files that no longer exist locally.
        aside: Checkpoints at the address that a resume has superseded and that are not renamed there yet.
        lines: The part of the log in each object, in log order.
        manifests: Hashes of every uploaded run.json.
        manifest: Hash of the latest run.json.
        sessions: Number of sessions in it.
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
        """Read the journal, without a torn line, and shorten it if it has become long."""
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
        """Yield the fewest entries that give the same state."""
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
        """Note an event of a file in the journal; if the disk is full, it is known only until the process ends."""
        entry = JournalEntry(name, **happened)
        self._take(entry)
        with suppress(OSError), self.path.open("ab") as stream:
            stream.write(b"\n" + msgspec.json.encode(entry))  # newline first, so that a torn line before it stays separate

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
    """Write a file atomically."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def address_of(folder: str | os.PathLike[str]) -> str | None:
    """Return the address that a recorder got as its folder; None if it is a local folder.

    `Path("s3://bucket/run")` loses one slash, and is accepted as well.

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
    """Return the local folder that a recorder writes to: the given one, or the spool of an address."""
    address, text = address_of(folder), os.fspath(folder)
    if address:
        return spool_of(address).run
    return Path(unquote(urlsplit(text).path) if scheme_of(text) == "file" else text).absolute()
