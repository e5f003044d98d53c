"""How much of a curve's fall is made at first, and how steep its steepest part is, at any steps."""

from typing import NamedTuple

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.rises import PRIOR_NOISE
from ckaudit.run.robust import ENOUGH_FOR_NOISE, MEDIAN_COST, difference_noise, log_noise
from ckaudit.run.series import Floats, Steps


class EarlyFall(NamedTuple):
    """The loss at first, soon after and at the end, the standard error of the early fall, and the share of a straight line."""

    start: float
    soon: float
    end: float
    error: float
    line: float


def early_fall(steps: Steps, values: Floats, early: float) -> EarlyFall:
    """Return what the loss does in the first share of its steps: by medians, of too few points by the line between two.

    Args:
        steps: Shape (N,).
        values: Finite, shape (N,), five at least.
        early: The share.
    """
    cut = steps[0] + early * (steps[-1] - steps[0])
    inside = int(np.searchsorted(steps, cut, side="right"))
    few = max(3, round(inside / 3))
    share = log_noise(values) if len(values) >= ENOUGH_FOR_NOISE else PRIOR_NOISE
    noise = share * abs(float(values[0])) if share else difference_noise(values)
    if inside < 3:
        soon, line = float(np.interp(cut, steps, values)), (cut - steps[0]) / (steps[-2] - steps[0])
        return EarlyFall(float(values[0]), soon, median(values[-3:]), noise * np.sqrt(2), line)
    around = slice(max(0, inside - 1 - few // 2), inside + few // 2)
    start, soon, end = (median(values[part]) for part in (slice(3), around, slice(-few, None)))
    first, then, last = (median(steps[part]) for part in (slice(3), around, slice(-few, None)))
    return EarlyFall(start, soon, end, MEDIAN_COST * noise * np.sqrt(1 / 3 + 1 / few), (then - first) / (last - first))


def steepest_tenth(steps: Steps, values: Floats) -> float:
    """Return ten times the largest fall within a tenth of the steps, by the median point of each."""
    tenths = np.minimum(10 * (steps - steps[0]) // (steps[-1] - steps[0]), 9)
    parts = [tenths == number for number in np.unique(tenths)]
    stages, places = (np.array([median(each[part]) for part in parts]) for each in (values, steps))
    return float((-np.diff(stages) / np.diff(places)).max() * (places[-1] - places[0]))
