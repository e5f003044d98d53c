"""Logged numbers that can be recomputed, and the nearest value that their raw numbers allow; what bounds those of progress."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET, Struct

from ckaudit.metrics.claims import CLAIMS, Bounds, as_table, claim, every_bound
from ckaudit.metrics.counters import increments, is_restart, shared_points
from ckaudit.metrics.metric import metric
from ckaudit.metrics.optimizer import clip_coefficient, loss_scale, skipped_updates
from ckaudit.run.medians import median
from ckaudit.run.robust import decimal_step
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps, at, single


# Claims about progress and speed: counts, phases, rates and throughput, against counters and the clock.
@claim("lr_phase", reads=[])
def _lr_phase(run: Run, *, slack: float = 1.0) -> Iterator[Bounds]:
    """Steps over the planned warm-up in percent (M07), capped at 100 or not, of this step or the one before."""
    planned = run.manifest.warmup_steps if run.manifest else UNSET
    if planned is UNSET or not planned:
        return
    steps, claimed = shared_points([run.scalar("lr_phase")])
    low, high = 100 * np.minimum(1.0, (steps - 1) / planned), 100 * steps / planned
    yield Bounds("lr_phase", steps, claimed[:, 0], low - slack, high + slack)


@claim("steps_seen", reads=[skipped_updates])
def _steps_seen(run: Run) -> Iterator[Bounds]:
    """Attempts less skipped updates (M02), counted before or after the step, as long as every step has a line."""
    skipped = _unbroken(skipped_updates(run))
    applied = (skipped.steps - np.cumsum(skipped.values[:, :1].ravel() > 0)).astype(float)
    series = single("steps_seen", "updates", skipped.steps, applied)
    steps, both = shared_points([run.scalar("steps_seen"), series])
    yield Bounds("steps_seen", steps, both[:, 0], both[:, 1] - 1, both[:, 1] + 1)


@claim("grad_clip_rate", reads=[clip_coefficient])
def _grad_clip_rate(run: Run) -> Iterator[Bounds]:
    """A share of clipped steps is 0 where none was so far and 1 where all were, over whatever window it is taken."""
    factor = _unbroken(clip_coefficient(run))
    yield from _rate(run, "grad_clip_rate", factor, factor.values < 1, whole=1.0)


@claim("overflow_rate", reads=[skipped_updates, loss_scale])
def _overflow_rate(run: Run, *, often: float = 5.0) -> Iterator[Bounds]:
    """A share of overflows is 0 where no update was skipped so far and 100 where all were, as in grad_clip_rate.

    Where skipped updates were not logged: a loss scale falls with its overflows, if not with the first of them. One that
    never fell has seen at most as many as raise it again, which is far below `often` percent.
    """
    skipped, scale = skipped_updates(run), loss_scale(run)
    if not skipped and scale:
        steps, both = shared_points([run.scalar("overflow_rate"), scale])
        half = len(steps) // 2
        if len(steps) > 1 and (np.diff(both[:, 1]) >= 0).all():
            yield Bounds(
                "overflow_rate", steps[half:], both[half:, 0], np.zeros(len(steps) - half), np.full(len(steps) - half, often)
            )
        return
    skipped = _unbroken(skipped)
    yield from _rate(run, "overflow_rate", skipped, skipped.values > 0)


@claim("tokens_per_update", reads=["tokens_seen"])
def _tokens_per_update(run: Run, *, precision: float = 1e-2, padding: float = 2.0) -> Iterator[Bounds]:
    """What an update adds to the tokens seen (M01, M08), from one line to the next.

    It cannot be less than that. It may be more, where one of the two counts pads: up to `padding` times, for a batch that
    is more pad than text is rare. Counters kept in float32 or rounded to thousands allow a range.
    """
    steps, both = shared_points([run.scalar("tokens_per_update"), run.scalar("tokens_seen")])
    gained = increments(both)[:, 1]
    gained[np.diff(steps, prepend=steps[:1]) != 1] = np.nan
    slack = precision * np.abs(gained) + _round_numbers(both[:, 1]) + 2**-23 * both[:, 1]
    yield Bounds("tokens_per_update", steps, both[:, 0], np.where(gained < 0, np.nan, gained) - slack, padding * gained + slack)


@claim("step_time", reads=["time"])
def _step_time(run: Run, *, precision: float = 0.1, waiting: float = 20.0) -> Iterator[Bounds]:
    """A step cannot take longer than the time since the line before it: the mean over whole windows of lines, or so far.

    Where only some steps have a line, these may be the slow ones, such as those with an evaluation. A timer may leave out
    evaluations, checkpoints and the wait for data, but not nineteen twentieths of the time between two usual lines:
    milliseconds, minutes or micro-steps do.
    """
    windows = _windows(run, "step_time", "time")
    usual = 1 / _usual_speed(run, windows, None)
    longest = np.maximum(windows.passed.mean(axis=1), (windows.total[0] / windows.total[1]).max(axis=1)) * (1 + precision)
    yield Bounds("step_time", windows.ends, windows.claimed.mean(axis=1), usual / waiting, longest)


@claim("tokens_per_sec", reads=["time", "tokens_seen"])
def _tokens_per_sec(run: Run, *, factor: float = 3.0) -> Iterator[Bounds]:
    """Tokens over time (M39) in whole windows of lines, or so far.

    A trainer's timer may leave out evaluations, the wait for data and what a recorder takes, and tokens may count pads: a
    `factor` of three covers that. Tokens of one device out of eight, or of one micro-batch of as many, lie beyond.
    """
    yield _throughput(run, "tokens_per_sec", 1.0, factor)


@claim("mfu", reads=["time", "tokens_seen"])
def _mfu(run: Run, *, factor: float = 3.0) -> Iterator[Bounds]:
    """Tokens per second times work over peak (M41), with the same `factor` as tokens_per_sec; percent lie beyond."""
    work, peak = (run.manifest.flops_per_token, run.manifest.peak_flops) if run.manifest else (UNSET, UNSET)
    if isinstance(work, (int, float)) and isinstance(peak, (int, float)) and peak > 0:
        yield _throughput(run, "mfu", work / peak, factor)


def _throughput(run: Run, name: str, unit: float, factor: float) -> Bounds:
    """Compare median claims with the throughput of each window, times `unit`: its mean, its usual one, and the mean so far."""
    windows = _windows(run, name, "tokens_seen")
    with np.errstate(all="ignore"):
        mean, so_far = windows.gained.sum(axis=1) / windows.passed.sum(axis=1), windows.total[2] / windows.total[0]
    speeds = np.stack([mean, _usual_speed(run, windows, "tokens_seen"), so_far.min(axis=1), so_far.max(axis=1)])
    speeds = np.where(np.isfinite(speeds).all(axis=0) & (mean > 0), speeds, np.nan) * unit
    slow, fast = speeds.min(axis=0), speeds.max(axis=0)
    return Bounds(name, windows.ends, np.median(windows.claimed, axis=1), slow / factor, fast * factor)


def _usual_speed(run: Run, windows: "_Windows", counter: str | None) -> Floats:
    """Return the median gain per second from line to line in each window, shape (W,): of all lines, also those without a claim.

    Args:
        run: The run.
        windows: Where they begin and end.
        counter: What is gained; None: steps.
    """
    steps, lines = shared_points([run.scalar("time"), run.scalar(counter or "time")])
    passed, gained = increments(lines).T
    gained = np.diff(steps, prepend=steps[:1]).astype(float) if counter is None else gained
    known = (passed > 0) & (gained > 0) & ~is_restart(run, lines[:, 0])
    steps, speeds = steps[known], gained[known] / passed[known]
    first, last = (np.searchsorted(steps, bounds, side="right").tolist() for bounds in (windows.begins, windows.ends))
    return np.array([median(speeds[a:b]) for a, b in zip(first, last, strict=True)], float)


class _Windows(Struct, frozen=True, eq=False):
    """Lines in windows of equal number, side by side, each with what there was since the line before.

    Attributes:
        begins: Step of the line before each window, shape (W,).
        ends: Last step of each window, shape (W,).
        claimed: What was logged, shape (W, N), as all that follow.
        passed: Seconds; NaN at a restart and where the clock went back.
        apart: Steps.
        gained: Of the counter asked for.
        total: Seconds, steps and gain since the first line, restarts left out, shape (3, W, N).
    """

    begins: Steps
    ends: Steps
    claimed: Floats
    passed: Floats
    apart: Floats
    gained: Floats
    total: Floats


def _windows(run: Run, name: str, counter: str, *, window: int = 50, digits: float = 10.0) -> _Windows:
    """Cut the lines that have a claim, a time and a counter.

    Args:
        run: The run.
        name: The claim.
        counter: The counter.
        window: Lines in a window.
        digits: A window must last that many of the smallest digit of the clock, or it says nothing of speed.
    """
    steps, lines = shared_points([run.scalar(name), run.scalar("time"), run.scalar(counter)])
    added = increments(lines)
    passed = np.where(is_restart(run, lines[:, 1]) | (added[:, 1] < 0), np.nan, added[:, 1])
    count = max(len(steps) - 1, 0) // window
    inside = slice(1, 1 + count * window)
    columns = (lines[:, 0], passed, np.diff(steps, prepend=0).astype(float), added[:, 2])
    claimed, passed, apart, gained = (column[inside].reshape(count, window) for column in columns)
    digit = np.minimum.accumulate(decimal_step(lines[:, 1]))[inside].reshape(count, window)[:, -1:].ravel()
    known = passed.sum(axis=1) > digits * digit
    begins, ends = steps[: count * window : window], steps[inside].reshape(count, window)[:, -1:].ravel()
    sums = [
        np.nancumsum(per_line).reshape(count, window) for per_line in (passed, np.where(np.isnan(passed), 0.0, apart), gained)
    ]
    return _Windows(
        begins[known], ends[known], claimed[known], passed[known], apart[known], gained[known], np.stack(sums)[:, known]
    )


def _rate(run: Run, name: str, source: Series, hits: Mask, *, whole: float = 100.0, slack: float = 0.005) -> Iterator[Bounds]:
    some, all_ = np.logical_or.accumulate(hits[:, :1].ravel()), np.logical_and.accumulate(hits[:, :1].ravel())
    steps, claimed = shared_points([run.scalar(name)])
    low, high = (at(single("x", "1", source.steps, whole * count), steps) for count in (all_, some))
    fresh = (low.age == 0)[:, 0]
    yield Bounds(
        name, steps[fresh], claimed[fresh, 0], low.values[fresh, 0] - slack * whole, high.values[fresh, 0] + slack * whole
    )


def _unbroken(series: Series) -> Series:
    """Return the first part of a series, in which every step from 1 on has a finite point."""
    if not series:
        return series
    steps = series.steps[series.finite[:, 0]]
    unbroken = steps[np.logical_and.accumulate(steps == np.arange(1, len(steps) + 1))]
    rows = np.searchsorted(series.steps, unbroken)
    return single(series.name, series.unit, unbroken, series.values[rows, 0])


def _round_numbers(values: Floats) -> Floats:
    """Return the power of ten in which a count was rounded so far, 0 where it is odd to ten, shape (T,)."""
    powers = np.zeros(len(values))
    for power in range(1, 13):
        whole = np.logical_and.accumulate(values % 10.0**power == 0)
        powers[whole] = 10.0**power
    return powers


# Every claim, those of `claims` included, as a metric.
_READS = tuple(dict.fromkeys(path for claim in CLAIMS.values() for path in claim.reads))
_SOURCE = "catalogue, the definition of each name"


@metric(unit="1", reads=_READS, source=_SOURCE)
def claimed_value(run: Run) -> Series:
    r"""What the trainer logged of each number that can be recomputed, where it can be.

    $$c_t$$

    Shape (T, K): steps by names, "val_ppl"; each in its own unit. Speeds are means or medians over 50 lines, at the last
    of them.
    """
    return as_table("claimed_value", [(bounds.label, bounds.steps, bounds.claimed) for bounds in every_bound(run)])


@metric(unit="1", reads=_READS, source=_SOURCE)
def nearest_allowed_value(run: Run) -> Series:
    r"""What the raw numbers of the same run allow each logged number to be, at the nearest.

    $$\min(\max(c_t, l_t), h_t)$$

    Shape (T, K): as claimed_value, and equal to it where nothing is contradicted. The range from $l$ to $h$ holds rounding
    and every convention that the catalogue leaves open: which average of a loss, whether pads count, what a timer leaves out.
    """
    return as_table("nearest_allowed_value", [(bounds.label, bounds.steps, bounds.nearest) for bounds in every_bound(run)])
