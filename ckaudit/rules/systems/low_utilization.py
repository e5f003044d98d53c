"""SYS004: accelerators are idle for most of the time."""

from collections.abc import Iterator

from ckaudit.metrics.hardware import gpu_util
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("SYS004", severity="sev2", needs=[gpu_util], unit="%", memory=5)
def low_utilization(util: Series, *, min_percent: float = 50.0, min_points: int = 5) -> Iterator[Hit | Skip]:
    """Accelerators are idle for most of the time.

    ## What it checks
    The share of time in which a device runs any kernel at all (M42), below `min_percent` percent at `min_points` points in a
    row, or three of few.
    ## Why it matters
    Even one small kernel at a time counts as busy: less than half means that the device waits, for data or for others.
    ## False alarms
    Points during an evaluation or a checkpoint are few.
    """
    needed = min(min_points, max(3, util.points // 3))
    if util.points < needed:
        yield from too_few(util, needed)
        return
    for span in spans(util, util.values < min_percent, min_points=needed):
        yield Hit.over(
            span,
            "sev2",
            "{where} is busy for {value:.0f} % of the time only",
            badness=-util.values,
            value=util.values,
            limit=min_percent,
        )
