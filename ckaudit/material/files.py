"""Which files a sample is made of, and how each is to be read."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ckaudit.contract.io.files import PACKED
from ckaudit.contract.io.folder import shown_name
from ckaudit.errors import UnreadableError

Form = Literal["text", "lines", "parquet"]

LINES = frozenset({".jsonl", ".ndjson", ".json"})  # many a corpus names its JSON lines .json
TEXT = frozenset({".txt", ".text", ".md", ".rst"})
PARQUET = frozenset({".parquet", ".pq"})


class SampleFile(Struct, frozen=True):
    """One file of a sample.

    Attributes:
        path: Where it is.
        shown: Its name in findings.
        form: How it is read.
        root: The folder that it must not leave by a link; None where the user named the file itself.
        size: Bytes on disk.
    """

    path: Path
    shown: str
    form: Form
    root: Path | None
    size: int


def sample_files(paths: Iterable[Path]) -> list[SampleFile]:
    """Return the files of a sample: those named, and of each folder, in the order of names, those that hold texts.

    A file that was named and whose ending says nothing is text. In a folder, files without a known ending are left out,
    and so are hidden files and folders.

    Raises:
        UnreadableError: Where something is not there, or no file is left.
    """
    files: list[SampleFile] = []
    for path in paths:
        if path.is_dir():
            files += _inside(path)
        elif path.exists() or path.is_symlink():
            files.append(_sample_file(path, form_of(path) or "text", None))
        else:
            raise UnreadableError(f"there is no {path}", hint="Name files or folders with .txt, .jsonl or .parquet files.")
    if not files:
        raise UnreadableError(
            f"no sample in {', '.join(map(str, paths))}", hint="There must be .txt, .md, .jsonl, .json or .parquet files."
        )
    return files


def form_of(path: Path) -> Form | None:
    """Return how a file is read, by the end of its name; `.gz` and `.zst` are looked through.

    >>> form_of(Path("c4-train.00000-of-01024.json.gz")), form_of(Path("notes"))
    ('lines', None)
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in PACKED
    last = suffixes[-2] if packed and len(suffixes) > 1 else suffixes[-1] if suffixes and not packed else ""
    if last in PARQUET:
        return None if packed else "parquet"
    return "lines" if last in LINES else "text" if last in TEXT else None


def _inside(root: Path) -> Iterator[SampleFile]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if not name.startswith(".") and (form := form_of(path)):
                yield _sample_file(path, form, root)


def _sample_file(path: Path, form: Form, root: Path | None) -> SampleFile:
    try:
        size = path.stat().st_size
    except OSError:
        size = 0  # opening it says what is wrong
    return SampleFile(path, shown_name(str(path)), form, root, size)
