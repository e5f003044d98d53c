"""RANK001: one rank is slower than the others."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.ranks import rank_step_time, straggler_ratio
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series, Steps
from ckaudit.run.spans import spans


@rule("RANK001", severity="sev2", needs=[straggler_ratio], wants=[rank_step_time], unit="1", memory=3)
def straggler(ratio: Series, times: Series | None, *, limit: float = 1.25, min_points: int = 3) -> Iterator[Hit | Skip]:
    """One rank is slower than the others.

    ## What it checks
    The slowest rank's own step over the median rank's (M47), without waiting for others, above `limit` at `min_points` points
    in a row. In the lab's dev split two equal ranks reach 1.2 once; a rank that is three times as slow gives 1.4 and more,
    for of two the median is the mean.
    ## Why it matters
    All ranks wait for the slowest one: its lost time is multiplied by their number.
    ## False alarms
    A single slow checkpoint is none.
    """
    yield from too_few(ratio, min_points)
    for span in spans(ratio, ratio.values > limit, min_points=min_points):
        hit = Hit.over(
            span, "sev2", "{where} takes up to {value:.2f} times as long as the median rank", badness=ratio.values, limit=limit
        )
        yield replace(hit, where=_slowest(times, span.steps) or "the slowest rank")


def _slowest(times: Series | None, steps: Steps) -> str | None:
    """Return the rank that was the slowest most often."""
    rows = np.isin(times.steps, steps) if times is not None else np.zeros(0, bool)
    if times is None or not rows.any():
        return None
    worst = np.where(times.finite[rows], times.values[rows], -np.inf).argmax(axis=1)
    return times.labels[int(np.bincount(worst).argmax())]
