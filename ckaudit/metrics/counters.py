"""Counters and clocks: increments between log lines, with sessions kept apart."""

from collections.abc import Sequence

import numpy as np
from msgspec import UNSET

from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps


def shared_points(counters: Sequence[Series]) -> tuple[Steps, Floats]:
    """Return the steps at which all counters are finite, shape (T,), and their first columns there, shape (T, K)."""
    first = counters[0]
    if not all(counter.labels for counter in counters):
        return first.steps[:0], np.empty((0, len(counters)))
    if all(np.array_equal(counter.steps, first.steps) for counter in counters[1:]):
        known = np.logical_and.reduce([counter.finite[:, 0] for counter in counters])
        return first.steps[known], np.stack([counter.values[known, 0] for counter in counters], axis=1)
    steps = first.steps[first.finite[:, 0]]
    for counter in counters[1:]:
        steps = np.intersect1d(steps, counter.steps[counter.finite[:, 0]], assume_unique=True)
    columns = [counter.values[np.searchsorted(counter.steps, steps), 0] for counter in counters]
    return steps, np.stack(columns, axis=1)


def increments(values: Floats) -> Floats:
    """Return the difference of each row to the one before, NaN in the first row; shape as given."""
    return np.diff(values, axis=0, prepend=np.full_like(values[:1], np.nan))


def session_starts(run: Run) -> Floats:
    """Return the start of each session in run.json, in Unix seconds, sorted."""
    sessions = run.manifest.sessions if run.manifest else UNSET
    return np.array(sorted(session.start for session in sessions or () if isinstance(session.start, (int, float))), float)


def is_restart(run: Run, times: Floats) -> Mask:
    """Tell which of the lines written at `times`, shape (T,), are the first of a session in run.json."""
    begun = np.searchsorted(session_starts(run), times, side="right")
    return np.asarray(np.diff(begun, prepend=begun[:1]) > 0)
