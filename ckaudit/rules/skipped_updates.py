"""AMP002: many updates are skipped."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.progress import steps_seen
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Floats, Series, Steps, single
from ckaudit.run.spans import spans


@rule("AMP002", severity="sev1", needs=[steps_seen], unit="1", memory=100)
def skipped_updates(
    seen: Series, *, window: int = 50, limit: float = 0.1, warmup: int = 100, min_points: int = 3
) -> Iterator[Hit | Skip]:
    """Many updates are skipped.

    ## What it checks
    How many of the last `window` attempts were no update, by the count of applied ones (M15, M02: steps go on while updates
    stand still). More than `limit` of them at `min_points` points in a row is sev1; in the first `warmup` steps only where it
    is all of them.
    ## Why it matters
    The budget is paid and nothing is learnt: a scaler that gives up, a condition around the optimizer's step, a guard that
    never lets go.
    ## False alarms
    A loss scaler skips the first few updates. Where gradients are accumulated, a step of the log is still one attempt.
    """
    known = np.flatnonzero(seen.finite[:, 0]) if seen.labels else np.empty(0, np.int64)
    steps, counts = seen.steps[known], seen.values[known, 0]
    if len(steps) < min_points + 1 or steps[-1] - steps[0] < window:
        yield Skip("too_few_points", f"less than {window} steps of steps_seen")
        return
    starts = np.searchsorted(steps, steps - window, side="left")
    tried = steps - steps[starts]
    with np.errstate(all="ignore"):
        share = np.where(tried >= window / 2, 1.0 - (counts - counts[starts]) / tried, 0.0)
    share = np.where(counts < counts[starts], 0.0, share)  # the count began anew
    series = single("updates", "1", steps, share)
    many = (share > np.where(steps > warmup, limit, 0.95)) & (tried >= window / 2)
    for span in spans(series, many[:, None], min_points=min_points):
        first = _first_lost(steps, counts, int(starts[span.rows[0]]), int(span.rows[0]))
        worst = span.worst(series.values)
        yield Hit(
            severity="sev1", where="updates", first=first, last=span.last, worst=worst[0], value=worst[1], limit=limit,
            points=span.points, message="{value:.0%} of the updates are not applied in the " + f"{window} steps up to {{worst}}",
        )  # fmt: skip


def _first_lost(steps: Steps, counts: Floats, start: int, end: int) -> int:
    """Return the first step in a window whose update is missing."""
    gained, passed = np.diff(counts[start : end + 1]), np.diff(steps[start : end + 1])
    lost = np.flatnonzero(gained < passed)
    return int(steps[start + 1 + int(lost[0])]) if len(lost) else int(steps[end])
