"""Fuzzes every reader of foreign bytes, in turn: `python -m tests.fuzz.readers --minutes 10`.

What a reader may do with a file is to read it, or to say with an error of ours what is wrong with it, within some seconds.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from time import monotonic, process_time

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.files import BrokenFile, read_blocks
from ckaudit.contract.io.jsonl import parse_lines
from ckaudit.errors import CkauditError
from ckaudit.importers import ImportOptions, format_key, import_runs, importers
from ckaudit.resume.check import resume_check
from ckaudit.validate import validate
from tests.fuzz.corpus import FIXTURES, laid_out, seeds
from tests.fuzz.ledger import Searched, add, minutes_since

CRASHERS = FIXTURES / "fuzz"
SLOW = 5.0  # s, for a file of some kilobytes
PIECES = (
    b"nan",
    b"-inf",
    b"1e309",
    b"\r",
    b"\n",
    b"\0",
    b'"',
    b"\\",
    b"{",
    b"[",
    b",",
    b"|",
    b"999999999999999999999",
    b"-",
    b".",
)


def read_as(name: str) -> Callable[[bytes, Path], None]:
    """Return what reads bytes as one format of the importers, or as whatever is in them."""

    def read(data: bytes, folder: Path) -> None:
        path = folder / "log.csv"
        laid_out(data, path)
        try:
            with suppress(CkauditError):
                import_runs(path, import_options=ImportOptions(format=name))
        finally:
            rmtree(path) if path.is_dir() else path.unlink()

    return read


def read_contract(data: bytes, folder: Path) -> None:
    """Read bytes as lines, as a document, and as packed ones."""
    parse_lines(data, "scalars.jsonl")
    check_checkpoint(data, "analysis_checkpoint_step_00000001.json")
    for suffix in (".gz", ".zst"):
        path = folder / f"scalars.jsonl{suffix}"
        path.write_bytes(data)
        with suppress(BrokenFile):
            for _ in read_blocks(path, path.name):
                pass
        path.unlink()


def read_folder(name: str) -> Callable[[bytes, Path], None]:
    """Return what validates a folder with one file of this name."""

    def read(data: bytes, folder: Path) -> None:
        (folder / name).write_bytes(data)
        with suppress(CkauditError):
            validate([folder])
        (folder / name).unlink()

    return read


def read_resumed(name: str) -> Callable[[bytes, Path], None]:
    """Return what checks a resume checkpoint of this name."""

    def read(data: bytes, folder: Path) -> None:
        path = folder / name
        path.write_bytes(data)
        with suppress(CkauditError):
            resume_check(path)
        path.unlink()

    return read


def targets() -> dict[str, Callable[[bytes, Path], None]]:
    """Return every reader by name."""
    own = {"contract": read_contract, "auto": read_as("")}
    own |= {name: read_folder(name) for name in ("run.json", "scalars.jsonl", "analysis_checkpoint_step_00000001.json")}
    own |= {name: read_resumed(name) for name in ("model.safetensors", "model.pt")}
    return own | {format_key(importer): read_as(format_key(importer)) for importer in importers()}


def mutated(data: bytes, source: random.Random) -> bytes:
    """Return bytes that differ in a few places."""
    changed = bytearray(data)
    for _ in range(source.choice([1, 1, 2, 5, 20])):
        at, end = sorted(source.randrange(len(changed) + 1) for _ in range(2))
        piece = source.choice([*PIECES, changed[at : min(end, at + 200)] * 2, bytes([source.randrange(256)])])
        cut = source.choice([0, 0, 1, len(piece), min(end - at, 200)])
        changed[at : at + cut] = piece
    return bytes(changed)


def broken_by(read: Callable[[bytes, Path], None], data: bytes, folder: Path) -> str:
    """Return how a reader broke on bytes; empty: it did not."""
    begun = monotonic()
    try:
        read(data, folder)
    except Exception as error:  # noqa: BLE001  what it looks for
        return f"{type(error).__name__}: {error}"
    return f"took {monotonic() - begun:.0f} s" if monotonic() - begun > SLOW else ""


class Found:
    """Inputs that broke a reader: one file for each way to break it.

    Attributes:
        ways: How it broke, the beginnings of what was said.
    """

    def __init__(self, name: str, folder: Path) -> None:
        """Take the name of a reader, and where files go."""
        self.name, self.folder = name, folder
        self.ways: set[str] = set()

    def keep(self, data: bytes, how: str) -> None:
        """Keep a file that broke the reader in a new way, and say so."""
        if how[:60] in self.ways:
            return
        self.ways.add(how[:60])
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}-{sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        sys.stderr.write(f"{path}: {how}\n")


def fuzz(name: str, seconds: float, source: random.Random, crashers: Path = CRASHERS) -> Searched:
    """Mutate seeds for one reader, and keep what breaks it."""
    read, corpus, found, inputs = targets()[name], seeds(name), Found(name, crashers), 0
    end, begun = monotonic() + seconds, process_time()
    with tempfile.TemporaryDirectory() as folder:
        while monotonic() < end:
            data = mutated(source.choice(corpus), source)
            inputs += 1
            if how := broken_by(read, data, Path(folder)):
                found.keep(data, how)
    return Searched(name, minutes_since(begun), inputs, len(found.ways))


def main() -> int:
    """Fuzz the readers in turn until the time is over; exit with 1 where anything broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--reader", choices=sorted(targets()), action="append", help="only this one; may be repeated")
    parser.add_argument("--crashers", type=Path, default=CRASHERS, help="where files go that break one")
    parser.add_argument("--ledger", action="store_true", help="add the time to the ledger")
    arguments = parser.parse_args()
    names = arguments.reader or sorted(targets())
    share, broken = 60 * arguments.minutes / len(names), 0
    for name in names:
        done = fuzz(name, share, random.Random(f"{name} {arguments.seed}"), arguments.crashers)
        broken += done.broke
        sys.stdout.write(f"{done}\n")
        if arguments.ledger:
            add(done)
    sys.stdout.write(f"seed {arguments.seed}: {len(names)} readers, {broken} ways to break one\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
