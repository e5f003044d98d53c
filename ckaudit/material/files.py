"""Files of a sample: which files there are, how to read each, and their faults."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.io.files import PACKED
from ckaudit.contract.io.folder import refuse_special, shown_name
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import kind
from ckaudit.errors import UnreadableError
from ckaudit.wording import plural

Form = Literal["text", "lines", "parquet"]

LINES = frozenset({".jsonl", ".ndjson", ".json"})  # many corpora name JSON lines .json
TEXT = frozenset({".txt", ".text", ".md", ".rst"})
PARQUET = frozenset({".parquet", ".pq"})

READERS = ("data", "probe")

NOT_JSON = kind(
    "DAT001", "broken_record", "sev2", "A record is not a JSON object.", "Write one JSON object on each line.", found_by=READERS
)
NOT_UTF8 = kind(
    "DAT002", "record_not_utf8", "sev2", "A record is not UTF-8 text.", "Convert the file to UTF-8.", found_by=READERS
)
TOO_LONG = kind(
    "DAT003", "record_too_long", "sev2", "A record is longer than is read.", "Split it into documents.", found_by=READERS
)
WRONG_TYPE = kind(
    "DAT004",
    "wrong_column_type",
    "sev2",
    "A column holds another type than its meaning asks for.",
    "Map another column.",
    found_by=READERS,
)
NOT_PARQUET = kind(
    "DAT005", "broken_parquet", "sev1", "The file cannot be read as Parquet.", "Write the file again.", found_by=READERS
)

MAX_REPORTED = 5

FaultReporter = Callable[[Finding], None]


class SampleFile(Struct, frozen=True):
    """One file of a sample.

    Attributes:
        path: Its path.
        shown: Its name in findings.
        form: Its format.
        root: Folder that it must not leave through a link; None if the user named the file itself.
        size: Bytes on disk.
    """

    path: Path
    shown: str
    form: Form
    root: Path | None
    size: int


def sample_files(paths: Iterable[Path]) -> list[SampleFile]:
    """Return the files of a sample: named files, and the files with texts of each folder, by name.

    A named file with an unknown suffix counts as text. In a folder, files with unknown suffixes are left out, and so are hidden
    files and folders.

    Raises:
        UnreadableError: If something does not exist, or no file is left.
    """
    files: list[SampleFile] = []
    for path in paths:
        refuse_special(path)
        if path.is_dir():
            files += _inside(path)
        elif path.exists() or path.is_symlink():
            files.append(_sample_file(path, format_of(path) or "text", None))
        else:
            raise UnreadableError(f"there is no {path}", hint="Name files or folders with .txt, .jsonl or .parquet files.")
    if not files:
        raise UnreadableError(
            f"no sample in {', '.join(map(str, paths))}", hint="There must be .txt, .md, .jsonl, .json or .parquet files."
        )
    return files


def format_of(path: Path) -> Form | None:
    """Return the format of a file by its suffix, ignoring `.gz` and `.zst`.

    >>> format_of(Path("c4-train.00000-of-01024.json.gz")), format_of(Path("notes"))
    ('lines', None)
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in PACKED
    last = suffixes[-2] if packed and len(suffixes) > 1 else suffixes[-1] if suffixes and not packed else ""
    if last in PARQUET:
        return None if packed else "parquet"
    return "lines" if last in LINES else "text" if last in TEXT else None


def _inside(root: Path) -> Iterator[SampleFile]:
    shut: list[Path] = []
    for folder, folders, names in os.walk(root, onerror=lambda error: shut.append(Path(error.filename))):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if not name.startswith(".") and (form := format_of(path)):
                yield _sample_file(path, form, root)
    # A folder that cannot be listed is reported like a file that cannot be opened.
    yield from (_sample_file(path, "text", root) for path in shut)


def _sample_file(path: Path, form: Form, root: Path | None) -> SampleFile:
    try:
        size = path.stat().st_size
    except OSError:
        size = 0  # opening it fails
    return SampleFile(path, shown_name(str(path)), form, root, size)


class FaultCollector:
    """Gathers findings: the first few of each kind and file in full, the rest as a number."""

    def __init__(self) -> None:
        self._reported: list[Finding] = []
        self._kinds: dict[tuple[str, str | None], Finding] = {}
        self._counts: Counter[tuple[str, str | None]] = Counter()

    def report(self, finding: Finding) -> None:
        """Add one finding."""
        key = finding.code, finding.file
        self._counts[key] += 1
        self._kinds.setdefault(key, finding)
        if self._counts[key] <= MAX_REPORTED:
            self._reported.append(finding)

    def findings(self) -> list[Finding]:
        """Return the reported findings, and the number of further ones of each kind and file."""
        more = []
        for key, count in self._counts.items():
            if count > MAX_REPORTED:
                first = self._kinds[key]
                rest = count - MAX_REPORTED
                message = f"{plural(rest, 'more record')} like {'this one' if rest == 1 else 'these'}"
                more.append(replace(first, message=message, line=None, points=rest))
        return [*self._reported, *more]
