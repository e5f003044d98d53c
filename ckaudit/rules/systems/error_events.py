"""SYS008: errors are logged, or come again."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.observability import error_event_rate
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.run_facts import has_taken_all_steps
from ckaudit.run.series import Mask, Series
from ckaudit.run.spans import spans

ENDS = {"oom": "out of memory", "nccl": "the collectives failed", "cuda": "the accelerator failed"}
"""Kinds of errors after which a process takes no further step, unless it is started again."""


@rule("SYS008", severity="sev2", needs=[error_event_rate], wants=[FACTS], unit="events/day")
def error_events(rate: Series, facts: Manifest | None, *, sev2_errors: float = 3.0) -> Iterator[Hit | Skip]:
    """Errors are logged, or come again.

    ## What it checks
    Errors within 24 hours, by kind where the log tells it (M65: out of memory, collectives, input and output). Errors are sev2
    from `sev2_errors` of them on, and a single one is noted. An error of memory, collectives or the accelerator at the last step,
    short of the planned steps, is sev2.
    ## Why it matters
    An error that is caught and tried again today stops the run tomorrow.
    ## False alarms
    One broken transfer in a day is ordinary on a large cluster.
    """
    often = rate.values >= sev2_errors
    ended = _ends_with_an_error(rate) & ~often & (not has_taken_all_steps(rate.steps, facts))
    for span in spans(rate, ended):
        yield Hit.over(span, "sev2", ENDS[span.label] + " at step {first}, and no step follows", badness=rate.values)
    for span in spans(rate, often):
        yield Hit.over(span, "sev2", "{where}: {value:.0f} errors within a day", badness=rate.values, limit=sev2_errors)
    for span in spans(rate, (rate.values > 0) & ~often & ~ended):
        yield Hit.over(span, "note", "{where}: {value:.0f} errors within a day", badness=rate.values, limit=sev2_errors)


def _ends_with_an_error(rate: Series) -> Mask:
    """Return the cells of the last step that hold a new error of a kind after which no step follows, shape (T, K)."""
    ended = np.zeros(rate.values.shape, bool)
    for column, label in enumerate(rate.labels):
        rows = np.flatnonzero(rate.finite_in(column))[-2:]
        if label in ENDS and len(rows) and rate.values[rows[-1], column] > (rate.values[rows[0], column] if len(rows) > 1 else 0):
            ended[rows[-1], column] = True
    return ended
