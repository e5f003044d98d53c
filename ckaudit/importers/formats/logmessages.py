r"""Lines that a program printed, each wrapped in a JSON object by a container or a collector of logs.

    {"log":"epoch 1 loss 2.31\n","stream":"stdout","time":"2026-01-15T10:30:00.123Z"}
    {"severity": "INFO", "message": "epoch 2 loss 2.12", "timestamp": "2026-01-15T10:31:00Z"}

The texts are put below each other and read as a log in any known format. Objects that hold a value with a common name by
themselves are the log of another format.
"""

from collections.abc import Iterator, Mapping

from msgspec import DecodeError
from msgspec.json import Decoder
from msgspec.structs import replace

from ckaudit.errors import UnreadableError
from ckaudit.importers import importers
from ckaudit.importers.importer import Imported, Importer, Source
from ckaudit.importers.tables.field_map import name_of
from ckaudit.importers.tables.jsonrows import Object, sample

NAME = "log messages in JSON"
GENERIC = False
MIN_LINES = 3
"""Minimum number of objects with a text in such a log."""

MIN_SHARE = 0.9
"""Minimum share of the first objects that hold the text; a logger may write a few objects of its own."""

_MEMBERS = ("log", "message", "msg", "textPayload", "MESSAGE", "_msg", "text", "line")
"""Members that hold the line, in Docker, the common loggers of Python and Node, Google Cloud, journald and VictoriaLogs."""

_DECODER = Decoder(dict)


def detects(source: Source) -> bool:
    """Tell whether the first objects hold no value with a known name, but texts that are a known log together."""
    if source.is_folder or not source.head.lstrip().startswith(b"{"):
        return False
    rows = sample(source.head)
    key = _key_of(rows)
    if not key or any(_holds_value(row) for row in rows):
        return False
    return _importer_of(source.with_data(_text(source.head, key, rows))) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the texts.

    Raises:
        UnreadableError: Where the objects hold no text, or the texts are no known log.
        UsageError: Where `columns` names a key that no line holds.
    """
    rows = sample(source.head)
    key = _key_of(rows)
    lines = source.with_data(_text(source.data, key, rows)) if key else None
    importer = None if lines is None else _importer_of(lines)
    if lines is None or importer is None:
        raise UnreadableError(
            f"{source.shown} holds no {NAME}: expected one of the members {', '.join(_MEMBERS)}, and a known log in them",
            hint="Take the text out of the objects, as with jq -r .message, and name the file with it.",
        )
    note = f"its lines are the member {key} of JSON objects"
    return [replace(run, notes=(note, *run.notes)) for run in importer.read(lines, columns)]


def _key_of(rows: list[Object]) -> str:
    """Return the member that holds the line in nearly all objects, empty where there is none."""
    counts = {key: sum(isinstance(row.get(key), str) for row in rows) for key in _MEMBERS}
    return next((key for key, count in counts.items() if count >= max(MIN_LINES, MIN_SHARE * len(rows))), "")


def _holds_value(row: Object) -> bool:
    names = {name_of(key, {}) for key, value in row.items() if isinstance(value, int | float)}
    return bool(names - {"", "step", "time"})


def _text(data: bytes, key: str, rows: list[Object]) -> bytes:
    """Return the texts as lines; Docker parts a long line, and only its last part ends with a line break."""
    with_breaks = any(str(row.get(key)).endswith("\n") for row in rows)
    return "".join(_texts(data, key, "" if with_breaks else "\n")).encode(errors="replace")


def _texts(data: bytes, key: str, end: str) -> Iterator[str]:
    """Yield the texts with their ends; a line that is no object, as of another writer, stays as it is."""
    for line in data.splitlines():
        try:
            text = _DECODER.decode(line).get(key, "")
        except (DecodeError, ValueError, RecursionError):
            yield f"{line.decode(errors='replace')}\n"
            continue
        if isinstance(text, str):
            yield f"{text}{end}"


def _importer_of(lines: Source) -> Importer | None:
    """Return the importer for the texts; formats whose files may hold anything are left to the user to name."""
    candidates = (each for each in importers() if each.NAME != NAME and not getattr(each, "ONLY_BY_NAME", False))
    return next((each for each in candidates if each.detects(lines)), None)
