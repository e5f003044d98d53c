"""SYS004: accelerators are idle for most of the time."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.hardware import gpu_util
from ckaudit.metrics.speed import seconds_between, step_time
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import Span, spans


@rule("SYS004", severity="sev2", needs=[gpu_util], wants=[step_time], unit="%", memory=5)
def low_utilization(
    util: Series, time: Series | None, *, min_percent: float = 50.0, min_points: int = 5, min_lost_seconds: float = 600.0
) -> Iterator[Hit | Skip]:
    """Accelerators are idle for most of the time.

    ## What it checks
    The share of time in which a device runs any kernel at all (M42), below `min_percent` percent at `min_points` points in a row,
    or at fewer in a short log (a third of it, but three at least). A low share is a note where steps are timed and the device has
    idled for less than `min_lost_seconds` seconds.
    ## Why it matters
    Even one small kernel at a time counts as busy: less than half means that the device waits, for data or for other devices.
    ## False alarms
    Points during an evaluation or a checkpoint are few. A tutorial's model never fills a device, and a trial of a few minutes
    costs less than the search for the reason.
    """
    needed = min(min_points, max(3, util.points // 3))
    if util.points < needed:
        yield from too_few(util, needed)
        return
    for span in spans(util, util.values < min_percent, min_points=needed):
        lost = _idle_seconds(span, util, time)
        yield Hit.over(
            span,
            "note" if lost is not None and lost < min_lost_seconds else "sev2",
            "{where} is busy for {value:.0f} % of the time only",
            badness=-util.values,
            value=util.values,
            limit=min_percent,
        )


def _idle_seconds(span: Span, util: Series, time: Series | None) -> float | None:
    """Return the idle seconds of the device from the first to the last point of a span; None where steps have no times."""
    seconds = seconds_between(time, span.first, span.last)
    busy = float(np.mean(util.values[span.rows, util.places[span.label]]))
    return None if seconds is None else seconds * (1 - busy / 100)
