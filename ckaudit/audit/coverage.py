"""What of the catalogue a run recorded, what it did not, and what that keeps from being judged."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import UNSET, Struct

from ckaudit.audit.applies import why_not_entry
from ckaudit.audit.arguments import ARGUMENTS, given
from ckaudit.audit.freed import Needs, ranked, together
from ckaudit.audit.judge import judge
from ckaudit.audit.lacking import Lack, missing_inputs, unusable
from ckaudit.audit.measure import notes_on_files
from ckaudit.audit.open import is_run_folder, open_run
from ckaudit.audit.outlook import scale_of, stage_of
from ckaudit.audit.program import is_recorded
from ckaudit.audit.remedies import Remedy, remedies
from ckaudit.causes.links import causes_reading, rules_reading
from ckaudit.contract.missed import needs_of
from ckaudit.contract.report import Check
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import RANKS, Entry, Importance, entries
from ckaudit.rules import rules
from ckaudit.run.read import Progress
from ckaudit.run.run import Run

OF_EVENTS = ("batch_repeat_distance", "replay_first_difference")  # nothing is missing where nothing repeated or differed


class Row(Struct, frozen=True, kw_only=True):
    """One entry of the catalogue in one run.

    Attributes:
        name: The entry.
        rows: Rows of the lists that it answers.
        level: How much this run needs it.
        title: What it is.
        recorded: Whether the run has at least one value of it that rests on enough.
        partial: Whether it has values, but of too little to count: of none of `evidence`.
        evidence: Metrics or scalars of which one must be there for it to count; empty: any value counts.
        inputs: Entries it is made of that the run has not: their lines record it.
        unusable: What is wrong with its inputs where all are there; empty: nothing, or not all are.
        beside: Metrics of the same playbook that the run has.
        lacks: Metrics of the same playbook that the run has not.
        waiting: Rules that cannot judge without what is missing of it: itself, or what it covers.
        rules: Rules for a run like this that would read that.
        causes: Causes that would.
        record: What records it, in words.
        not_applicable: Why it makes no sense for this run; empty: it does.
    """

    name: str
    rows: tuple[str, ...]
    level: Importance
    title: str
    recorded: bool
    partial: bool
    evidence: tuple[str, ...]
    inputs: tuple[str, ...]
    unusable: str
    beside: tuple[str, ...]
    lacks: tuple[str, ...]
    waiting: tuple[str, ...]
    rules: tuple[str, ...]
    causes: tuple[str, ...]
    record: str
    not_applicable: str


class Waiting(Struct, frozen=True, kw_only=True):
    """A rule that could not judge the run, because something is not recorded.

    Attributes:
        code: The rule.
        name: Its name.
        needs: The metrics and arguments that are missing, where one of several would do all of them, or "run.json".
        place: Number of the remedy after which it can judge, counted from 1; None: it takes several, or none does.
        places: Numbers of the remedies that let it judge together; empty: they do not.
    """

    code: str
    name: str
    needs: tuple[str, ...]
    place: int | None
    places: tuple[int, ...]


class Young(Struct, frozen=True, kw_only=True):
    """A rule that has its numbers, but too few of them so far.

    Attributes:
        code: The rule.
        name: Its name.
        detail: How many there are, and how many it needs.
    """

    code: str
    name: str
    detail: str


class Coverage(Struct, frozen=True, kw_only=True):
    """The catalogue held against one run.

    Attributes:
        subject: What was looked at.
        scale: nano, medium or large.
        scale_reason: Where that comes from.
        stage: early, steady or late.
        stage_reason: Where that comes from.
        step: The last step recorded.
        over: Whether the run has ended, so that what is missing can be recorded by the next one only.
        files: Files read.
        notes: What a reader must know of how it was read, and which files could not be.
        checks: How many rules there are.
        waiting: Those that could not judge, because something is not recorded, as triage says.
        young: Those that have too few points so far.
        remedies: What to do about what is missing, the one that most rules and causes wait for first.
        rows: Every entry, the most needed first, in the order of the catalogue.
    """

    subject: str
    scale: str
    scale_reason: str
    stage: str
    stage_reason: str
    step: int | None
    over: bool
    files: int
    notes: tuple[str, ...]
    checks: int
    waiting: tuple[Waiting, ...]
    young: tuple[Young, ...]
    remedies: tuple[Remedy, ...]
    rows: tuple[Row, ...]

    def missing(self, level: Importance) -> list[Row]:
        """Return what was not recorded although it makes sense."""
        return [row for row in self.of(level) if not row.recorded]

    def of(self, level: Importance) -> list[Row]:
        """Return what makes sense for the run and is needed that much."""
        return [row for row in self.rows if row.level == level and (row.recorded or not row.not_applicable)]


def coverage(
    path: Path,
    *,
    scale: str | None = None,
    stage: str | None = None,
    columns: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Coverage:
    """Hold the catalogue against the run at `path`.

    Args:
        path: A run folder, a checkpoint file, or a log that an importer knows.
        scale: nano, medium or large; default: by `scale_of`.
        stage: early, steady or late; default: by `stage_of`.
        columns: Names that a foreign log gives to catalogue names.
        progress: Called with files done and files in all.

    Raises:
        UnreadableError: Where there is no run.
    """
    reads = frozenset[str]().union(*(metric.paths for metric in metrics().values()))
    run = open_run(path, reads=reads, columns=columns or {}, progress=progress)
    return coverage_of(run, scale=scale, stage=stage, in_folder=is_run_folder(path))


def coverage_of(run: Run, *, scale: str | None = None, stage: str | None = None, in_folder: bool = True) -> Coverage:
    """Hold the catalogue against a run that is in memory; `in_folder`: whether commands can add to it."""
    size, time = scale_of(run), stage_of(run)
    chosen = {"scale": scale or size.word, "stage": stage or time.word}
    checks = judge(run, rules().values()).checks
    rows = [_row(name, entry, run, checks, level_of(entry, **chosen)) for name, entry in entries().items()]
    rows.sort(key=lambda row: RANKS.index(row.level))
    stands = is_recorded(run)  # what a recorder of ours did not bring beside an entry, its line does not bring
    waits = {check.name: needs for check in checks if (needs := needs_of(check))}
    lacks = [*(_lack(row) for row in rows if _is_lacking(row, stands=stands)), *_untold(run, rows, waits)]
    needed = [need for needs in waits.values() for need in needs]
    found = ranked(run, remedies(run, lacks, needs=needed, in_folder=in_folder), waits)
    return Coverage(
        subject=run.name,
        scale_reason="as asked for" if scale else size.reason,
        stage_reason="as asked for" if stage else time.reason,
        step=run.last_step,
        over=_is_over(run),
        files=run.files,
        notes=(*notes_on_files(run), *run.notes),
        checks=len(checks),
        waiting=tuple(_waiting(run, check, found) for check in checks if check.reason == "not_recorded"),
        young=tuple(_young(check) for check in checks if check.reason == "too_few_points"),
        remedies=found,
        rows=tuple(rows),
        **chosen,
    )


def level_of(entry: Entry, *, scale: str, stage: str) -> Importance:
    """Return how much a run of that scale at that stage needs an entry: the lesser of the two words."""
    by_scale: Importance = getattr(entry.scale, scale)
    by_stage: Importance = getattr(entry.stage, stage)
    return max(by_scale, by_stage, key=RANKS.index)


def _row(name: str, entry: Entry, run: Run, checks: Iterable[Check], level: Importance) -> Row:
    metric = metrics()[name]
    beside = tuple(each for each in entry.covers if metrics()[each](run))
    # What records the entry records what it covers, but for what another entry's line brings.
    brought = [each for each in entry.covers if each not in entry.elsewhere] + _brought_by(name)
    lacks = tuple(each for each in brought if each not in (*beside, *OF_EVENTS) and _is_unrecorded(each, run))
    found = bool(metric(run))
    whole = found and _rests_on_enough(run, name, entry)
    waited = lacks if whole else (name, *lacks)
    foreign = {check.code for check in checks if check.reason == "not_applicable"}
    return Row(
        name=name,
        rows=entry.rows,
        level=level,
        title=metric.title,
        recorded=whole,
        partial=found and not whole,
        evidence=entry.evidence,
        inputs=() if whole else missing_inputs(run, name),
        unusable="" if found else unusable(run, name),
        beside=beside,
        lacks=lacks,
        waiting=tuple(check.name for check in checks if any({*waited} & {*each} for each in needs_of(check))),
        rules=tuple(f"{rule.code} {rule.name}" for rule in rules_reading(waited) if rule.code not in foreign),
        causes=tuple(cause.name for cause in causes_reading(waited)),
        record=entry.record,
        not_applicable=why_not_entry(run, name),
    )


def _brought_by(name: str) -> list[str]:
    """Return what the line of an entry records of what others cover."""
    return [metric for each in entries().values() for metric, by in each.elsewhere.items() if by == name]


def _is_unrecorded(name: str, run: Run) -> bool:
    """Return whether a metric has no value because what it is made of is not there."""
    inputs = metrics()[name].uses
    return not (metrics()[name](run) or (inputs and all(metrics()[each](run) for each in inputs)))


def _is_lacking(row: Row, *, stands: bool) -> bool:
    """Return whether a line would help: something is missing, or a side of it that a check waits for."""
    sides = bool(row.rules or row.causes) and not stands
    return not (row.not_applicable or row.unusable) and (not row.recorded or sides)


def _young(check: Check) -> Young:
    return Young(code=check.code, name=check.name, detail=check.detail or "")


def _waiting(run: Run, check: Check, found: Sequence[Remedy]) -> Waiting:
    needs = needs_of(check)
    place = next((place for place, each in enumerate(found, start=1) if check.name in each.waiting), None)
    return Waiting(
        code=check.code, name=check.name, needs=tuple(name for each in needs for name in each), place=place,
        places=together(run, found, needs) if place is None else (place,),
    )  # fmt: skip


def _lack(row: Row) -> Lack:
    readers = (*row.rules, *row.causes)
    return Lack(
        name=row.name, level=row.level, waiting=row.waiting, readers=readers, by=row.inputs[0] if row.inputs else row.name
    )


def _untold(run: Run, rows: Iterable[Row], waits: Mapping[str, Needs]) -> Iterator[Lack]:
    """Yield the arguments that checks wait for: of several that would do the first, and those of numbers that are missing."""
    lacking = {row.name for row in rows if not (row.recorded or row.not_applicable)}
    for name in ARGUMENTS:
        waiting = [check for check, needs in waits.items() if any(need[0] == name for need in needs)]
        asked = [each for each in lacking if name in entries()[each].arguments and not given(run, [name])]
        if waiting or asked:
            yield Lack(name=name, level="should", waiting=tuple(waiting), readers=(), by=name)


def _rests_on_enough(run: Run, name: str, entry: Entry) -> bool:
    """Return whether one of the numbers is there without which a metric says too little."""
    others = [metrics()[each] for each in entry.evidence if each != name and each in metrics()]
    return not entry.evidence or any(map(run.scalar, entry.evidence)) or any(metric(run) for metric in others)


def _is_over(run: Run) -> bool:
    facts = run.manifest
    if facts is None or run.last_step is None:
        return False
    if facts.sessions and facts.sessions[-1].end is not UNSET:
        return True
    return facts.planned_steps is not UNSET and run.last_step >= facts.planned_steps > 0
