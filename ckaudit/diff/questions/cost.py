"""What a training costs: the loss after as much time on the clock, the time of a step, and memory."""

import math

import numpy as np
from msgspec.structs import replace

from ckaudit.diff.noise import AHEAD, quantile
from ckaudit.diff.questions import PairAnswer, lower_is_better, missing, question
from ckaudit.diff.questions.losses import loss_verdict
from ckaudit.diff.run_pair import RunPair
from ckaudit.metrics import Metric
from ckaudit.metrics.hardware import gpu_mem_used
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.speed import step_time, tokens_per_sec
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Floats, Series


@question(place=4, weighs="cost")
def loss_at_equal_time(both: RunPair, *, min_speed_noise: float = 0.02) -> PairAnswer:
    """What does the loss cost after as much time?

    Time in which the training ran: pauses between sessions do not count. A machine that is now faster, now slower is
    noise in it; and what else the machine was busy with counts, so that this alone makes no pair better or worse.

    Args:
        both: The runs.
        min_speed_noise: Noise of the speed of a machine of its own, as a standard deviation over the speed.
    """
    along = both.along("time")
    clock = max(min_speed_noise, noise_of_speed(both, step_time)) if along is not None else 0.0
    stretches = None if along is None else along.level(train_loss_raw, ahead=math.hypot(AHEAD, clock))
    if along is None or stretches is None:
        return missing(both, "time")
    return replace(loss_verdict(stretches, f"median loss after the time that step {int(stretches.last[-1])} took"), grave=False)


@question(place=10, weighs="cost")
def speed(both: RunPair, *, share: float = 0.01, parts: int = 10, min_speed_difference: float = 0.05) -> PairAnswer:
    """How long does a step take?

    The median, which no checkpoint and no evaluation moves; tokens per second where no step was timed. A machine that is
    shared changes from one tenth of a run to the next, and from one replica to another: that much is noise. What the machine
    did besides shows in no record, so that speed alone makes no pair better or worse.

    Args:
        both: The runs.
        share: Of differences between tenths of a run, or between replicas, that are larger.
        parts: Into how many a run is cut.
        min_speed_difference: Share by which a machine of its own differs from itself from one start to the next.
    """
    metric = next((metric for metric in (step_time, tokens_per_sec) if all(map(len, _values(both, metric)))), None)
    if metric is None:
        return missing(both, "step_time", "tokens_per_sec")
    left, right = (median(value) for value in _values(both, metric))
    replicas = [median(values) for side in both.replicas if len(values := _positive(metric(side.run)))]
    among, freedom = (float(np.std([left, *replicas], ddof=1)) / left, len(replicas)) if replicas else (0.0, math.inf)
    chance = quantile(share) * noise_of_speed(both, metric, parts=parts)
    band = max(min_speed_difference, chance, quantile(share, max(3, freedom)) * math.sqrt(2) * among)
    word = lower_is_better(left, right, band * left) if metric is step_time else lower_is_better(-left, -right, band * left)
    what = "seconds a step" if metric is step_time else "tokens per second"
    return PairAnswer(
        word=word,
        left=left,
        right=right,
        band=band * left,
        unit=metric.unit,
        grave=False,
        sentence=f"{left:.4g} and {right:.4g} {what}, {right / left - 1:+.0%}; noise explains {band:.0%}",
    )


def noise_of_speed(both: RunPair, metric: Metric, *, parts: int = 10) -> float:
    """Return the standard deviation of the speed from one part of a run to the next, of both together, over the speed."""
    return math.hypot(*(_wobble(value, parts) for value in _values(both, metric)))


def _values(both: RunPair, metric: Metric) -> list[Floats]:
    return [_positive(metric(side.run)) for side in (both.left, both.right)]


def _positive(series: Series) -> Floats:
    """Return the values of a series; a speed of 0 or less is none."""
    return series.values[series.finite & (series.values > 0)]


def _wobble(values: Floats, parts: int) -> float:
    """Return the robust standard deviation of the medians of parts of a run, over the median of all; without a value, 0."""
    if not len(values):
        return 0.0
    medians = np.array([median(part) for part in np.array_split(values, min(parts, len(values)))])
    return float(np.divide(MAD_TO_SIGMA * median(np.abs(medians - median(medians))), median(values)))


@question(place=11, weighs="cost")
def memory(both: RunPair, *, noise: float = 0.02, grave: float = 0.2) -> PairAnswer:
    """How much memory does it take?

    The most that any device had in use.

    Args:
        both: The runs.
        noise: Share that an allocator keeps or gives back as it likes.
        grave: Share from which the pair as a whole is better or worse: below it lies what fragments of an allocator make.
    """
    used = [gpu_mem_used(side.run) for side in (both.left, both.right)]
    if not all(series.finite.any() for series in used):
        return missing(both, "gpu_mem_used")
    left, right = (float(np.max(series.values[series.finite])) for series in used)
    change = right / left - 1 if left else np.inf
    return PairAnswer(
        word=lower_is_better(left, right, noise * left),
        left=left,
        right=right,
        band=noise * left,
        unit="bytes",
        sentence=f"{left / 2**30:.3g} GiB and {right / 2**30:.3g} GiB at most, {change:+.0%}; below {noise:.0%} is noise",
        grave=abs(change) > grave,
    )
