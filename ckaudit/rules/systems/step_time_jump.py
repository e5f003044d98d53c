"""SYS002: steps take longer from some step on."""

from bisect import bisect_right, insort
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.loss import val_loss
from ckaudit.metrics.reductions import windows
from ckaudit.metrics.speed import step_time, tokens_per_sec
from ckaudit.rules.rule import Hit, Skip, rule, true_stretches
from ckaudit.run.curve_shapes import Turn, lasting_rise
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Floats, Mask, Series, Steps

QUANTILES = 2000
MIN_LINES = 3
A_STEP = 0.5
"""Step time in seconds from which a training is expensive; shorter steps vary with other load on the machine."""

TIME_SLICE = 0.01
"""Seconds for which a scheduler lets another process run (Linux: 1 to 10 ms): a step that is longer by less says nothing."""

MAX_UNEVEN_SHARE, MIN_SLOWER_SHARE = 0.015, 0.03
"""A few lines tell enough where all steps up to one agree within the first share, and all later ones are longer by the second."""


@rule("SYS002", severity="sev2", needs=[step_time], wants=[tokens_per_sec, val_loss], unit="s")
def step_time_jump(
    time: Series,
    speed: Series | None,
    val: Series | None,
    *,
    window: int = 20,
    min_ratio: float = 1.25,
    at_once_ratio: float = 2.5,
    min_lost_seconds: float = 600.0,
    k: float = 6.0,
    lasting_windows: int = 5,
) -> Iterator[Hit | Skip]:
    """Steps take longer from some step on.

    ## What it checks
    The median step of each `window` points against the median of all windows before that were not slow, for `lasting_windows`
    windows in a row:

    - Steps are slower by `min_ratio` (the catalogue's drop of 20 % in tokens per second, M39) and by `k` robust deviations of the
      windows before, once that has cost `min_lost_seconds` seconds.
    - Or steps are slower by `at_once_ratio` at once (trainproof's STEP-CLIFF is of that kind), and by more than the 10 ms for
      which a scheduler may hold a process back.
    - In fewer windows, or where none stands out, the end is judged: steps of half a second or more last half as long again as the
      fastest before, or `min_ratio` as long at that cost, by five standard errors.
    - The end is also slow where steps last half as long again as in the first third, of which hardly one took as long as the
      shorter ones of the last third.
    - A line in which an evaluation may have taken the time, that of its step and the next, counts as the line before it where
      half of all lines are others.
    - Where all lines hold an evaluation, no cost counts.
    ## Why it matters
    A device throttles, a node is shared, or a cache is full: the same work costs more, and nothing else shows it.
    ## False alarms
    Some longer steps are right, or cheap:

    - Longer rows and larger batches rightly take longer: the speed in tokens must fall as well, where it was recorded.
    - A slow phase of a few minutes on a busy machine costs less than the search for its reason: one that passes, and has cost
      less than `min_lost_seconds` seconds, is a note.
    - A few lines of a log are noted where all steps up to one agree within 1.5 %, and all from there on take longer by 3 %.
    - One slow device in a large job costs no more than that (BLOOM's took 105 s for a step, and 111 s with one).
    """
    if val is not None and np.isin(time.steps, val.steps).all():
        min_lost_seconds = np.inf  # it is unknown how much of each time was an evaluation's
    time = _without_evaluations(time, val)
    steps, values = windows(time, window)
    if len(steps) < lasting_windows + 3:
        if (hit := _ends_slower(time, speed, min_ratio, min_lost_seconds) or _in_few_lines(time)) is not None:
            yield hit
            return
        if time.points >= MIN_LINES:
            return
        yield Skip("too_few_points", f"{time.points} points of step_time; {MIN_LINES} are needed")
        return
    middle = np.median(values, axis=1)
    base, noise = _past(middle, min_ratio)
    excess = middle - base
    # Where a window does not stand out, no deviation is known.
    slow = (excess > (min_ratio - 1) * base) & (excess > k * noise)
    slow &= _fewer_tokens(speed, steps, min_ratio)
    seen = False
    for start, end in true_stretches(slow, min_points=lasting_windows):
        longer = median(middle[start:end]) - base[start]
        is_at_once = longer > max((at_once_ratio - 1) * base[start], TIME_SLICE)
        cost = float(((middle[start:end] - base[start]) * (steps[start:end, -1] - steps[start:end, 0] + 1)).sum())
        if is_at_once or cost >= min_lost_seconds:
            seen = True
            hit = _slower(steps, values, middle, base, start, end)
            has_passed = cost < min_lost_seconds and end < len(middle)
            yield replace(hit, severity="note", message=f"{hit.message}, and not to the end") if has_passed else hit
    if not seen and (hit := _ends_slower(time, speed, min_ratio, min_lost_seconds)) is not None:
        yield hit


def _without_evaluations(time: Series, val: Series | None) -> Series:
    """Return the times of steps, in which lines of evaluations have the time of the line before them.

    So have the lines after evaluations, if at least half of all lines are others. Where evaluations alone are more than half,
    the times are returned as they are.
    """
    if val is None:
        return time
    own: Mask = np.isin(time.steps, val.steps[val.finite.any(axis=1)])
    following = np.append(False, own[:-1])
    for during in (own | following, own):
        if 2 * during.sum() <= len(during) > 0:
            rows = np.arange(len(during))
            before = np.maximum.accumulate(np.where(during, int(np.argmin(during)), rows))
            return replace(time, values=time.values[before], recorded=time.recorded[before])
    return time


def _slower(steps: Steps, values: Floats, middle: Floats, base: Floats, start: int, end: int) -> Hit:
    """Return the hit of a run of slow windows; it begins at the first step of the first window that took longer."""
    worst = start + int(np.argmax(middle[start:end]))
    first = int(np.argmax(values[start] > (base[start] + middle[start]) / 2))
    return Hit(
        severity="sev2",
        where="steps",
        first=int(steps[start, first]),
        last=int(steps[end - 1, -1]),
        worst=int(steps[worst, 0]),
        value=median(middle[start:end]),
        limit=float(base[start]),
        points=(end - start) * values.shape[1],
        message="a step takes {value:.3g} s from step {first} on, {limit:.3g} s before",
    )


def _ends_slower(time: Series, speed: Series | None, mild: float, lost: float) -> Hit | None:
    """Return the hit of a short log whose steps become slower for good; None where tokens per second stay the same."""
    rows = np.flatnonzero(time.finite[:, 0])
    values = time.values[rows, 0]
    third = len(values) // 3
    if len(values) < MIN_LINES or (speed is not None and _goes_on(speed)):
        return None
    turn = lasting_rise(values, share=mild - 1, share_alone=0.5)
    if turn is not None and turn.first < 2:
        return None  # a single line is no level, and the first one times the start of a run
    gaps = np.diff(time.steps[rows])
    if len(gaps) > 2 and not 0.5 < median(gaps[-third:]) / median(gaps[:third]) < 2:
        return None  # lines at other distances hold other evaluations
    first, last = values[:third], values[-third:]
    if turn is None and (median(last) < 1.5 * median(first) or np.quantile(last, 0.25) <= np.quantile(first, 0.75)):
        return None
    turn = turn or Turn(third, len(values) - 1, median(first), median(last))
    cost = (turn.after - turn.before) * float(time.steps[rows[-1]] - time.steps[rows[turn.first]])
    if cost < lost and (turn.before < A_STEP or turn.after < 1.5 * turn.before):
        return None
    return Hit.at(
        time.steps[rows[turn.first :]],
        "sev2",
        "a step takes {value:.3g} s from step {first} on, {limit:.3g} s before",
        where="steps",
        value=turn.after,
        limit=turn.before,
        worst=int(np.argmax(values[turn.first :])),
    )


def _goes_on(speed: Series) -> bool:
    """Tell whether tokens per second are as high at the end as at the beginning."""
    values = speed.finite_points()[1]
    third = len(values) // 3
    return third > 0 and median(values[-third:]) > 0.8 * median(values[:third])


def _in_few_lines(time: Series, *, min_lines: int = 2) -> Hit | None:
    """Return a note on the last steps of a short log that take longer, where all steps before them took the same time."""
    steps, values = time.finite_points()
    for start in range(min_lines, len(values) - min_lines + 1):
        before, later = values[:start], values[start:]
        if before.max() <= (1 + MAX_UNEVEN_SHARE) * before.min() and later.min() > (1 + MIN_SLOWER_SHARE) * before.max():
            usual = median(before)
            first = int(np.argmax(values > (1 + MAX_UNEVEN_SHARE / 3) * usual))
            return Hit(
                severity="note",
                where="steps",
                first=int(steps[first]),
                last=int(steps[-1]),
                worst=int(steps[int(np.argmax(values))]),
                value=median(later),
                limit=usual,
                points=len(later),
                message="a step takes {value:.4g} s from step {first} on, {limit:.4g} s before",
            )
    return None


def _past(middle: Floats, mild: float) -> tuple[Floats, Floats]:
    """Return the median and the robust deviation of the windows before each that were not slow, shape (W,).

    The deviation is taken only where a window stands out; of very many windows evenly spaced quantiles stand for all.
    """
    base, noise = np.full(len(middle), np.nan), np.full(len(middle), np.nan)
    halves = _running_medians(middle)
    before: list[float] = []
    for row, value in enumerate(middle.tolist()):
        if row >= 3:
            count = bisect_right(before, 1.25 * halves[max(3, row // 2)]) if row > 6 else row
            base[row] = _middle(before, count)
            if value - base[row] > (mild - 1) * base[row]:
                quantiles = np.array(before[: count : -(-count // QUANTILES)])
                noise[row] = max(MAD_TO_SIGMA * median(np.abs(quantiles - base[row])), 0.01 * base[row])
        insort(before, value)
    return base, noise


def _running_medians(values: Floats) -> list[float]:
    """Return the median of the first n values for each n, shape (N + 1,); of none it is NaN."""
    ordered: list[float] = []
    medians = [float("nan")]
    for value in values.tolist():
        insort(ordered, value)
        medians.append(_middle(ordered, len(ordered)))
    return medians


def _middle(ordered: list[float], count: int) -> float:
    """Return the median of the `count` smallest values."""
    if not count:
        return float("nan")
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def _fewer_tokens(speed: Series | None, steps: Steps, mild: float) -> Mask:
    """Return in which windows tokens per second fell too; true where no tokens were counted."""
    fewer = np.ones(len(steps), bool)
    if speed is None or not speed.finite.any():
        return fewer
    at, values = speed.finite_points()
    starts, ends = np.searchsorted(at, steps[:, 0], side="left"), np.searchsorted(at, steps[:, -1], side="right")
    middle = np.full(len(steps), np.nan)
    for count in set((ends - starts).tolist()) - {0}:
        rows = np.flatnonzero(ends - starts == count)
        middle[rows] = np.median(values[starts[rows, None] + np.arange(count)], axis=1)
    counted = np.cumsum(np.isfinite(middle))
    halves = _running_medians(middle[np.isfinite(middle)])
    for index in range(3, len(middle)):
        if counted[index - 1] and np.isfinite(middle[index]):
            fewer[index] = middle[index] < halves[min(max(3, index // 2), int(counted[index - 1]))] / mild
    return fewer
