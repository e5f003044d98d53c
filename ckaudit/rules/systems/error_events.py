"""SYS008: errors are logged, or come again."""

from collections.abc import Iterator

from ckaudit.metrics.observability import error_event_rate
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("SYS008", severity="sev2", needs=[error_event_rate], unit="events/day")
def error_events(rate: Series, *, sev2_errors: float = 3.0) -> Iterator[Hit | Skip]:
    """Errors are logged, or come again.

    ## What it checks
    Errors within 24 hours, by kind where the log tells (M65: out of memory, collectives, input and output): from `sev2_errors`
    on it is sev2, a single one is noted.
    ## Why it matters
    What is caught and tried again today stops the run tomorrow.
    ## False alarms
    One broken transfer in a day is ordinary on a large cluster.
    """
    often = rate.values >= sev2_errors
    for span in spans(rate, often):
        yield Hit.over(span, "sev2", "{where}: {value:.0f} errors within a day", badness=rate.values, limit=sev2_errors)
    for span in spans(rate, (rate.values > 0) & ~often):
        yield Hit.over(span, "note", "{where}: {value:.0f} errors within a day", badness=rate.values, limit=sev2_errors)
