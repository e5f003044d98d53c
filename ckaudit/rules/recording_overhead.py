"""COST001: recording takes a large part of the training's time."""

from collections.abc import Iterator

from ckaudit.metrics.overhead import recording_share
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("COST001", severity="sev2", needs=[recording_share], unit="1", memory=3)
def recording_overhead(share: Series, *, highest: float = 0.3, min_points: int = 3) -> Iterator[Hit | Skip]:
    """Recording takes a large part of the training's time.

    ## What it checks
    The share of the time that the recorder takes against `highest` (the dashboard's overhead budget of 30 %), at
    `min_points` checkpoints in a row.
    ## Why it matters
    Above it something runs in the innermost loop that does not belong there, and the budget pays for statistics.
    ## False alarms
    The first checkpoints of a tiny model stand close together, and each costs as much as some of its steps.
    """
    yield from too_few(share, min_points)
    for span in spans(share, share.values > highest, min_points=min_points):
        yield Hit.over(
            span, "sev2", "recording takes {value:.0%} of the time; above {limit:.0%} it is recorded too often or too slowly",
            badness=share.values, limit=highest,
        )  # fmt: skip
