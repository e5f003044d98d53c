"""CLM001: a logged number is not what the run's own raw numbers give."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.contradictions import claimed_value, nearest_allowed_value
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans

SMALLEST = 1e-30
"""Below this a sum of squares of float32 numbers underflows to zero (the smallest is 1.4e-45): no claim is judged there."""


@rule("CLM001", severity="sev2", needs=[claimed_value, nearest_allowed_value], unit="1")
def contradicted_claim(claimed: Series, allowed: Series, *, max_relative_error: float = 1e-6) -> Iterator[Hit | Skip]:
    """A logged number is not what the run's own raw numbers give.

    ## What it checks
    Perplexities, averages, gaps, rates, counts, speeds and norms that the trainer logged, against those recomputed from its
    losses, counters, clock and tensors at the same steps. A number is contradicted where it lies outside the range that rounding
    and open conventions allow, by more than `max_relative_error` of itself (the error of a float32).
    ## Why it matters
    One of the two numbers is wrong, and a comparison of runs by it ends in a wrong decision.
    ## False alarms
    Which average of the loss is meant, whether pads count and what a timer leaves out are open, and the range holds all of it. A
    speed of one device, or a rate as a fraction, is contradicted rightly: the catalogue counts all devices, and rates in percent.
    """
    off = np.abs(claimed.values - allowed.values)
    badness = off / np.maximum(np.abs(claimed.values) + np.abs(allowed.values), SMALLEST)
    for span in spans(claimed, badness > max_relative_error, among=claimed.recorded):
        step, _ = span.worst(badness)
        row = int(np.searchsorted(claimed.steps, step))
        value, limit = float(claimed.values[row, span.column]), float(allowed.values[row, span.column])
        bound = "at most" if value > limit else "at least"
        yield Hit(
            severity="sev2",
            where=span.label,
            first=span.first,
            last=span.last,
            worst=step,
            points=span.points,
            value=value,
            limit=limit,
            message="{where} was logged as {value:.4g}, but what it is made of gives " + bound + " {limit:.4g}",
        )
