"""The audit of a fleet: runs are found, unchanged ones are skipped, and an engine audits the rest in batches."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct

from ckaudit import __version__
from ckaudit.contract.schema.fleet import VERSION, Fleet, FleetGroup, FleetRun
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.report import SEVERITIES, gravest
from ckaudit.errors import UsageError
from ckaudit.fleet.common_causes import common_causes
from ckaudit.fleet.dataset import DatasetWriter, Stored, read_stored
from ckaudit.fleet.engines import Engine
from ckaudit.fleet.find_runs import FoundRuns, find_runs, skipped_files_note
from ckaudit.fleet.fingerprint import audit_key, state_of
from ckaudit.fleet.like import with_own_siblings
from ckaudit.fleet.source import RunSource, portable
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.remote.location import is_uri, shown
from ckaudit.wording import plural

BATCH_SECONDS = 1.0
"""Minimum seconds between two batches; more in a long audit, to limit their number."""
BATCH_SHARE = 0.02
"""Share of the time since the audit began: the maximum work that is lost if it is killed."""

Progress = Callable[[int, int, Sequence[FleetRun]], None]
"""Called with the number of finished sources, of all sources, and the new rows."""


class FleetRequest(Struct, frozen=True, kw_only=True):
    """The request for an audit of a fleet.

    Attributes:
        patterns: Patterns that the user gave.
        folder: Folder of the data set.
        import_options: Facts that logs of other programs lack.
        criteria: Policy.
        since: Unix time; sources not written to since then are left out; 0: none.
        changed_only: Leave out sources that were audited before and have not changed.
        group_by: Facts to group the runs by.
        like: Patterns of healthy runs; each run is compared with those of its configuration.
    """

    patterns: Sequence[str]
    folder: Path
    import_options: ImportOptions = NO_IMPORT_OPTIONS
    criteria: AcceptanceCriteria = OPEN
    since: float = 0.0
    changed_only: bool = False
    group_by: Sequence[str] = ()
    like: Sequence[str] = ()


def audit_fleet(request: FleetRequest, engine: Engine, *, progress: Progress | None = None) -> Fleet:
    """Audit every new or changed run, and return the results of all runs.

    Raises:
        UsageError: If a pattern matches nothing, no run is in anything that is matched, or no run has a fact to group by.
        CkauditError: If the data set cannot be written.
    """
    key = audit_key(request.criteria, request.import_options)
    found_runs = find_runs(request.patterns, key)
    sources = [source for source in sources_of(found_runs, request, key) if not source.written or source.written >= request.since]
    if request.like:
        sources = with_own_siblings(sources, sources_of(find_runs(request.like, key), request, key))
    stored = read_stored(request.folder)
    known = rows_by_fingerprint(stored)
    fresh = [source for source in sources if source.fingerprint not in known]
    audited = audit_sources(fresh, engine, request.folder, progress=progress)
    unchanged = [row for source in sources for row in known.get(source.fingerprint, ())]
    told = {row.source or row.run for row in audited}
    passed = [*found_runs.passed, *(source.name for source in fresh if source.is_match and source.name not in told)]
    if passed and not audited and not unchanged and len(sources) == len(found_runs.paths):
        what = ", ".join(map(shown, request.patterns))
        raise UsageError(f"no run is known in what {what!r} matches", hint="\n".join(skipped_files_note(passed)))
    too_old = len(found_runs.paths) - len(sources) if request.since else 0
    notes = [*found_runs.notes, *skipped_files_note(passed), *stored.problems]
    notes += _notes_on_request(request, audited, unchanged, too_old)
    return fleet_of(
        audited if request.changed_only else [*audited, *unchanged],
        request,
        beside=unchanged if request.changed_only else (),
        audited=len(audited),
        unchanged=len(unchanged),
        notes=notes,
    )


def _notes_on_request(
    request: FleetRequest, audited: Sequence[FleetRun], unchanged: Sequence[FleetRun], too_old: int
) -> list[str]:
    """Return how many runs the request left out, and how many were compared with siblings."""
    notes = []
    if too_old > 0:
        notes.append(f"left out, because not written to since then: {plural(too_old, 'source')}")
    if request.like:
        held = sum(row.siblings > 0 for row in (*audited, *unchanged))
        notes.append(f"{held:,} of {plural(len(audited) + len(unchanged), 'run')} were held against healthy siblings")
    if request.changed_only and unchanged:
        notes.append(f"left out, because not changed since their last audit: {plural(len(unchanged), 'run')}")
    return notes


def sources_of(found_runs: FoundRuns, request: FleetRequest, key: bytes) -> list[RunSource]:
    """Return the sources, with the inputs of their audit."""
    import_options, criteria = portable(request.import_options), request.criteria
    sources = []
    for name, path in found_runs.paths.items():
        state = found_runs.states[name] if name in found_runs.states else state_of(path, key)
        place = path if is_uri(path) else str(Path(path).absolute())  # a worker may start in another folder
        sources.append(
            RunSource(
                name=name,
                path=place,
                import_options=import_options,
                criteria=criteria,
                fingerprint=state.fingerprint,
                written=state.written,
                is_match=name in found_runs.matches,
            )
        )
    return sources


def rows_by_fingerprint(stored: Stored) -> dict[str, list[FleetRun]]:
    """Return the rows that are valid while their source has the same fingerprint.

    Sources on which the auditor failed, or that could not be read over a network, are tried again.
    """
    rows: dict[str, list[FleetRun]] = {}
    for row in stored.runs:
        if row.fingerprint:
            rows.setdefault(row.fingerprint, []).append(row)
    return {state: group for state, group in rows.items() if all(map(_holds, group))}


def _holds(row: FleetRun) -> bool:
    return row.status == "audited" or (row.status == "unreadable" and not is_uri(row.run))


def audit_sources(
    sources: Sequence[RunSource],
    engine: Engine,
    folder: Path,
    *,
    progress: Progress | None = None,
    now: Callable[[], float] = time.monotonic,
) -> list[FleetRun]:
    """Return the rows of sources; they are added to the data set in batches."""
    rows, batch, begun = list[FleetRun](), list[FleetRun](), now()
    if not sources:
        return rows
    writer, written = DatasetWriter(folder), begun
    try:
        for done, new in enumerate(engine.results(sources), start=1):
            batch += new
            rows += new
            if progress is not None:
                progress(done, len(sources), new)
            if now() - written >= max(BATCH_SECONDS, BATCH_SHARE * (now() - begun)):
                writer.add(batch)
                batch, written = [], now()
    finally:
        writer.add(batch)
        writer.close()
    return rows


def fleet_of(
    rows: Iterable[FleetRun],
    request: FleetRequest,
    *,
    beside: Iterable[FleetRun] = (),
    audited: int = 0,
    unchanged: int = 0,
    notes: Sequence[str] = (),
) -> Fleet:
    """Return rows as a fleet: ranked, grouped, and with the common causes of ill runs.

    Args:
        rows: The reported runs.
        request: The request.
        beside: Runs that are not reported, but count for common causes.
        audited: Number of runs audited now.
        unchanged: Number of runs whose earlier verdict is still valid.
        notes: Notes for the reader.
    """
    runs = ranked(rows)
    fields = resolve_fields(request.group_by, runs)
    return Fleet(
        schema_version=VERSION,
        tool=f"ckaudit {__version__}",
        subject=list(request.patterns),
        verdict=verdict(runs),
        severity=gravest(run.severity for run in runs),
        runs=runs,
        common_causes=common_causes([*runs, *beside]),
        grouped_by=fields,
        groups=groups_of(runs, fields) if fields else [],
        audited=audited,
        unchanged=unchanged,
        notes=list(notes),
        dataset=str(request.folder),
    )


def verdict(runs: Sequence[FleetRun]) -> str:
    """Return a sentence that sums up an audit of many runs."""
    failed = sum(run.status != "audited" for run in runs)
    audited = len(runs) - failed
    ill = sum(run.is_ill for run in runs)
    limited = sum(run.status == "audited" and run.judged != "all" and not run.is_ill for run in runs)
    if not runs:
        return "No run is left to tell of"
    verb = "is" if ill == 1 else "are"
    parts = [f"{ill:,} of {plural(audited, 'run')} {verb} ill" if ill else f"No illness in {plural(audited, 'run')}"]
    if limited:
        parts.append(f"{limited:,} could not be judged in full")
    if failed:
        parts.append(f"{failed:,} could not be audited")
    return "; ".join(parts)


# The ranking of runs and groups: by severity, then by confidence, duration and time of writing.
Urgency = tuple[int, float, float, float, str]
Values = tuple[str | None, ...]


def ranked(runs: Iterable[FleetRun]) -> list[FleetRun]:
    """Return runs, the most urgent first; one that could not be audited comes after ill runs and before healthy ones."""
    return sorted(runs, key=urgency)


def urgency(run: FleetRun) -> Urgency:
    """Return the ranking key of a run."""
    sure = run.confidence if run.is_ill and run.confidence is not None else 0.0
    return _rank(run), -sure, -lasting_share(run), -float(run.written), run.run


def _rank(run: FleetRun) -> int:
    """Return the rank of a run: ill, not audited, with notes, not fully judged, healthy."""
    if run.status != "audited":
        return SEVERITIES.index("note")
    if run.severity is not None:
        return SEVERITIES.index(run.severity) + (run.severity == "note")
    return len(SEVERITIES) + (2 if run.judged == "all" else 1)


def lasting_share(run: FleetRun) -> float:
    """Return the share of a run's record that its gravest finding covers, 0 if not known."""
    top = next(iter(run.findings), None)
    if top is None or top.first_step is None or not run.last_step:
        return 0.0
    end = run.last_step if top.last_step is None else top.last_step
    return (end - top.first_step) / run.last_step


def resolve_fields(names: Sequence[str], runs: Iterable[FleetRun]) -> list[str]:
    """Return the facts that names refer to; a unique suffix is enough, as lr for config.lr.

    Raises:
        UsageError: If no run has such a fact, or several facts match.
    """
    known = {name for run in runs for name in run.facts}
    return [_field(name, known) for name in names]


def _field(name: str, known: set[str]) -> str:
    if name in known or not known:
        return name
    ending = sorted(fact for fact in known if fact.endswith(f".{name}"))
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise UsageError(f"--group-by {name!r} is one of several: {', '.join(ending[:5])}", hint="name one in full")
    near = get_close_matches(name, known, n=3) or sorted(known)[:8]
    raise UsageError(f"no run says its {name!r}", hint=f"group by one of what runs say, such as {', '.join(near)}")


def groups_of(runs: Iterable[FleetRun], fields: Sequence[str]) -> list[FleetGroup]:
    """Return the groups of runs that share the values of all fields, those with the largest share of ill runs first.

    Runs that could not be audited have no facts, and form no group.
    """
    members: dict[Values, list[FleetRun]] = defaultdict(list)
    for run in runs:
        members[tuple(run.facts.get(field) for field in fields)].append(run)
    groups = [_group(values, group) for values, group in members.items() if any(run.status == "audited" for run in group)]
    return sorted(
        groups, key=lambda group: (-float(group.share), -group.ill, -group.runs, [value or "" for value in group.values])
    )


def _group(values: Values, runs: Sequence[FleetRun]) -> FleetGroup:
    audited = [run for run in runs if run.status == "audited"]
    ill = [run for run in audited if run.is_ill]
    causes = Counter(first_cause(run) for run in ill)
    cause, count = min(causes.items(), key=lambda item: (-item[1], item[0]), default=(None, 0))
    return FleetGroup(
        values=list(values),
        runs=len(audited),
        ill=len(ill),
        share=len(ill) / len(audited) if audited else 0.0,
        not_audited=len(runs) - len(audited),
        cause=cause,
        with_cause=count,
    )


def first_cause(run: FleetRun) -> str:
    """Return the first cause of a run, or its gravest finding if no cause is known."""
    return run.cause or next((finding.name for finding in run.findings), "")
