"""SYS009: numbers arrive minutes after their step."""

from collections.abc import Iterator

from ckaudit.metrics.observability import metrics_ingest_lag
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("SYS009", severity="sev2", needs=[metrics_ingest_lag], unit="s")
def late_metrics(lag: Series, *, max_seconds: float = 120.0, min_points: int = 2) -> Iterator[Hit | Skip]:
    """Numbers arrive minutes after their step.

    ## What it checks
    The time from a step to the line that tells of it (M66: more than minutes, here two), above `max_seconds` seconds at
    `min_points` points in a row.
    ## Why it matters
    Decisions on the run are then based on what was true some minutes ago.
    ## False alarms
    A single slow write is not reported.
    """
    for span in spans(lag, lag.values > max_seconds, min_points=min_points):
        yield Hit.over(span, "sev2", "numbers arrive {value:.0f} s after their step", badness=lag.values, limit=max_seconds)
