"""RANK003: ranks give no sign of life."""

from collections.abc import Iterator

from ckaudit.metrics.observability import heartbeat_missing
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("RANK003", severity="sev1", needs=[heartbeat_missing], unit="ranks", memory=1)
def missing_heartbeat(missing: Series, *, max_missing: float = 0.0, min_points: int = 1) -> Iterator[Hit | Skip]:
    """Ranks give no sign of life.

    ## What it checks
    How many ranks wrote no file, or are far behind in time (M67: any burst). More than `max_missing` ranks at `min_points` points
    in a row are too many.
    ## Why it matters
    A rank that is gone takes all others with it at the next exchange, or trains alone without anybody knowing.
    ## False alarms
    The world size of run.json must be right after a resume with fewer ranks.
    """
    for span in spans(missing, missing.values > max_missing, min_points=min_points):
        yield Hit.over(span, "sev1", "{value:.0f} ranks give no sign of life", badness=missing.values, limit=max_missing)
