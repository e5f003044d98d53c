"""What of the catalogue a run recorded, what it did not, and what that keeps from being judged."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ckaudit.audit.applies import why_not
from ckaudit.audit.open import open_run
from ckaudit.audit.outlook import scale_of, stage_of
from ckaudit.causes.links import causes_reading, rules_reading
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import RANKS, Entry, Importance, entries
from ckaudit.run.read import Progress
from ckaudit.run.run import Run


class Row(Struct, frozen=True, kw_only=True):
    """One entry of the catalogue in one run.

    Attributes:
        name: The entry.
        rows: Rows of the lists that it answers.
        level: How much this run needs it.
        title: What it is.
        recorded: Whether the run has at least one value of it.
        beside: Metrics of the same playbook that the run has.
        rules: Rules that read it, or what it covers and is not recorded.
        causes: Causes that weigh the same.
        record: The call that records it.
        not_applicable: Why it makes no sense for this run; empty: it does.
    """

    name: str
    rows: tuple[str, ...]
    level: Importance
    title: str
    recorded: bool
    beside: tuple[str, ...]
    rules: tuple[str, ...]
    causes: tuple[str, ...]
    record: str
    not_applicable: str


class Coverage(Struct, frozen=True, kw_only=True):
    """The catalogue held against one run.

    Attributes:
        subject: What was looked at.
        scale: nano, medium or large.
        scale_reason: Where that comes from.
        stage: early, steady or late.
        stage_reason: Where that comes from.
        step: The last step recorded.
        files: Files read.
        rows: Every entry, the most needed first, in the order of the catalogue.
    """

    subject: str
    scale: str
    scale_reason: str
    stage: str
    stage_reason: str
    step: int | None
    files: int
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
    return coverage_of(open_run(path, reads=reads, columns=columns or {}, progress=progress), scale=scale, stage=stage)


def coverage_of(run: Run, *, scale: str | None = None, stage: str | None = None) -> Coverage:
    """Hold the catalogue against a run that is in memory."""
    size, time = scale_of(run), stage_of(run)
    chosen = {"scale": scale or size.word, "stage": stage or time.word}
    rows = [_row(name, entry, run, level_of(entry, **chosen)) for name, entry in entries().items()]
    return Coverage(
        subject=run.name,
        scale_reason="as asked for" if scale else size.reason,
        stage_reason="as asked for" if stage else time.reason,
        step=run.last_step,
        files=run.files,
        rows=tuple(sorted(rows, key=lambda row: RANKS.index(row.level))),
        **chosen,
    )


def level_of(entry: Entry, *, scale: str, stage: str) -> Importance:
    """Return how much a run of that scale at that stage needs an entry: the lesser of the two words."""
    by_scale: Importance = getattr(entry.scale, scale)
    by_stage: Importance = getattr(entry.stage, stage)
    return max(by_scale, by_stage, key=RANKS.index)


def _row(name: str, entry: Entry, run: Run, level: Importance) -> Row:
    metric = metrics().get(name)
    beside = tuple(each for each in entry.covers if _recorded(each, run))
    # What records the entry records what it covers.
    gained = [name, *(each for each in entry.covers if each not in beside)]
    return Row(
        name=name,
        rows=entry.rows,
        level=level,
        title=metric.title if metric else entry.computed,
        recorded=_recorded(name, run),
        beside=beside,
        rules=tuple(f"{rule.code} {rule.name}" for rule in rules_reading(gained)),
        causes=tuple(cause.name for cause in causes_reading(gained)),
        record=entry.record,
        not_applicable=why_not(run, entry.only_with),
    )


def _recorded(name: str, run: Run) -> bool:
    """Tell whether a metric has a value; an entry that no metric computes is looked up in the log itself."""
    metric = metrics().get(name)
    return bool(metric(run)) if metric else bool(run.scalar(name)) or name in run.texts
