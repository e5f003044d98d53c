"""Import of runs that other programs logged: one module per format; each tells whether it recognizes a source."""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import cast

from msgspec.structs import replace

from ckaudit.contract.io.files import UNPACK, archive_of
from ckaudit.contract.io.folder import refuse_shut
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.importers import formats
from ckaudit.importers.importer import Imported, Importer, Source
from ckaudit.importers.log_search import BESIDE, FoundLogs, find_logs, holds_logs, holds_others, note_on_others, runs_below
from ckaudit.importers.names import list_names, name_to_copy, shorten_name
from ckaudit.importers.other_languages import log_in_english
from ckaudit.importers.policy_columns import read_with
from ckaudit.importers.tables.table_header import UTF16_MARKS, text_of
from ckaudit.importers.text.error_events import summary_of
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_values import repeated_names
from ckaudit.importers.text.log import is_text

__all__ = ["ImportOptions", "Imported", "import_runs", "import_source", "importers", "is_known", "logs_below", "run_named"]

_POINTER = b"version https://git-lfs"
_PAGE = (b"<!doctype html", b"<html")


@cache
def importers() -> tuple[Importer, ...]:
    """Return all importers; those of formats without a mark of their own come last."""
    modules = (import_module(f"{formats.__name__}.{module.name}") for module in iter_modules(formats.__path__))
    by_rank = sorted((cast("Importer", module) for module in modules), key=lambda importer: (importer.GENERIC, importer.NAME))
    return tuple(by_rank)


def import_source(path: Path, *, import_options: ImportOptions = NO_IMPORT_OPTIONS) -> Imported:
    """Read one run from the log of another program.

    Args:
        path: A file, compressed or not, or a folder that another program wrote.
        import_options: What the user says about the source: its format, its columns, and which run.

    Raises:
        UnreadableError: Where no importer recognizes the source, or the one that does finds it broken or empty.
        UsageError: Where `import_options` names something that does not exist, or does not say which of several runs to read.
    """
    return run_named(import_runs(path, import_options=import_options), import_options.run, path)


@ignoring_float_errors
def import_runs(path: Path, *, import_options: ImportOptions = NO_IMPORT_OPTIONS) -> list[Imported]:
    """Read every run of a source, as `import_source` reads one."""
    source = Source(path)
    if import_options.format:
        return _read_as(_named(import_options.format), source, import_options)
    if not source.is_folder:
        _refuse_what_is_no_log(source.head, source.shown)
    if (importer := _importer_of_all(source)) is not None:
        beside = note_on_others(source, importer, _importer_in_search)
        return [replace(run, notes=(*run.notes, *beside)) for run in read_with(importer, source, import_options)]
    if not source.is_folder:
        return _read_in_english(source, import_options)
    logs = logs_below(path, import_options=import_options)
    return [replace(run, notes=(*run.notes, *logs.notes)) for run in logs.runs] or _only_folders(logs, source)


def _read_in_english(source: Source, import_options: ImportOptions) -> list[Imported]:
    """Read a text log whose words for loss and epoch are of another language, or say that no importer knows the source."""
    english = log_in_english(source.text) if is_text(source) else None
    translated = source.with_data(english.encode()) if english is not None else source
    if english is None or (importer := _importer_of(translated)) is None:
        raise _unknown(source)
    note = "its words for a loss, an epoch and the like were translated to English"
    return [replace(run, notes=(note, *run.notes)) for run in read_with(importer, translated, import_options)]


def _read_as(importer: Importer, source: Source, import_options: ImportOptions) -> list[Imported]:
    """Read a source in the format that the user named; an importer may fail anywhere on a file in another format."""
    try:
        return read_with(importer, source, import_options)
    except CkauditError:
        raise
    except Exception:
        if importer.detects(source):
            raise
        hint = "Leave --format out: what is in a file tells its format."
        raise UnreadableError(f"{source.shown} is not what {importer.NAME} writes, or holds nothing", hint=hint) from None


def logs_below(path: Path, *, import_options: ImportOptions = NO_IMPORT_OPTIONS) -> FoundLogs:
    """Find and read the logs below a folder that is not a log itself.

    Raises:
        UnreadableError: Where there are no logs, or none can be read.
        UsageError: Where `import_options` names columns that none of the logs has.
    """
    logs = find_logs(path, import_options, _importer_in_search)
    if not logs.runs and not logs.folders:
        unknown = _unknown(Source(path))
        searched = UnreadableError(str(unknown), hint=f"{logs.notes[0].capitalize()}." if logs.notes else unknown.hint)
        raise logs.errors[0] if logs.errors else searched
    return logs


def _only_folders(logs: FoundLogs, source: Source) -> list[Imported]:
    names = list_names(list(logs.folders))
    raise UsageError(f"{source.shown} holds run folders of ckaudit, which need no import: {names}", hint="Name one of them.")


def _importer_of(source: Source, *, generic: bool = True) -> Importer | None:
    """Return the first importer that recognizes a source; without `generic`, only formats with marks of their own are tried."""
    candidates = (importer for importer in importers() if generic or not importer.GENERIC)
    return next((importer for importer in candidates if importer.detects(source)), None)


def _importer_in_search(source: Source) -> Importer | None:
    """Return the importer for a source met in a search; formats whose files may hold anything are left to the user to name."""
    importer = _importer_of(source)
    return None if getattr(importer, "ONLY_BY_NAME", False) else importer


def _importer_of_all(source: Source) -> Importer | None:
    """Return the importer for all of a source; None also for a folder that holds logs of other importers."""
    importer = _importer_of(source)
    return None if importer is not None and source.is_folder and holds_others(source, importer, _importer_in_search) else importer


def is_one_log(path: Path) -> bool:
    """Tell whether one importer reads all of a source."""
    return _importer_of_all(Source(path)) is not None


def is_known(path: Path) -> bool:
    """Tell whether an importer recognizes a source."""
    return _importer_of(Source(path)) is not None


def holds_known_log(folder: Path) -> bool:
    """Tell whether a log in a known format, or a run folder, lies anywhere below a folder."""
    return holds_logs(folder, _importer_in_search)


def places_below(folder: Path, notes: list[str], *, max_entries: int) -> Iterator[Path]:
    """Yield the paths of all logs in known formats and of all run folders below a folder.

    Args:
        folder: Where to look.
        notes: Gets a sentence on what was not searched.
        max_entries: The number of files and folders that are looked at.
    """
    return runs_below(folder, _importer_in_search, notes, max_entries=max_entries)


def named_format(path: Path) -> str | None:
    """Return the format that a file is surely in: one with marks of its own, or a table or text that is no JSON document."""
    source = Source(path)
    is_document = path.name.removesuffix(path.suffix if path.suffix in (".gz", ".zst") else "").endswith(".json")
    try:
        importer = _importer_of(source, generic=not is_document)
    except UnreadableError:  # too large, or truncated in compressed form
        return None
    return None if importer is None else importer.NAME


def run_named(runs: Sequence[Imported], wanted: str, path: Path) -> Imported:
    """Return the wanted run, by its name or its number from 1.

    Raises:
        UsageError: Where there are several runs and none is wanted, or no run has the wanted name.
    """
    shown = Source(path).shown
    if not wanted and len(runs) == 1:
        return runs[0]
    names = [run.name for run in runs]
    if wanted in names:
        return runs[names.index(wanted)]
    if wanted.isdecimal() and 1 <= int(wanted) <= len(runs):
        return runs[int(wanted) - 1]
    known = "; ".join(f"{number}: {summary(run)}" for number, run in enumerate(runs[:20], 1))
    what = f"has no run {shorten_name(wanted)!r}" if wanted else f"holds {len(runs)} runs"
    others = "".join(f" {note[0].upper()}{note[1:]}." for note in runs[0].notes if note.startswith(BESIDE))
    how = "Name one with --run" if wanted else "Name one with --run, or judge all of them with `ckaudit fleet`"
    raise UsageError(f"{shown} {what}", hint=f"{how}. There is {known}.{others}")


def summary(run: Imported) -> str:
    """Return the name and the step range of a run in a few words."""
    steps = run.table.steps
    span = f"steps {int(steps.min()):,} to {int(steps.max()):,}" if len(steps) else "no scalars"
    return f"{shorten_name(run.name)} ({span})" if run.name else span


def _named(name: str) -> Importer:
    """Return the importer with a name: its own or that of its module, in upper or lower case."""
    plain = name.casefold()
    for importer in importers():
        if plain in (importer.NAME.casefold(), format_key(importer)):
            return importer
    raise UsageError(
        f"no format is called {shorten_name(name)!r}",
        hint=f"There is {list_names(list(map(format_key, importers())), max_names=99)}.",
    )


def format_key(importer: Importer) -> str:
    """Return the word for a format on the command line: the name of its module."""
    return importer.__name__.rpartition(".")[2]  # type: ignore[attr-defined,no-any-return]  # importers are modules


def _refuse_what_is_no_log(head: bytes, shown: str) -> None:
    if not head.strip():
        raise UnreadableError(f"{shown} is empty", hint="Look whether the job wrote anything yet.")
    if head.startswith(_POINTER):
        raise UnreadableError(f"{shown} is a Git LFS pointer, not the file it stands for", hint="Fetch it with: git lfs pull")
    if head.lstrip().lower().startswith(_PAGE):
        raise UnreadableError(
            f"{shown} is a web page, not a log", hint="Download the raw file; the server may have asked for a login."
        )


def _unknown(source: Source) -> UnreadableError:
    expected = f"one of {len(importers())} formats"
    if source.is_folder:
        refuse_shut(source.path)
        return UnreadableError(
            f"{source.shown} is a folder in which no log is known: expected {expected}",
            hint="Name the log file itself; `ckaudit import --formats` lists what is known.",
        )
    # A source is binary if it holds a zero byte, or more invalid characters than a text in an old encoding would.
    head = source.head
    if not head.startswith(UTF16_MARKS) and (
        b"\0" in head or head.decode("utf-8", errors="replace").count("\ufffd") > len(head) / 10
    ):
        if archive := archive_of(source.head):
            return UnreadableError(f"{source.shown} is {archive}", hint=UNPACK)
        return UnreadableError(f"{source.shown} is binary, and no format that is known", hint="Export its series as CSV.")
    if errors := summary_of(error_lines(source.data)):
        return UnreadableError(
            f"{source.shown} holds no step of a training that is known, but errors: {errors}",
            hint="Name the log of the same run that holds its steps; together they can be judged.",
        )
    first = source.head.lstrip().splitlines()[0].decode("utf-8", errors="replace")[:40]
    kind = "a JSON document of another kind" if first.startswith("{") else "text"
    names = [] if first.startswith("{") else repeated_names(text_of(head))
    return UnreadableError(
        f"{source.shown} is no log that is known: expected {expected}, found {kind} that starts {first!r}",
        hint=_how_to_read(names),
    )


def _how_to_read(names: Sequence[str]) -> str:
    """Return advice on a text in no known format; `names` are the names that stand before numbers in many of its lines."""
    if not names:
        return "`ckaudit import --formats` lists them. Write its series to a CSV file with a header line, or name a run folder."
    listed = list_names(names, shorten=name_to_copy)
    return (
        f"Its lines hold numbers by name, as {listed}. Where they name a step, `ckaudit import FILE --format keyvalue --map "
        "loss=NAME -o run/` reads them; where they name epochs, --format epochlog does. `ckaudit import --formats` lists all."
    )
