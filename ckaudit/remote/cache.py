"""The cache of fetched objects: one folder per address, limited in bytes, safe for several processes, deletable at any time."""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ckaudit.errors import UnreadableError, UsageError
from ckaudit.remote.location import shown

FOLDER, LIMIT = "CKAUDIT_CACHE", "CKAUDIT_CACHE_GB"
GIGABYTE = 10**9
DEFAULT_LIMIT = 10.0
STATE, LOCK, IN_USE = "state.json", "lock", "in_use"
FETCHED = "fetched"  # a line for each fetch since the cache was last checked against its limit
MAX_HELD = 64
"""Copies that a process protects from eviction: the last ones that it used."""

_held: dict[Path, int] = {}  # open lock files, as file descriptors, because they are to close with the process


class Kept(Struct, array_like=True, frozen=True):
    """Facts of one file of a copy.

    Attributes:
        version: The object's version in its storage.
        size: The file's bytes.
        time: The file's modification time in nanoseconds.
    """

    version: str
    size: int
    time: int


class State(Struct):
    """The content of a copy.

    Attributes:
        address: The copied address, in the form for output.
        bytes: The bytes of its files.
        is_file: Whether the address is one object.
        files: Each file by its name below the address.
    """

    address: str = ""
    bytes: int = 0
    is_file: bool = False
    files: dict[str, Kept] = {}


def cache_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of the cache: the given one, `CKAUDIT_CACHE`, or the user's cache folder."""
    named = given or os.environ.get(FOLDER)
    if named:
        return Path(named).expanduser().resolve()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ckaudit"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "ckaudit" / "cache"
    return (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ckaudit").resolve()


def cache_limit() -> int:
    """Return the cache limit in bytes, from `CKAUDIT_CACHE_GB`.

    Raises:
        UsageError: If the variable is no number above 0.
    """
    word = os.environ.get(LIMIT, "")
    try:
        gigabytes = float(word) if word else DEFAULT_LIMIT
    except ValueError:
        gigabytes = 0.0
    if not gigabytes > 0:
        raise UsageError(f"{LIMIT}={word!r} is not a number of gigabytes", hint=f"set it like {LIMIT}=20")
    return int(min(gigabytes, 10**9) * GIGABYTE)


class Slot:
    """The place of one address in the cache."""

    def __init__(self, cache: Path, uri: str, name: str) -> None:
        """Create the slot from a cache, an address and the last component of the address."""
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        key = hashlib.sha256(f"{endpoint}\n{uri}".encode(errors="surrogateescape")).hexdigest()[:24]
        self.cache, self.folder = cache, cache / "runs" / key
        self.copy = self.folder / (name if name not in ("", ".", "..", STATE, LOCK, IN_USE) else "run")
        self.address = shown(uri)
        self._noted = b""

    def read_state(self) -> State:
        """Return the noted content of the copy; empty if there is none, or if another version wrote it."""
        try:
            self._noted = (self.folder / STATE).read_bytes()
            return msgspec.json.decode(self._noted, type=State)
        except (OSError, msgspec.DecodeError, RecursionError):
            return State(self.address)

    def write_state(self, state: State) -> None:
        """Note the content of the copy, if it has changed."""
        state.bytes = sum(kept.size for kept in state.files.values())
        text = msgspec.json.encode(state)
        if text != self._noted:
            partial = self.folder / f"partial-{STATE}-{os.getpid()}"
            partial.write_bytes(text)
            partial.replace(self.folder / STATE)
            self._noted = text

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let one process at a time fetch, and protect the copy from eviction while it is read."""
        with naming_cache(self.cache):
            lock = self._lock()
        try:
            yield
        finally:
            os.close(lock)

    def _lock(self) -> int:
        """Return the lock, once this process holds it."""
        while True:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _hold(self.folder / IN_USE)
            lock = _opened(self.folder / LOCK)
            _flock(lock, "exclusive")
            with suppress(FileNotFoundError):  # another process evicted this copy meanwhile, and deleted the lock
                if os.path.samestat((self.folder / LOCK).stat(), os.fstat(lock)):
                    return lock
            os.close(lock)


@contextmanager
def naming_cache(cache: Path) -> Iterator[None]:
    """Name the cache in `OSError`s."""
    try:
        yield
    except OSError as error:
        hint = f"{FOLDER} names another folder; what is in there can be deleted at any time."
        raise UnreadableError(f"the cache {cache} cannot be written: {error.strerror or error}", hint=hint) from error


def make_room(cache: Path, new: int) -> None:
    """Evict the least recently used copies until the cache is within its limit.

    Args:
        cache: The cache.
        new: Bytes fetched just now: the cache is checked once the bytes of all processes exceed a sixteenth of the limit.
    """
    limit, log = cache_limit(), cache / FETCHED
    if not new:
        return
    with suppress(OSError):  # a failure leaves the check to a later call
        with log.open("a", encoding="ascii") as stream:
            stream.write(f"{new}\n")
        if sum(int(line) for line in log.read_text("ascii").split() if line.isdigit()) < limit / 16:
            return
        log.unlink(missing_ok=True)
    slots = sorted(_slots(cache / "runs"))
    total = sum(size for _, size, _ in slots)
    for _, size, folder in slots:
        if total <= limit:
            return
        if _give_up(folder):
            total -= size


def _slots(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield the time of last use of each copy, its bytes and its folder."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        try:
            used = (entry / IN_USE).stat().st_mtime
            state = msgspec.json.decode((entry / STATE).read_bytes(), type=State)
        except (
            OSError,
            msgspec.DecodeError,
            RecursionError,
        ):  # another process may be writing it or was killed: its bytes do not count
            continue
        yield used, state.bytes, entry


def _give_up(folder: Path) -> bool:
    """Delete a copy that no process reads, and tell whether that was done."""
    if folder / IN_USE in _held:
        return False
    try:
        lock = _opened(folder / IN_USE)
    except OSError:
        return False
    try:
        free = _flock(lock, "at once")
        if free:
            (folder / STATE).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
        return free
    finally:
        os.close(lock)


def hold(slot: Slot) -> None:
    """Protect an existing copy from eviction by other processes, as `Slot.locked` does."""
    with naming_cache(slot.cache):
        _hold(slot.folder / IN_USE)


def _hold(path: Path) -> None:
    """Protect a copy from eviction by other processes, until this one ends or has used many others."""
    lock = _opened(path)
    os.utime(path)
    _flock(lock, "shared")
    if path in _held:
        os.close(_held.pop(path))
    _held[path] = lock
    while len(_held) > MAX_HELD:
        release(next(iter(_held)))


def release(path: Path) -> None:
    """Allow the eviction of a copy."""
    os.close(_held.pop(path))


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _flock(lock: int, mode: str) -> bool:
    """Lock a file if the system supports it, and tell whether that worked."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    wanted = {"shared": fcntl.LOCK_SH, "exclusive": fcntl.LOCK_EX, "at once": fcntl.LOCK_EX | fcntl.LOCK_NB}
    with suppress(OSError):  # file systems without locks raise
        fcntl.flock(lock, wanted[mode])
        return True
    return mode != "at once"
