"""Text logs read as runs: the part that all line formats share, once a dialect has named the columns."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json import JSONDecoder

import numpy as np
from msgspec import UNSET, Struct, UnsetType, field

from ckaudit.contract.schema.manifest import Manifest, Session, StepUnit
from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import have_adversarial_losses, loss_kind_of_names
from ckaudit.importers.names import list_names, name_to_copy, resolve_columns, slices_of
from ckaudit.importers.notes_on_names import notes_on_left_out
from ckaudit.importers.tables.numbers import Numbers, count_of, counts_of
from ckaudit.importers.tables.table_header import UTF16_MARKS, is_table
from ckaudit.importers.tables.torn_steps import note_on_torn
from ckaudit.importers.text.assemble_runs import HELPER, LogPart, TextRun, runs_of, table_of, without_torn
from ckaudit.importers.text.error_events import add_rates, clock_of, error_events, of_last_day
from ckaudit.importers.text.line_patterns import Cell, Floats
from ckaudit.importers.text.line_reader import Dialect, LogContent, RunFact, StepLines, scan
from ckaudit.importers.text.prefix import MAX_LINE, blocks, prefix_end, unix_time

_JSON = JSONDecoder()
COARSE_SECONDS = 20.0  # s; whole seconds are too coarse to time shorter steps


class NamedLines(Struct):
    """The lines of a log with catalogue names.

    Attributes:
        rows: The lines, with their columns by catalogue name; steps count finished update attempts.
        notes: How they were obtained.
        used: Keys of the log that were used although no common name identifies them.
        unused: Keys that were read because they might be losses, and were not used.
        step_unit: The unit of a step; UNSET: an update.
    """

    rows: StepLines
    notes: list[str] = field(default_factory=list)
    used: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    step_unit: StepUnit | UnsetType = UNSET


class Format(Struct, frozen=True):
    """The description of a format by its module.

    Attributes:
        dialect: How its lines are written.
        meaning: Gives columns catalogue names and units, from the lines, the keys that the user named, and facts. Columns whose
            names begin with a dot are for the manifest only.
        manifest: Writes facts about the whole run to its manifest, and returns notes.
    """

    dialect: Dialect
    meaning: Callable[[StepLines, Mapping[str, str], Sequence[RunFact]], NamedLines]
    manifest: Callable[[Manifest, Sequence[RunFact], TextRun], list[str]]


def parsed_dialect(name: str, wanted: Callable[[str], bool]) -> Dialect:
    """Return the dialect of a format whose module finds the lines with steps by itself.

    Args:
        name: The format.
        wanted: Tells which keys are taken.
    """
    return Dialect(
        name=name,
        hints=(),
        cells=lambda _line, _start: None,
        wanted=wanted,
        derived=lambda _key: False,
        needles=(),
        facts=lambda _text: (),
    )


def no_run_facts(*_: object) -> list[str]:
    """Write nothing to the manifest; for a log without facts about the whole run."""
    return []


def read_log(source: Source, columns: Mapping[str, str], form: Format) -> list[Imported]:
    """Read all runs of a text log.

    Raises:
        UnreadableError: Where no line with a step has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    return read_scanned(scan(source.taken_data(), form.dialect), source, columns, form)


def _which_keys(keys: Sequence[str]) -> str:
    """Return the hint that lists the log's keys."""
    return "Say which is the training loss, as in --map loss=KEY" + (
        f"; the keys are {list_names(sorted(keys), shorten=name_to_copy)}." if keys else "."
    )


def read_scanned(log: LogContent, source: Source, columns: Mapping[str, str], form: Format) -> list[Imported]:
    """Read all runs of a log whose lines with steps are already known, as `read_log` does."""
    starts = [fact.line for fact in log.facts if fact.key == "start"]
    rows, torn = without_torn(log.rows, starts)
    keys = list(rows.columns)
    mapped = {keys[at]: name for name, at in resolve_columns(columns, keys).items()} if columns else {}
    meaning = form.meaning(rows, mapped, log.facts)
    for columns_by_key in (log.rows.columns, rows.columns):  # values that were taken are now in the named columns
        if columns_by_key is not meaning.rows.columns:
            columns_by_key.clear()
    for empty in [name for name, column in meaning.rows.columns.items() if not column.recorded.any()]:
        del meaning.rows.columns[empty]
    if not len(meaning.rows.steps) or all(name.startswith(HELPER) for name in meaning.rows.columns):
        raise UnreadableError(
            f"{source.shown} was read as {form.dialect.name}: no line of a step holds a value whose name is known",
            hint=_which_keys(keys),
        )
    resumes = {fact.line: at for fact in log.facts if fact.key == "resumed" and (at := count_of(fact.value)) is not None}
    runs = [run for run in runs_of(meaning.rows, starts, resumes) if _holds_values(run)]
    meaning.notes += note_on_torn(torn)
    return [_imported(run, number, runs, log, keys, meaning, form) for number, run in enumerate(runs)]


def _holds_values(run: TextRun) -> bool:
    """Tell whether a run holds any value other than those that only help to read others."""
    return any(
        column.recorded.any() for part in run.parts for name, column in part.rows.columns.items() if not name.startswith(HELPER)
    )


def _imported(
    run: TextRun, number: int, runs: Sequence[TextRun], log: LogContent, keys: Sequence[str], meaning: NamedLines, form: Format
) -> Imported:
    """Return one run, with the facts and errors between the previous run and the next one."""
    name = form.dialect.name
    begin = runs[number - 1].last_line if number else 0
    end = runs[number + 1].first_line if number + 1 < len(runs) else log.lines + 1
    facts = [fact for fact in log.facts if begin < fact.line < end]
    manifest = _manifest(name, keys, meaning)
    notes_on_facts = form.manifest(manifest, facts, run)
    steps = sum(len(part.rows.steps) for part in run.parts)
    several = [f"the file holds {len(runs)} runs, this is number {number + 1}"] if len(runs) > 1 else []
    clock, doubt = clock_of(run.parts)
    seen = [version for version in log.sightings if begin < version.line < end]
    lines = [part.rows.origin.lines for part in run.parts] if seen else [np.empty(0, np.int64)]
    troubles = error_events(seen, np.maximum.accumulate(np.concatenate(lines)))
    errors = add_rates(run, troubles, clock)
    timing = _add_times(run, clock, manifest, facts)
    table = table_of(run)
    if slices := slices_of(table.names):
        manifest.slices = slices
    notes = [
        f"read as {name}: {log.lines:,} lines, {steps:,} steps from {int(table.steps[0]):,} to {int(table.steps.max()):,}",
        *several,
        *meaning.notes,
        *notes_on_facts,
        *run.notes,
        *errors,
        *([doubt] if doubt and troubles else []),
        *timing,
        *log.notes,
        *notes_on_left_out(_left_out(log, meaning, form), keys),
        "a text log holds scalars only: weights, gradients, activations and attention of single tensors were not recorded",
    ]
    return Imported(table, manifest, tuple(notes), name, f"run {number + 1}" if len(runs) > 1 else "")


def _left_out(log: LogContent, meaning: NamedLines, form: Format) -> list[str]:
    """Return the keys that were not used, except those that only repeat others."""
    keys = dict.fromkeys((*log.unwanted, *meaning.unused))
    return [key for key in keys if not form.dialect.derived(key) and key not in meaning.used]


def _manifest(name: str, keys: Iterable[str], meaning: NamedLines) -> Manifest:
    """Return the manifest that follows from the names of all values, before facts are read."""
    return Manifest(
        schema_version="ck.run.v1",
        source=name,
        loss_kind=loss_kind_of_names(keys) or UNSET,
        takes_turns=have_adversarial_losses(keys) or UNSET,
        step_unit=meaning.step_unit,
    )


def _add_times(run: TextRun, clock: Floats | None, manifest: Manifest, facts: Sequence[RunFact]) -> list[str]:
    """Write times to the lines and starts to the manifest, where the log has them, and return a note on the times."""
    starts = [_session(part, facts, before) for before, part in zip([None, *run.parts], run.parts, strict=False)]
    if len(starts) > 1 or starts[0].resumed_from != Session().resumed_from:
        manifest.sessions = starts
    marked = [part.rows.origin.times for part in run.parts]
    times = np.concatenate(marked)
    if clock is None or np.isnan(times).all():
        return []
    known = times[~np.isnan(times)]
    if (known == np.floor(known)).all() and len(known) > 1 and np.median(np.abs(np.diff(known))) < COARSE_SECONDS:
        _add_restart_rate(run, clock)
        return [
            "its times are whole seconds, too coarse for the duration of a step: they were used to date starts and errors only"
        ]
    for part, times_of_part in zip(run.parts, marked, strict=True):
        part.rows.columns["time"] = Numbers(times_of_part, ~np.isnan(times_of_part))
    return ["times without a zone were taken for UTC"]


def _add_restart_rate(run: TextRun, clock: Floats) -> None:
    begins = np.cumsum([0, *(len(part.rows.steps) for part in run.parts)])
    if len(run.parts) > 1:
        rate = of_last_day(begins[1:-1], clock[begins[1:-1]], clock)
        for part, begin, end in zip(run.parts, begins, begins[1:], strict=False):
            part.rows.columns["restart_rate"] = Numbers(rate[begin:end], np.ones(end - begin, bool))


def _session(part: LogPart, facts: Sequence[RunFact], before: LogPart | None) -> Session:
    """Return one start as a session, with the facts that precede its first step."""
    session = Session()
    first = int(part.rows.origin.lines.min())
    after = int(before.rows.origin.lines.max()) if before else 0
    before_start = [fact for fact in facts if after < fact.line < first]
    begun = [fact.mark.time or unix_time(fact.value) for fact in before_start if fact.key == "start"]
    logged = part.rows.origin.times[~np.isnan(part.rows.origin.times)]
    times = [time for time in [*begun, *logged[:1].tolist()] if time is not None]
    if times:
        session.start = times[0]
    resumed = counts_of(fact.value for fact in before_start if fact.key == "resumed")
    if resumed:
        session.resumed_from = resumed[-1]
    worlds = counts_of(fact.value for fact in before_start if fact.key == "world_size")
    if worlds:
        session.world_size = worlds[-1]
    return session


def holds_line(source: Source, marks: Sequence[bytes], cells: Callable[[str, int], Sequence[Cell] | None]) -> bool:
    """Tell whether a text holds a line with a step.

    Args:
        source: A file or a folder.
        marks: Each line with a step holds one of these.
        cells: Returns the values of a line, or None for a line without a step.
    """
    if not is_text(source):
        return False
    data = source.text.encode() if source.head.startswith(UTF16_MARKS) else source.data
    return any(_is_step(line, cells) for mark in marks for line in _lines_with(data, mark))


def _is_step(line: bytes, cells: Callable[[str, int], Sequence[Cell] | None]) -> bool:
    text = next(iter([*block.lines, block.torn or ""][0] for block in blocks(line)), "")
    return bool(cells(text, prefix_end(text)))


def _lines_with(data: bytes, mark: bytes, *, tries: int = 2000) -> Iterator[bytes]:
    """Yield the first and the last lines with a mark; the last too, because a program's source may precede its log."""
    at, stop = data.find(mark), len(data)
    for _ in range(tries):
        if at < 0:
            return
        yield _line_at(data, at)
        at = data.find(mark, at + MAX_LINE if (end := data.find(b"\n", at)) < 0 else end)
    for _ in range(tries):
        stop = data.rfind(mark, at, stop)
        if stop < 0:
            return
        yield _line_at(data, stop)
        stop = max(data.rfind(b"\n", 0, stop), 0)


def _line_at(data: bytes, at: int) -> bytes:
    begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
    return data[begin : min(len(data) if end < 0 else end, begin + MAX_LINE)]


def is_text(source: Source) -> bool:
    """Tell whether a source is text, and not a folder, JSON, a web page, a table or a binary file."""
    return not source.is_folder and not _is_other(source.head)


def _is_other(head: bytes) -> bool:
    if head.startswith(UTF16_MARKS):
        return False
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    is_document = start.startswith((b"{", b"<")) and not start.startswith(b"{'")  # a dictionary as Python prints it is not JSON
    return b"\0" in head.rstrip(b"\0") or (is_document and not _goes_on_as_text(start)) or is_table(head)


def _goes_on_as_text(start: bytes) -> bool:
    """Tell whether a text begins with a JSON object, such as a configuration that a program printed, and a word follows it."""
    try:
        _, end = _JSON.raw_decode(text := start.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return False
    return text[end:].lstrip()[:1].isalpha()
