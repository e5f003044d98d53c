"""SYS007: the training is started again and again."""

from collections.abc import Iterator

from ckaudit.metrics.observability import restart_rate
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("SYS007", severity="sev1", needs=[restart_rate], unit="restarts/day")
def restart_storm(rate: Series, *, sev2_starts: float = 4.0, sev1_starts: float = 10.0) -> Iterator[Hit | Skip]:
    """The training is started again and again.

    ## What it checks
    Starts within 24 hours (M64). Starts are sev2 from `sev2_starts` of them on, and sev1 from `sev1_starts` on. The largest OPT,
    on a thousand devices, was restarted about twice a day in its worst weeks.
    ## Why it matters
    Each start loses the steps since its checkpoint, and the same fault comes again: the scheduler hides it.
    ## False alarms
    Short jobs in a queue that takes turns are started often as planned: set `sev2_starts` to that.
    """
    stormy = rate.values >= sev1_starts
    for span in spans(rate, stormy):
        yield Hit.over(span, "sev1", "{value:.0f} restarts within a day", badness=rate.values, limit=sev1_starts)
    for span in spans(rate, (rate.values >= sev2_starts) & ~stormy):
        yield Hit.over(span, "sev2", "{value:.0f} restarts within a day", badness=rate.values, limit=sev2_starts)
