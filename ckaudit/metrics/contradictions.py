"""Logged numbers that can be recomputed, with the nearest value that raw numbers allow; the bounds of progress and speed."""

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
    """The logged phase is the step over the planned warm-up in percent (M07), capped at 100 or not, give or take a step."""
    planned = run.manifest.warmup_steps if run.manifest else UNSET
    if planned is UNSET or not planned:
        return
    steps, claimed = shared_points([run.scalar("lr_phase")])
    low, high = 100 * np.minimum(1.0, (steps - 1) / planned), 100 * steps / planned
    yield Bounds("lr_phase", steps, claimed[:, 0], low - slack, high + slack)


@claim("steps_seen", reads=[skipped_updates])
def _steps_seen(run: Run) -> Iterator[Bounds]:
    """The logged count is attempts minus skipped updates (M02), before or after the step, as long as every step has a line."""
    skipped = _unbroken(skipped_updates(run))
    applied = (skipped.steps - np.cumsum(skipped.values[:, :1].ravel() > 0)).astype(float)
    series = single("steps_seen", "updates", skipped.steps, applied)
    steps, both = shared_points([run.scalar("steps_seen"), series])
    yield Bounds("steps_seen", steps, both[:, 0], both[:, 1] - 1, both[:, 1] + 1)


@claim("grad_clip_rate", reads=[clip_coefficient])
def _grad_clip_rate(run: Run) -> Iterator[Bounds]:
    """The logged share of clipped steps is 0 if none was clipped so far and 1 if all were, over any window."""
    factor = _unbroken(clip_coefficient(run))
    yield from _rate(run, "grad_clip_rate", factor, factor.values < 1, whole=1.0)


@claim("overflow_rate", reads=[skipped_updates, loss_scale])
def _overflow_rate(run: Run, *, often: float = 5.0) -> Iterator[Bounds]:
    """The logged share of overflows is 0 if no update was skipped so far and 100 if all were, as in grad_clip_rate.

    If skipped updates were not logged, the loss scale decides: it falls with overflows, if not with the first one. A scale that
    never fell has seen at most as many overflows as raise it again, which is far below `often` percent.
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
    """The logged count is what an update adds to the tokens seen (M01, M08), from one line to the next.

    It cannot be less. It may be more if one of the two counts includes padding: up to `padding` times, because a batch with more
    padding than text is rare. Counters in float32 or rounded to thousands widen the range.
    """
    steps, both = shared_points([run.scalar("tokens_per_update"), run.scalar("tokens_seen")])
    gained = increments(both)[:, 1]
    gained[np.diff(steps, prepend=steps[:1]) != 1] = np.nan
    slack = precision * np.abs(gained) + _round_numbers(both[:, 1]) + 2**-23 * both[:, 1]
    yield Bounds("tokens_per_update", steps, both[:, 0], np.where(gained < 0, np.nan, gained) - slack, padding * gained + slack)


@claim("step_time", reads=["time"])
def _step_time(run: Run, *, precision: float = 0.1, waiting: float = 20.0) -> Iterator[Bounds]:
    """A step cannot take longer than the time since the previous line, as a mean over whole windows or over the run so far.

    If only some steps have a line, these may be the slow ones, such as those with an evaluation. A timer may exclude evaluations,
    checkpoints and the wait for data, but not nineteen twentieths of the time between two usual lines. A time in milliseconds, in
    minutes or per micro-step lies outside.
    """
    windows = _windows(run, "step_time", "time")
    usual = 1 / _usual_speed(run, windows, None)
    longest = np.maximum(windows.passed.mean(axis=1), (windows.total[0] / windows.total[1]).max(axis=1)) * (1 + precision)
    yield Bounds("step_time", windows.ends, windows.claimed.mean(axis=1), usual / waiting, longest)


@claim("tokens_per_sec", reads=["time", "tokens_seen"])
def _tokens_per_sec(run: Run, *, factor: float = 3.0) -> Iterator[Bounds]:
    """The logged speed is tokens over time (M39), in whole windows of lines or over the run so far.

    A trainer's timer may exclude evaluations, the wait for data and recording, and token counts may include padding: a `factor`
    of three covers that. Tokens of one device out of eight, or of one micro-batch out of eight, lie outside.
    """
    yield _throughput(run, "tokens_per_sec", 1.0, factor)


@claim("mfu", reads=["time", "tokens_seen"])
def _mfu(run: Run, *, factor: float = 3.0) -> Iterator[Bounds]:
    """The logged utilisation is tokens per second times work over peak (M41), within a `factor`; percent lie outside."""
    work, peak = (run.manifest.flops_per_token, run.manifest.peak_flops) if run.manifest else (UNSET, UNSET)
    if isinstance(work, (int, float)) and isinstance(peak, (int, float)) and peak > 0:
        yield _throughput(run, "mfu", work / peak, factor)


def _throughput(run: Run, name: str, unit: float, factor: float) -> Bounds:
    """Compare median claims with the throughput of each window, times `unit`: its mean, its median, and the mean so far."""
    windows = _windows(run, name, "tokens_seen")
    with np.errstate(all="ignore"):
        mean, so_far = windows.gained.sum(axis=1) / windows.passed.sum(axis=1), windows.total[2] / windows.total[0]
    speeds = np.stack([mean, _usual_speed(run, windows, "tokens_seen"), so_far.min(axis=1), so_far.max(axis=1)])
    speeds = np.where(np.isfinite(speeds).all(axis=0) & (mean > 0), speeds, np.nan) * unit
    slow, fast = speeds.min(axis=0), speeds.max(axis=0)
    return Bounds(name, windows.ends, np.median(windows.claimed, axis=1), slow / factor, fast * factor)


def _usual_speed(run: Run, windows: "_Windows", counter: str | None) -> Floats:
    """Return the median gain per second between lines in each window, shape (W,), including lines without a claim.

    Args:
        run: The run.
        windows: First and last steps of the windows.
        counter: The counter that grows; None: steps.
    """
    steps, lines = shared_points([run.scalar("time"), run.scalar(counter or "time")])
    passed, gained = increments(lines).T
    gained = np.diff(steps, prepend=steps[:1]).astype(float) if counter is None else gained
    known = (passed > 0) & (gained > 0) & ~is_restart(run, lines[:, 0])
    steps, speeds = steps[known], gained[known] / passed[known]
    first, last = (np.searchsorted(steps, bounds, side="right").tolist() for bounds in (windows.begins, windows.ends))
    return np.array([median(speeds[a:b]) for a, b in zip(first, last, strict=True)], float)


class _Windows(Struct, frozen=True, eq=False):
    """Consecutive windows of equally many lines, with the increments since the line before each line.

    Attributes:
        begins: Step of the line before each window, shape (W,).
        ends: Last step of each window, shape (W,).
        claimed: Logged values, shape (W, N), like all that follow.
        passed: Seconds; NaN at a restart or if the clock went back.
        apart: Steps.
        gained: Increments of the counter.
        total: Seconds, steps and gain since the first line, without restarts, shape (3, W, N).
    """

    begins: Steps
    ends: Steps
    claimed: Floats
    passed: Floats
    apart: Floats
    gained: Floats
    total: Floats


def _windows(run: Run, name: str, counter: str, *, window: int = 50, digits: float = 10.0) -> _Windows:
    """Cut the lines that have a claim, a time and a counter into windows.

    Args:
        run: The run.
        name: The claim.
        counter: The counter.
        window: Lines per window.
        digits: A window must last that many times the smallest digit of the clock to measure speed.
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
    """Return the first part of a series in which every step from 1 on has a finite point."""
    if not series:
        return series
    steps = series.steps[series.finite[:, 0]]
    unbroken = steps[np.logical_and.accumulate(steps == np.arange(1, len(steps) + 1))]
    rows = np.searchsorted(series.steps, unbroken)
    return single(series.name, series.unit, unbroken, series.values[rows, 0])


def _round_numbers(values: Floats) -> Floats:
    """Return the power of ten to which a count was rounded so far, 0 if it was not, shape (T,)."""
    powers = np.zeros(len(values))
    for power in range(1, 13):
        whole = np.logical_and.accumulate(values % 10.0**power == 0)
        powers[whole] = 10.0**power
    return powers


# Every claim as a metric, including those of `claims`.
_READS = tuple(dict.fromkeys(path for claim in CLAIMS.values() for path in claim.reads))
_SOURCE = "catalogue, the definition of each name"


@metric(unit="1", reads=_READS, source=_SOURCE)
def claimed_value(run: Run) -> Series:
    r"""Logged values of all numbers that can be recomputed, at the steps where they can be.

    $$c_t$$

    Shape (T, K): steps by names, "val_ppl"; each in its own unit. Speeds are means or medians over 50 lines, at the last line.
    """
    return as_table("claimed_value", [(bounds.label, bounds.steps, bounds.claimed) for bounds in every_bound(run)])


@metric(unit="1", reads=_READS, source=_SOURCE)
def nearest_allowed_value(run: Run) -> Series:
    r"""The value nearest to each logged number that the raw numbers of the run allow.

    $$\min(\max(c_t, l_t), h_t)$$

    Shape (T, K): as claimed_value, and equal to it where there is no contradiction. The range from $l$ to $h$ includes rounding
    and every convention that the catalogue leaves open: which average of a loss, whether padding counts, what a timer excludes.
    """
    return as_table("nearest_allowed_value", [(bounds.label, bounds.steps, bounds.nearest) for bounds in every_bound(run)])
