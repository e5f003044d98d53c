"""COST001: recording takes a large part of the training's time."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.overhead import recording_seconds, recording_share
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series, at
from ckaudit.run.spans import spans


@rule("COST001", severity="sev2", needs=[recording_share, recording_seconds], unit="1")
def recording_overhead(
    share: Series, seconds: Series, *, highest: float = 0.3, least: float = 60.0, min_points: int = 3
) -> Iterator[Hit | Skip]:
    """Recording takes a large part of the training's time.

    ## What it checks
    The share of the time that the recorder takes against `highest` (the dashboard's overhead budget of 30 %), at
    `min_points` checkpoints in a row, once it has taken `least` seconds: less is nobody's budget.
    ## Why it matters
    Above it something runs in the innermost loop that does not belong there, and the budget pays for statistics.
    ## False alarms
    A tiny model's first checkpoints stand close together, and each costs as much as some of its steps: that is over
    before it has taken a minute.
    """
    yield from too_few(share, min_points)
    felt = np.nan_to_num(at(seconds, share.steps).values, nan=0.0) >= least
    for span in spans(share, (share.values > highest) & felt, min_points=min_points):
        yield Hit.over(
            span, "sev2", "recording takes {value:.0%} of the time; above {limit:.0%} it is recorded too often or too slowly",
            badness=share.values, limit=highest,
        )  # fmt: skip
