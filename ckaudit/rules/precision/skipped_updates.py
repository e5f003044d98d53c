"""AMP002: many updates are skipped."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.progress import steps_seen
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.falls import ends_lower
from ckaudit.run.series import Floats, Series, Steps, single
from ckaudit.run.spans import spans


@rule(
    "AMP002", severity="sev1", needs=[], wants=[steps_seen, val_loss, train_loss_raw, learning_rate, grad_global_norm], unit="1"
)
def skipped_updates(
    seen: Series | None,
    val: Series | None,
    loss: Series | None,
    rate: Series | None,
    norm: Series | None,
    *,
    window: int = 50,
    max_skipped_share: float = 0.1,
    warmup: int = 100,
    min_points: int = 3,
    min_digits: int = 7,
    low: float = 0.01,
) -> Iterator[Hit | Skip]:
    """Many updates are skipped.

    ## What it checks
    How many of the last `window` attempts were no update, by the count of applied updates (M15, M02: steps go on while updates
    stand still):

    - More than `max_skipped_share` of the attempts made no update, at `min_points` points in a row: sev1.
    - In the first `warmup` steps, skipped updates are reported only where they are all of the attempts (95 % and more).
    - Where nothing counts updates: at least `min_points` evaluations in a row give the same loss to the last digit, though
      training went on between them. Only the same weights do that.
    - Evaluations are compared where their loss has `min_digits` digits or more.
    ## Why it matters
    The budget is paid and nothing is learnt. The cause may be a scaler that gives up, a condition around the optimizer's step, or
    a guard that never lets go.
    ## False alarms
    Some attempts and evaluations prove nothing:

    - A loss scaler skips the first few updates in search of its scale: steps of the warm-up whose gradient is not finite do not
      count as skipped.
    - Where gradients are accumulated, a step of the log is still one attempt.
    - Equal evaluations say nothing of updates where the learning rate is below `low` of its peak, where a logger repeats the last
      evaluation beside every step, or where it writes few digits.
    - Where the training loss falls meanwhile, it is the evaluation that stands still, and not the weights.
    """
    if seen is None:
        yield from _same_weights(val, loss, rate, min_points, min_digits, low)
        return
    known = np.flatnonzero(seen.finite[:, 0]) if seen.labels else np.empty(0, np.int64)
    steps, counts = seen.steps[known], seen.values[known, 0]
    counts = counts + _overflows(norm, steps, until=warmup)
    usual = _updates_per_step(steps, counts)
    if len(steps) < min_points + 1 or (steps[-1] - steps[0]) * usual < window:
        yield Skip("too_few_points", f"less than {window} steps of steps_seen")
        return
    starts = np.searchsorted(steps, steps - window / usual, side="left")
    starts = np.minimum(starts, np.maximum(np.arange(len(steps)) - 1, 0))  # lines further apart than a window
    tried = (steps - steps[starts]) * usual
    with np.errstate(all="ignore"):
        share = np.where(tried >= window / 2, 1.0 - (counts - counts[starts]) / tried, 0.0)
    share = np.where(counts < counts[starts], 0.0, share)  # the count restarted
    series = single("updates", "1", steps, share)
    settled = np.arange(len(steps)) >= min(int((steps <= warmup).sum()), len(steps) // 3)
    is_high = (share > np.where(settled, max_skipped_share, 0.95)) & (tried >= window / 2)
    for span in spans(series, is_high[:, None], min_points=min_points):
        first = _first_lost(steps, counts, int(starts[span.rows[0]]), int(span.rows[0]))
        worst = span.worst(series.values)
        yield Hit(
            severity="sev1",
            where="updates",
            first=first,
            last=span.last,
            worst=worst[0],
            value=worst[1],
            limit=max_skipped_share,
            points=span.points,
            message="{value:.0%} of the updates are not applied in the " + f"{window} steps up to {{worst}}",
        )


def _overflows(norm: Series | None, steps: Steps, *, until: int) -> Floats:
    """Return how many gradients up to each step, and up to `until`, were not finite, shape (T,)."""
    if norm is None or not norm.labels:
        return np.zeros(len(steps))
    bad = norm.recorded[:, 0] & ~norm.finite[:, 0] & (norm.steps <= until)
    return np.searchsorted(norm.steps[bad], steps, side="right").astype(float)


def _updates_per_step(steps: Steps, counts: Floats) -> float:
    """Return how many updates one step of the log stands for, 1 at least: some logs count lines or thousands of updates."""
    third = max(1, len(steps) // 3)
    passed = float(steps[third] - steps[0]) if len(steps) > third else 0.0
    return max(1.0, float(counts[third] - counts[0]) / passed) if passed else 1.0


def _first_lost(steps: Steps, counts: Floats, start: int, end: int) -> int:
    """Return the first step in a window whose update is missing."""
    gained, passed = np.diff(counts[start : end + 1]), np.diff(steps[start : end + 1])
    lost = np.flatnonzero(gained < passed)
    return int(steps[start + 1 + int(lost[0])]) if len(lost) else int(steps[end])


def _same_weights(
    val: Series | None, loss: Series | None, rate: Series | None, min_points: int, digits: int, low: float
) -> Iterator[Hit | Skip]:
    """Yield the stretches over which the held-out loss did not change in its last digit."""
    if val is None or loss is None:
        yield Skip("not_recorded", "needs steps_seen, or val_loss and train_loss_raw")
        return
    steps, values = val.finite_points()
    changes = np.flatnonzero(np.diff(values) != 0) + 1
    for rows in np.split(np.arange(len(steps)), changes):
        if len(rows) < min_points or len(repr(float(abs(values[rows[0]]))).replace(".", "").lstrip("0")) < digits:
            continue
        first, last = int(steps[rows[0]]), int(steps[rows[-1]])
        losses = loss.values[(loss.steps > first) & (loss.steps <= last) & loss.finite[:, 0], 0]
        if len(losses) < 2 * len(rows) or not np.ptp(losses) or not _is_up(rate, first, last, low):
            continue
        if ends_lower(losses, min_fall=0.05):
            continue  # weights that learn have changed: it is the evaluation that stands still
        yield Hit(
            severity="sev1",
            where="updates",
            first=first + 1,
            last=last,
            worst=last,
            value=float(values[rows[0]]),
            points=len(rows),
            message=f"no update since step {first} has changed the weights: {len(rows)} evaluations give a loss of {{value}}, "
            "to the last digit",
        )


def _is_up(rate: Series | None, first: int, last: int, low: float) -> bool:
    """Tell whether the learning rate is well above zero all the time; one that was not recorded is taken to be."""
    if rate is None:
        return True
    largest = np.where(rate.finite, rate.values, 0.0).max(axis=1, initial=0.0)
    during = largest[(rate.steps > first) & (rate.steps <= last)]
    return bool((during > low * largest.max(initial=0.0)).all())
