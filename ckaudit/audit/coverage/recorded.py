"""Coverage: which metrics of the catalogue a run records, which it lacks, and which checks lack them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.audit.coverage.applicability import (
    ARGUMENTS,
    OUR_RECORDER,
    line_instead,
    missing_inputs,
    options_in_use,
    source_of,
    trainer_of,
    unusable,
    why_entry_not_applicable,
)
from ckaudit.audit.coverage.remedies import RECORD_AGAIN, is_recorded, remedies
from ckaudit.audit.coverage.table import Coverage, MissingInput, Remedy, Row, Waiting, Young
from ckaudit.audit.judge import apply_rules
from ckaudit.audit.load_run import is_run_folder, open_run, run_folder_of
from ckaudit.audit.measure import notes_on_files
from ckaudit.audit.scale_and_stage import scale_of, stage_of
from ckaudit.causes.shared.links import causes_reading, rules_reading
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.contract.schema.report import Check
from ckaudit.contract.summaries import needs_of
from ckaudit.metrics import Metric, metrics
from ckaudit.metrics.catalogue import RANKS, CatalogueEntry, Importance, actions, covered_elsewhere, entries, owner_of
from ckaudit.rules import rules
from ckaudit.run.read import Progress
from ckaudit.run.run import Run

OF_EVENTS = (
    "batch_repeat_distance",
    "batch_reused",
    "replay_first_difference",
)  # nothing is missing if nothing repeated or differed

Needs = Sequence[Sequence[str]]

FACTS = "run.json"


def coverage(
    path: Path,
    *,
    scale: str | None = None,
    stage: str | None = None,
    import_options: ImportOptions = NO_IMPORT_OPTIONS,
    progress: Progress | None = None,
) -> Coverage:
    """Compare the catalogue with the run at `path`.

    Args:
        path: A run folder, a checkpoint file, or a log that an importer knows.
        scale: nano, medium or large; default: by `scale_of`.
        stage: early, steady or late; default: by `stage_of`.
        import_options: Facts that the log of another program lacks, such as which column holds the loss.
        progress: Called with the number of files done and their total.

    Raises:
        UnreadableError: If there is no run.
    """
    reads = frozenset[str]().union(*(metric.paths for metric in metrics().values()))
    run = open_run(path, reads=reads, import_options=import_options, progress=progress)
    return coverage_of(run, scale=scale, stage=stage, in_folder=is_run_folder(path), part_of=run_folder_of(path))


@ignoring_float_errors
def coverage_of(
    run: Run, *, scale: str | None = None, stage: str | None = None, in_folder: bool = True, part_of: str = ""
) -> Coverage:
    """Compare the catalogue with a run in memory.

    Args:
        run: The run.
        scale: As `coverage` takes it.
        stage: As `coverage` takes it.
        in_folder: Whether commands can add values to it.
        part_of: The run's folder if this is only one of its files: the other files may hold what is missing.
    """
    size, time = scale_of(run), stage_of(run)
    chosen = {"scale": scale or size.word, "stage": stage or time.word}
    checks = apply_rules(run, rules().values()).checks
    waits = {check.name: needs for check in checks if (needs := needs_of(check))}
    foreign = {check.code for check in checks if check.reason == "not_applicable"}
    rows = [_row(name, entry, run, waits, foreign, level_of(entry, **chosen)) for name, entry in entries().items()]
    rows.sort(key=lambda row: RANKS.index(row.level))
    lacks = _missing_inputs(run, rows, waits)
    needed = [need for needs in waits.values() for need in needs]
    ordered = () if part_of else rank_remedies(run, remedies(run, lacks, needs=needed, in_folder=in_folder), waits)
    return Coverage(
        subject=run.name,
        part_of=part_of,
        scale_reason="as asked for" if scale else size.reason,
        stage_reason="as asked for" if stage else time.reason,
        step=run.last_step,
        over=_is_over(run),
        files=run.files,
        notes=(*notes_on_files(run), *run.notes),
        checks=len(checks),
        waiting=tuple(_waiting(run, check, ordered) for check in checks if check.reason == "not_recorded"),
        young=tuple(
            Young(code=check.code, name=check.name, detail=check.detail or "")
            for check in checks
            if check.reason == "too_few_points"
        ),
        remedies=ordered,
        rows=tuple(rows),
        **chosen,
    )


@ignoring_float_errors
def lines_for_check(run: Run, check_code: str) -> tuple[tuple[str, ...], bool]:
    """Return the lines that one check of a run needs, and whether it cannot judge without them.

    Args:
        run: The run.
        check_code: Code of the check.

    Returns:
        The lines, empty if the check has all inputs or if no line records them; and whether it needs them to judge. If it does
        not, they are optional inputs.
    """
    checks = apply_rules(run, rules().values()).checks
    every = {check.name: needs for check in checks if (needs := needs_of(check))}
    waits = {check.name: every[check.name] for check in checks if check.code == check_code and check.name in every}
    foreign = {check.code for check in checks if check.reason == "not_applicable"}
    rows = [_row(name, entry, run, every, foreign, "must") for name, entry in entries().items()]
    lacks = _missing_inputs(run, rows, waits)
    if not waits:
        # A rule lists its main input first.
        asked = [
            owner_of(need.name) for need in (*rules()[check_code].needs, *rules()[check_code].wants) if isinstance(need, Metric)
        ]
        read = [lack for lack in lacks if any(reader.startswith(f"{check_code} ") for reader in lack.readers)]
        read.sort(key=lambda lack: asked.index(lack.name) if lack.name in asked else len(asked))
        return tuple(remedy.code for remedy in remedies(run, read[:1], in_folder=False) if remedy.lines), False
    needs = next(iter(waits.values()))
    wanted = [lack for lack in lacks if {*lack.waiting} & {*waits}]
    ordered = rank_remedies(run, remedies(run, wanted, needs=needs, in_folder=False), waits)
    return tuple(code for place in remedies_needed(run, ordered, needs) if (code := ordered[place - 1].code)), True


def _missing_inputs(run: Run, rows: Sequence[Row], waits: Mapping[str, Needs]) -> list[MissingInput]:
    """Return the missing numbers and arguments of a run."""
    stands = is_recorded(run)  # if ckaudit's recorder did not record a covered metric, its line will not either
    return [*(_missing_input(run, row) for row in rows if _is_lacking(row, stands=stands)), *_missing_arguments(run, rows, waits)]


def level_of(entry: CatalogueEntry, *, scale: str, stage: str) -> Importance:
    """Return how much a run of that scale and stage needs an entry: the lower of the two importances."""
    by_scale: Importance = getattr(entry.scale, scale)
    by_stage: Importance = getattr(entry.stage, stage)
    return max(by_scale, by_stage, key=RANKS.index)


def _row(name: str, entry: CatalogueEntry, run: Run, waits: Mapping[str, Needs], foreign: set[str], level: Importance) -> Row:
    metric = metrics()[name]
    beside = tuple(covered for covered in entry.covers if metrics()[covered](run))
    # The line of an entry records what it covers, except for metrics that another entry's line records.
    from_others = [covered for covered, by in covered_elsewhere() if by == name]
    brought = [covered for covered in entry.covers if covered not in entry.elsewhere] + from_others
    lacks = tuple(covered for covered in brought if covered not in (*beside, *OF_EVENTS) and _is_unrecorded(covered, run))
    has_values = bool(metric(run))
    whole = has_values and _rests_on_enough(run, name, entry)
    waited = lacks if whole else (name, *lacks)
    return Row(
        name=name,
        rows=entry.rows,
        level=level,
        title=metric.title,
        recorded=whole,
        partial=has_values and not whole,
        evidence=entry.evidence,
        inputs=() if whole else missing_inputs(run, name),
        unusable="" if has_values else unusable(run, name),
        beside=beside,
        lacks=lacks,
        waiting=tuple(check for check, needs in waits.items() if not {*waited}.isdisjoint(chain.from_iterable(needs))),
        rules=tuple(f"{rule.code} {rule.name}" for rule in rules_reading(waited) if rule.code not in foreign),
        causes=tuple(cause.name for cause in causes_reading(waited)),
        record=entry.record,
        not_applicable=why_entry_not_applicable(run, name),
    )


def _is_unrecorded(name: str, run: Run) -> bool:
    """Return whether a metric has no value because its inputs are missing."""
    inputs = metrics()[name].uses
    return not (metrics()[name](run) or (inputs and all(metrics()[input_](run) for input_ in inputs)))


def _is_lacking(row: Row, *, stands: bool) -> bool:
    """Return whether a line would help: the entry is missing, or a covered metric that a check reads."""
    sides = bool(row.rules or row.causes) and not stands
    return not (row.not_applicable or row.unusable) and (not row.recorded or sides)


def _waiting(run: Run, check: Check, ordered: Sequence[Remedy]) -> Waiting:
    needs = needs_of(check)
    place = next((place for place, remedy in enumerate(ordered, start=1) if check.name in remedy.waiting), None)
    return Waiting(
        code=check.code,
        name=check.name,
        needs=tuple(dict.fromkeys(name for need in needs for name in need)),
        detail=check.detail or "",
        place=place,
        places=remedies_needed(run, ordered, needs) if place is None else (place,),
    )


def _missing_input(run: Run, row: Row) -> MissingInput:
    by = row.inputs[0] if row.inputs else row.name
    readers = (*row.rules, *row.causes)
    return MissingInput(name=row.name, level=row.level, waiting=row.waiting, readers=readers, by=line_instead(run, by) or by)


def _missing_arguments(run: Run, rows: Iterable[Row], waits: Mapping[str, Needs]) -> Iterator[MissingInput]:
    """Yield missing arguments: those that checks need (the first of alternatives), those of missing numbers, and run.json."""
    lacking = {row.name for row in rows if not (row.recorded or row.not_applicable)}
    for name in ARGUMENTS:
        waiting = [check for check, needs in waits.items() if any(need[0] == name for need in needs)]
        asked = [entry for entry in lacking if name in entries()[entry].arguments and not options_in_use(run, [name])]
        if waiting or asked:
            yield MissingInput(name=name, level="should", waiting=tuple(waiting), readers=(), by=name)
    silent = [check for check, needs in waits.items() if any(need[0].startswith(FACTS) for need in needs)]
    # Written by an older recorder: the current one records it by itself, like the weights.
    if silent and source_of(run).startswith(OUR_RECORDER):
        yield MissingInput(name=FACTS, level="should", waiting=tuple(silent), readers=(), by="weight_std")


def _rests_on_enough(run: Run, name: str, entry: CatalogueEntry) -> bool:
    """Return whether one of the numbers is recorded that a metric needs to be meaningful."""
    others = [metrics()[evidence] for evidence in entry.evidence if evidence != name and evidence in metrics()]
    return not entry.evidence or any(map(run.scalar, entry.evidence)) or any(metric(run) for metric in others)


def _is_over(run: Run) -> bool:
    facts = run.manifest
    if facts is None or run.last_step is None:
        return False
    if facts.has_ended:
        return True
    return facts.planned_steps is not UNSET and run.last_step >= facts.planned_steps > 0


# Checks that remedies enable: missing inputs of each check compared with what each remedy records.
def rank_remedies(run: Run, unranked: Sequence[Remedy], waits: Mapping[str, Needs]) -> tuple[Remedy, ...]:
    """Return remedies with the checks that each enables; the one that enables most of the remaining checks comes first.

    Args:
        run: The run.
        unranked: Remedies, in the order for ties.
        waits: Missing inputs of each check, by its name.
    """
    wanted = {name: _ways_to_meet(run, needs) for name, needs in waits.items()}
    rest, left, order = [(remedy, inputs_recorded_by(run, remedy)) for remedy in unranked], dict(wanted), []
    while rest:
        freed = [[name for name, needs in left.items() if _all_brought(needs, inputs)] for _, inputs in rest]
        best = max(range(len(rest)), key=lambda place: (len(freed[place]), -place))
        order.append(replace(rest.pop(best)[0], waiting=tuple(freed[best])))
        left = {name: needs for name, needs in left.items() if name not in freed[best]}
    return _with_companions(run, order)


def remedies_needed(run: Run, ordered: Sequence[Remedy], needs: Needs) -> tuple[int, ...]:
    """Return the numbers, from 1, of the remedies that together give a check all its inputs; empty if they do not."""
    inputs_by_remedy = [inputs_recorded_by(run, remedy) for remedy in ordered]
    numbers: set[int] = set()
    for ways in _ways_to_meet(run, needs):
        places = [_places(way, inputs_by_remedy) for way in ways]
        if not (open_ways := [place for place in places if place]):
            return ()
        numbers |= min(open_ways, key=len)
    return tuple(sorted(numbers))


def inputs_recorded_by(run: Run, remedy: Remedy) -> frozenset[str]:
    """Return the inputs that the lines record: entries, arguments, and run facts if they create a recorder."""
    more = set(chain.from_iterable(extra.names for extra in remedy.extras))
    way = actions()["recorder"].way(trainer_of(run))
    spelled = {name: way.spells.get(argument.option, argument.option) for name, argument in ARGUMENTS.items()}
    arguments = {name for name, option in spelled.items() if f"{option.partition('=')[0]}=" in remedy.code}
    is_recorder = len(remedy.lines) > 1
    by_callback = {*way.gives} & {*ARGUMENTS} if is_recorder else set()
    facts = {FACTS} if is_recorder or remedy.where == RECORD_AGAIN else set()
    return frozenset({*remedy.names} - more | arguments | by_callback | facts)


def _ways_to_meet(run: Run, needs: Needs) -> list[list[frozenset[str]]]:
    """Return the alternatives for each need; needs that the run already meets are left out, unless all are met."""
    unmet = [need for need in needs if not any(name in metrics() and metrics()[name](run) for name in need)]
    return [[_required_inputs(run, name) for name in need] for need in unmet or needs]


def _required_inputs(run: Run, name: str) -> frozenset[str]:
    """Return what a metric or argument requires: its entry, the inputs of that, and arguments of the Recorder."""
    owner = owner_of(name)
    if owner is None:
        return frozenset((FACTS,) if " " in name else (name,))  # a sentence describes a missing fact of the run
    arguments = {*entries()[owner].arguments}
    others = (_required_inputs(run, entry) for entry in _missing_companions(run, owner))
    return frozenset({owner, *missing_inputs(run, owner)} | (arguments - options_in_use(run, arguments))).union(*others)


def _missing_companions(run: Run, name: str) -> list[str]:
    """Return the entries that a run lacks and without which another entry's line records nothing."""
    return [entry for entry in entries()[name].together if not metrics()[entry](run)]


def _with_companions(run: Run, ordered: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Return remedies that name the other remedies they depend on."""
    inputs_by_remedy = [inputs_recorded_by(run, remedy) for remedy in ordered]
    with_remarks = []
    for remedy, pieces_here in zip(ordered, inputs_by_remedy, strict=True):
        wanted = {
            name: frozenset().union(*(_required_inputs(run, entry) for entry in _missing_companions(run, name)))
            for name in remedy.names
        }
        places = {
            name: sorted(_places(pieces - pieces_here, inputs_by_remedy))
            for name, pieces in wanted.items()
            if pieces - pieces_here
        }
        remarks = [f"Together with {_numbers(numbers)}, for {name}." for name, numbers in places.items() if numbers]
        with_remarks.append(replace(remedy, where=" ".join([remedy.where, *remarks])))
    return tuple(with_remarks)


def _numbers(places: Sequence[int]) -> str:
    return f"number{'s' if len(places) > 1 else ''} {' and '.join(map(str, places))}"


def _all_brought(needs: Iterable[Iterable[frozenset[str]]], recorded: frozenset[str]) -> bool:
    return all(any(one <= recorded for one in need) for need in needs)


def _places(pieces: Iterable[str], inputs_by_remedy: Sequence[frozenset[str]]) -> set[int]:
    """Return the numbers of the first remedies that record each piece; empty if one piece is recorded by none."""
    numbers = {
        next((place for place, brought in enumerate(inputs_by_remedy, start=1) if piece in brought), 0) for piece in pieces
    }
    return set() if 0 in numbers else numbers
