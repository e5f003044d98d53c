"""Small inputs that together reach much of a reader, kept in `fixtures/fuzz/corpus/`: a ZIP archive for each reader.

A reader of folders gets a whole one as one input: three `\\x1e`, a path and a newline before what each file holds.
"""

import re
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures"
ARCHIVES = FIXTURES / "fuzz" / "corpus"
MAX_SEED_BYTES = 6000
MAX_BYTES = 64 * 1024  # of one archive, unpacked: what is read before each search
SEPARATOR = b"\x1e\x1e\x1e"
_STRANGE = re.compile(r"[^\w.=-]")
_BEFORE = (1980, 1, 1, 0, 0, 0)  # equal inputs make equal archives


def beginnings() -> list[bytes]:
    """Return the beginnings of fixtures, for a reader of which nothing is kept."""
    files = [path for folder in ("real", "trackers", "checkpoints", "runs") for path in (FIXTURES / folder).rglob("*")]
    small = {path.read_bytes()[:MAX_SEED_BYTES] for path in files if path.is_file() and path.suffix not in (".py", ".pyc", ".md")}
    return sorted(small)


def kept(name: str) -> list[bytes]:
    """Return the inputs that are kept for a reader."""
    path = ARCHIVES / f"{name}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        return [archive.read(each) for each in archive.namelist()]


def seeds(name: str) -> list[bytes]:
    """Return what the search for one reader begins with."""
    return kept(name) or beginnings()


def write(name: str, inputs: Iterable[bytes]) -> None:
    """Keep inputs for a reader in the place of those before."""
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(ARCHIVES / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for number, data in enumerate(sorted(inputs, key=lambda data: (len(data), data))):
            archive.writestr(zipfile.ZipInfo(f"{number:03}", _BEFORE), data, zipfile.ZIP_DEFLATED)


def as_input(folder: Path) -> bytes:
    """Return a folder as one input."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return b"".join(SEPARATOR + str(path.relative_to(folder)).encode() + b"\n" + path.read_bytes() for path in files)


def laid_out(data: bytes, path: Path) -> None:
    """Write an input to a path where nothing is: a file, or a folder of a few."""
    if not data.startswith(SEPARATOR):
        path.write_bytes(data)
        return
    path.mkdir()
    for part in data.split(SEPARATOR)[1:60]:
        name, _, inside = part.partition(b"\n")
        words = [word[:40] for word in _STRANGE.sub("/", name.decode("latin-1")).split("/") if word.strip(".")][:6]
        file = path.joinpath(*words)
        if words and not file.exists() and not any(parent.is_file() for parent in file.parents):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(inside)


def smallest(inputs: Iterable[bytes], read: Callable[[bytes], object], most: int = MAX_BYTES) -> list[bytes]:
    """Return a few of the inputs, short ones before long ones, that together reach all lines which any of them reaches.

    Args:
        inputs: Candidates.
        read: The reader.
        most: Bytes of all that are returned; those that reach most by byte come first.
    """
    reached = {data: _lines(read, data) for data in set(inputs)}
    chosen: list[bytes] = []
    known: set[tuple[str, int]] = set()
    while reached:
        data = max(reached, key=lambda each: (len(reached[each] - known) / (len(each) + 100), -len(each)))
        new = reached.pop(data) - known
        if not new:
            break
        if sum(map(len, chosen)) + len(data) <= most:
            chosen.append(data)
            known |= new
    return chosen


def _lines(read: Callable[[bytes], object], data: bytes) -> set[tuple[str, int]]:
    """Return the lines of this package that a reader runs for an input."""
    seen: set[tuple[str, int]] = set()

    def trace(frame, event, _):
        if "/ckaudit/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        read(data)
    except Exception:  # noqa: BLE001  what broke it is kept elsewhere
        pass
    finally:
        sys.settrace(before)
    return seen
