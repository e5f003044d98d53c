"""Speed: step times, token throughput, and utilisation of the hardware."""

import numpy as np
from msgspec import UNSET

from ckaudit.metrics.counters import increments, is_restart, shared_points
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, logged_as, relabelled
from ckaudit.metrics.progress import tokens_seen
from ckaudit.metrics.ranks import rank_step_time
from ckaudit.metrics.reductions import across, tumbling
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps, single


@metric(unit="s", reads=["time"], source="playbook, monitoring blackout")
def log_silence(run: Run) -> Series:
    r"""Time since the previous log line, including restarts.

    $$\tau_t - \tau_{t'}$$

    Shape (T, 1): logged steps with a time, except the first. Negative if the clock was set back.
    """
    steps, times = shared_points([run.scalar("time")])
    return single("log_silence", "s", steps[1:], np.diff(times[:, 0]))


@metric(unit="s", reads=["time", "step_time", rank_step_time], source="catalogue M40")
def step_time(run: Run) -> Series:
    r"""Duration of a step by the wall clock.

    $$\frac{\tau_t - \tau_{t'}}{t - t'}$$

    Shape (T, 1): logged steps, the mean over the steps since the previous line, including evaluations and checkpoints. Not
    recorded at the first line of a session in run.json, nor if the clock goes back. Where no clock is logged, the trainer's own
    timer counts, else the median of the ranks' own times.
    """
    steps, times = shared_points([run.scalar("time")])
    passed = np.where(is_restart(run, times[:, 0]), np.nan, increments(times)[:, 0])
    series = _positive("step_time", "s", steps, passed / np.diff(steps, prepend=-1))
    logged = filled(series, logged_as(run, "step_time"))
    return filled(logged, across(rank_step_time(run), np.nanmedian, "step_time", "s"))


@metric(unit="1", reads=[step_time], source="catalogue M40, tail p95/p50")
def step_time_tail(run: Run, *, window: int = 100) -> Series:
    r"""95th percentile of the step times relative to their median.

    $$P_{95} / P_{50}$$

    Shape (W, 1): whole windows of `window` points, each at its last step; 1 if all steps take equally long.

    Args:
        run: The run.
        window: Points per window; fewer than 20 have no 95th percentile.
    """
    return tumbling(step_time(run), _tail, window=window)


@metric(unit="tokens/s", reads=["time", tokens_seen, "tokens_per_sec"], source="catalogue M39")
def tokens_per_sec(run: Run) -> Series:
    r"""Tokens per second of wall clock, over all ranks.

    $$\frac{n_t - n_{t'}}{\tau_t - \tau_{t'}}$$

    Shape (T, 1): logged steps with a clock and a token count, since the previous line. Not recorded at the first line of a
    session in run.json, nor if clock or count does not advance. The trainer's own number counts elsewhere.
    """
    steps, values = shared_points([run.scalar("time"), tokens_seen(run)])
    passed, gained = increments(values).T
    passed = np.where(is_restart(run, values[:, 0]) | (passed <= 0), np.nan, passed)
    series = _positive("tokens_per_sec", "tokens/s", steps, gained / passed)
    return filled(series, logged_as(run, "tokens_per_sec"))


@metric(unit="samples/s", reads=["samples_per_sec"], source="the trainer's own number")
def samples_per_sec(run: Run) -> Series:
    r"""Samples per second, as logged by the trainer: images, rows, sequences.

    $$\frac{N}{\tau}$$

    Shape (T, 1): logged steps.
    """
    return logged_as(run, "samples_per_sec")


@metric(unit="1", reads=[tokens_per_sec, "mfu"], source="catalogue M41; Chowdhery et al. 2022, appendix B")
def mfu(run: Run) -> Series:
    r"""Share of the hardware's peak that the model's own arithmetic uses.

    $$\frac{\text{tokens/s} \cdot \text{FLOP/token}}{\text{peak FLOP/s}}$$

    Shape (T, 1): 0 to 1, at the steps of tokens_per_sec; work and peak come from run.json. The trainer's own number counts if
    run.json lacks them.
    """
    work, peak = (run.manifest.flops_per_token, run.manifest.peak_flops) if run.manifest else (UNSET, UNSET)
    recorded = logged_as(run, "mfu")
    if not isinstance(work, (int, float)) or not isinstance(peak, (int, float)) or peak <= 0:
        return recorded
    series = tokens_per_sec(run).mapped(lambda speed: speed * work / peak, "mfu", "1")
    return filled(relabelled(series, "mfu"), recorded)


def seconds_between(time: Series | None, first: int, last: int) -> float | None:
    """Return the duration of the steps from `first` to `last`, from the median of their known step times; None without any."""
    if time is None:
        return None
    inside = time.finite[:, 0] & (time.steps >= first) & (time.steps <= last)
    return median(time.values[inside, 0]) * (last - first + 1) if inside.any() else None


def _positive(name: str, unit: str, steps: Steps, values: Floats) -> Series:
    known = values > 0
    return single(name, unit, steps[known], values[known])


def _tail(part: Floats) -> Floats:
    p50, p95 = np.percentile(part, [50, 95], axis=1)
    return np.asarray(p95 / p50)
