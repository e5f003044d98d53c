"""COST001: recording takes a large part of the training's time."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.overhead import recording_seconds, recording_share
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.series import Mask, Series, at
from ckaudit.run.spans import spans


@rule("COST001", severity="sev2", needs=[recording_share, recording_seconds], unit="1")
def recording_overhead(
    share: Series,
    seconds: Series,
    *,
    max_time_share: float = 0.3,
    min_seconds: float = 60.0,
    min_points: int = 3,
    min_time_share: float = 0.1,
    min_checkpoints: int = 20,
    max_steps_apart: float = 5.0,
) -> Iterator[Hit | Skip]:
    """Recording takes a large part of the training's time.

    ## What it checks
    How much of the training's time the recorder takes:

    - The recorder's share of the time is above `max_time_share` (the dashboard's overhead budget of 30 %) at `min_points`
      checkpoints in a row, once it has taken `min_seconds` seconds in all: less is nobody's budget.
    - Checkpoints come too often: `min_checkpoints` of them are at most `max_steps_apart` steps apart on average, and their median
      share is above `min_time_share`. The closest that a default cadence has is 10 steps.
    - Checkpoints that come too often are a note where recording took less than `min_seconds` seconds by then.
    ## Why it matters
    Above the budget something runs in the innermost loop that does not belong there, and the training pays for statistics.
    ## False alarms
    A tiny model's first checkpoints stand close together, and each costs as much as some of its steps: that is over before
    recording has taken a minute. Events ask for checkpoints too, but not for twenty in a hundred steps.
    """
    yield from too_few(share, min_points)
    felt = np.nan_to_num(at(seconds, share.steps).values, nan=0.0) >= min_seconds
    high = (share.values > max_time_share) & felt
    for span in spans(share, high, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "recording takes {value:.0%} of the time; above {limit:.0%} it is recorded too often or too slowly",
            badness=share.values,
            limit=max_time_share,
        )
    for span in spans(share, _too_often(share, min_time_share, min_checkpoints, max_steps_apart)[:, None] & ~high):
        middle = median(share.values[span.rows, 0])
        yield Hit(
            severity="sev2" if felt[span.rows, 0].any() else "note",
            where=span.label,
            first=span.first,
            last=span.last,
            worst=span.first,
            points=span.points,
            value=middle,
            limit=min_time_share,
            message="recording takes {value:.0%} of the time, for there is a checkpoint every "
            f"{(span.last - span.first) / max(span.points - 1, 1):.1f} steps",
        )


def _too_often(share: Series, noticeable: float, min_checkpoints: int, apart: float) -> Mask:
    """Return the checkpoints that are among `min_checkpoints` close ones which take a noticeable share of the time."""
    known = np.flatnonzero(share.finite[:, 0])
    often = np.zeros(len(share.steps), bool)
    if len(known) < min_checkpoints:
        return often
    steps, values = (
        np.lib.stride_tricks.sliding_window_view(column[known], min_checkpoints) for column in (share.steps, share.values[:, 0])
    )
    close = (steps[:, -1] - steps[:, 0] <= apart * (min_checkpoints - 1)) & (np.median(values, axis=1) > noticeable)
    for start in np.flatnonzero(close):
        often[known[start : start + min_checkpoints]] = True
    return often
