"""Phase 4: is it stable? Spikes, gradients that vanish or explode, clipping, activations and the schedule."""

import inspect
from typing import NamedTuple

import numpy as np

from ckaudit.causes.cause import Findings
from ckaudit.causes.missing_warmup import missing_warmup
from ckaudit.contract.interview import Word
from ckaudit.contract.report import Finding
from ckaudit.metrics.activations import activation_outlier_rate, activation_std
from ckaudit.metrics.gradients import grad_global_norm, gradient_norm, gradient_share, waterfall_ratio
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import clip_coefficient, grad_clip_rate, learning_rate
from ckaudit.metrics.progress import learning_rate_over_peak
from ckaudit.metrics.spikes import grad_norm_over_median, loss_over_median
from ckaudit.questions.question import FINDINGS, Said, above, foreign, question, unrecorded, worse
from ckaudit.questions.values import growth, largest, last_row, levels, points, row_of
from ckaudit.rules.activation_drift import activation_drift
from ckaudit.rules.exploding_gradient import exploding_gradient
from ckaudit.rules.frequent_clipping import frequent_clipping
from ckaudit.rules.loss_spike import loss_spike
from ckaudit.rules.vanishing_gradient import vanishing_gradient
from ckaudit.run.series import Series, at

EARLY: int = inspect.signature(missing_warmup.function).parameters["early"].default


@question(
    "D4.1", needs=[train_loss_raw, loss_over_median], wants=[grad_norm_over_median, learning_rate, gradient_share],
    rules=("loss_spike", "nonfinite_values"),
)  # fmt: skip
def spike_recovers(
    loss: Series, relative: Series, gradient: Series | None, rate: Series | None, shares: Series | None
) -> Said:  # fmt: skip
    """Why did the loss spike?

    ## Looks at
    The largest jump of the loss over the median of the points before it, and at that step the gradient norm, the learning
    rate and the tensor with the largest share of the gradient.
    ## Good
    No incident, as loss_spike counts them: isolated points are none (playbook D4.1).
    ## Watch
    An incident that came back.
    ## Bad
    Incidents that did not come back, or came again and again: go back to an earlier checkpoint.
    """
    steps, values = points(relative)
    worst = int(np.argmax(values))
    step, height = int(steps[worst]), float(values[worst])
    here = np.array([step], np.int64)
    numbers = {"step": float(step), "over_median": height, "loss": float(at(loss, here).values[0, 0])}
    text = f"the largest jump is at step {step}: {numbers['loss']:.4g}, {height:.3g}x the median before it"
    if gradient is not None and (at_step := at(gradient, here)).age[0, 0] == 0:
        numbers["gradient_over_median"] = float(at_step.values[0, 0])
        text += f"; the gradient norm is {numbers['gradient_over_median']:.3g}x its own"
    if rate is not None and np.isfinite(found := at(rate, here).values).any():
        numbers["learning_rate"] = float(np.nanmax(found))
        text += f"; the learning rate {numbers['learning_rate']:.3g}"
    if shares is not None and np.isfinite((known := at(shares, here)).values).any():
        column = int(np.nanargmax(known.values[0]))
        text += f"; {shares.labels[column]} has {known.values[0, column]:.0%} of the gradient"
        text += f" {known.age[0, column]} steps before" if known.age[0, column] else ""
    return Said(word="good", sentence=text, numbers=numbers)


@question("D4.2", needs=[waterfall_ratio], rules=("vanishing_gradient",))
def gradient_vanishes(
    ratio: Series,
    *,
    ordinary: float = vanishing_gradient.thresholds["note_ratio"],
    starved: float = vanishing_gradient.thresholds["max_ratio"],
) -> Said:
    """Does the gradient vanish?

    ## Looks at
    How many times less gradient each block gets than the last one, at the last checkpoint and at the worst.
    ## Good
    At most `ordinary` times (playbook D4.2; the limits are those of vanishing_gradient).
    ## Watch
    More, or it was `starved` at an earlier checkpoint.
    ## Bad
    More than `starved` times at the last checkpoint.
    """
    if len(ratio.labels) < 2:
        return foreign("the model has fewer than two blocks")
    step, row = last_row(ratio)
    name, now = largest(row)
    cells = np.where(ratio.finite, ratio.values, -np.inf)
    worst_row, column = np.unravel_index(int(np.argmax(cells)), cells.shape)
    worst, when = float(cells[worst_row, column]), int(ratio.steps[worst_row])
    text = f"at step {step} {name} gets {now:.3g}x less gradient than the last block"
    if worst > now:
        text += f"; at the worst {worst:.3g}x, {ratio.labels[column]} at step {when}"
    before = above(worst, watch=starved, bad=np.inf)
    return Said(
        word=worse(above(now, watch=ordinary, bad=starved), before), sentence=text, numbers={"ratio": now, "worst_ratio": worst}
    )


@question("D4.3", needs=[grad_global_norm], wants=[gradient_norm], rules=("exploding_gradient", "nonfinite_values"))
def gradient_explodes(
    norm: Series, tensors: Series | None, *,
    watch: float = exploding_gradient.thresholds["note_ratio"], bad: float = exploding_gradient.thresholds["max_ratio"],
    least: int = 20,
) -> Said:  # fmt: skip
    """Does the gradient explode?

    ## Looks at
    The level of the global gradient norm in the last of ten stretches over its lowest before, from `least` points on;
    beside it the tensor that grew most, by thirds of the record.
    ## Good
    It is stable, or falls slowly (playbook D4.3).
    ## Watch
    It is more than `watch` times as large (the limits are those of exploding_gradient).
    ## Bad
    More than `bad` times. `least` is two points a stretch.
    """
    steps, values = points(norm)
    if len(values) < least:
        return unrecorded(f"{len(values)} points of grad_global_norm; {least} are needed", "grad_global_norm")
    stages = levels(values, 10)
    low, end = float(stages.min()), float(stages[-1])
    if low <= 0:
        low = float(values[values > 0].min(initial=np.inf))
    ratio = end / low
    text = f"the level of the gradient norm goes from {stages[0]:.3g} to {end:.3g} by step {steps[-1]}, {ratio:.3g}x its lowest"
    numbers = {"first": float(stages[0]), "last": end, "lowest": low, "ratio": ratio}
    if tensors is not None and (grown := growth(tensors, early=0)):
        name, times = largest(grown)
        numbers["tensor_ratio"] = times
        text += f"; {name} is the one that grew most, {times:.3g}x"
    return Said(word=above(ratio, watch=watch, bad=bad), sentence=text, numbers=numbers)


@question("D4.4", needs=[grad_clip_rate, clip_coefficient], wants=[gradient_share], rules=("frequent_clipping",))
def clipping_hides(
    rate: Series, factor: Series, shares: Series | None, *,
    warmup: int = frequent_clipping.thresholds["warmup"], often: float = frequent_clipping.thresholds["note_rate"],
    always: float = frequent_clipping.thresholds["max_rate"], deep: float = frequent_clipping.thresholds["deep"],
) -> Said:  # fmt: skip
    """Does clipping hide a cause?

    ## Looks at
    The share of clipped steps in the last hundred, after the first `warmup` steps; how much clipping leaves; and which
    tensor has the largest part of the gradient, how often.
    ## Good
    At most `often` (playbook D4.4; the limits are those of frequent_clipping).
    ## Watch
    More often, but mildly.
    ## Bad
    More than `always`, and less than `deep` is left.
    """
    steps, values = points(rate)
    if steps[-1] <= warmup:
        return unrecorded(f"the first {warmup} steps are not judged; the run has {steps[-1]}", "grad_clip_rate")
    step, share = int(steps[-1]), float(values[-1])
    left = float(np.nanmin(at(factor, steps[-1:]).values)) if factor.finite.any() else 1.0
    text = f"{share:.0%} of the last hundred steps up to {step} were clipped, the last to {left:.2g} of its length"
    numbers = {"rate": share, "left": left}
    if shares is not None:
        tops = [largest(row_of(shares, int(row)))[0] for row in np.flatnonzero(shares.finite.any(axis=1))]
        name = max(dict.fromkeys(tops), key=tops.count)
        numbers["offender"] = tops.count(name) / len(tops)
        text += f"; {name} is the largest part of the gradient at {tops.count(name)} of {len(tops)} checkpoints"
    word = "bad" if share > always and left < deep else above(share, watch=often, bad=np.inf)
    return Said(word=word, sentence=text, numbers=numbers)


@question(
    "D4.5",
    needs=[activation_std],
    wants=[activation_outlier_rate],
    rules=("nonfinite_values", "hidden_nonfinite", "activation_drift"),
)
def activations_healthy(
    spread: Series,
    outliers: Series | None,
    *,
    watch: float = 1.5,
    bad: float = 4.0,
    tail: float = activation_drift.thresholds["outlier_rate"],
) -> Said:
    """Are the activations healthy?

    ## Looks at
    The spread of every module's output in the last third of the checkpoints over the middle third, for at first all of
    them grow; and the share of elements beyond six deviations.
    ## Good
    No module's grows by more than `watch` times in a hundred steps (playbook D4.5; drill DR-1 watches half as much again).
    ## Watch
    One does, or more than `tail` percent of a module's elements lie far outside (as activation_drift has it).
    ## Bad
    One has grown by more than `bad` times altogether, a runaway as course has it.
    """
    grown = growth(spread, early=1)
    if not grown:
        return unrecorded(f"{spread.points} checkpoints with activations; 3 are needed", "activation_std")
    name, times = largest(grown)
    middle, end = (int(np.median(part)) for part in np.array_split(points(spread, name).steps, 3)[1:])
    pace = times ** min(1.0, 100 / (end - middle))
    text = f"from about step {middle} to {end} the spread of {name} grew most, {times:.3g}x, or {pace:.3g}x in a hundred steps"
    word, numbers = (
        worse(above(times, watch=np.inf, bad=bad), above(pace, watch=watch, bad=np.inf)),
        {"growth": times, "pace": pace},
    )
    if outliers is not None:
        step, row = last_row(outliers)
        where, share = largest(row)
        numbers["outliers"] = share
        text += f"; at most {share:.2g} % lie far outside, in {where} at step {step}"
        word = worse(word, above(share, watch=tail, bad=np.inf))
    return Said(word=word, sentence=text, numbers=numbers)


class _Schedule(NamedTuple):
    """Where the learning rate starts over its peak, when it reaches and when it leaves the peak, and where it ends."""

    start: float
    peak: float
    reached: int
    left: int
    end: float


@question(
    "D4.6", needs=[learning_rate, learning_rate_over_peak, train_loss_raw], wants=[FINDINGS],
    rules=("update_out_of_band", "learning_rate_jump", "learning_rate_zero", "schedule_off_plan"),
)  # fmt: skip
def schedule_right(
    rate: Series, over_peak: Series, loss: Series, found: Findings, *,
    near: float = 0.9, early: int = EARLY, decayed: float = 0.5, gain: float = 0.0, few: int = 20,
) -> Said:  # fmt: skip
    """Is the learning-rate schedule right?

    ## Looks at
    Warm-up, peak and decay of the learning rate, the spikes of loss and gradient that began on the way to the peak or
    near it, and what the decay gained.
    ## Good
    No spike there, and once the rate has fallen below `decayed` of its peak, the loss fell by more than `gain` of itself
    since the decay began (medians of `few` points; playbook D4.6). A run that does not decay is judged by its peak alone.
    ## Watch
    A spike that came back, while the rate was above `near` of its highest so far and the peak at most `early` steps old
    (as in missing_warmup).
    ## Bad
    A graver one, or a decay that gained nothing. `near`, `decayed` (as the late stage of coverage) and `few` are starting
    values.
    """
    plan = _schedule(rate, over_peak)
    if plan is None:
        return foreign("the learning rate is zero throughout")
    text = f"the rate starts at {plan.start:.0%} of its peak, {plan.peak:.3g} from step {plan.reached} to {plan.left}"
    text += f", and ends at {plan.end:.0%}"
    numbers = {"start": plan.start, "peak": plan.peak, "peak_step": float(plan.reached), "end": plan.end}
    word: Word = "good"
    trouble = [each for each in _at_peak(over_peak, found, near) if (each.first_step or 0) <= plan.reached + early]
    if trouble:
        word, numbers["trouble"] = (
            "bad" if any(each.severity != "sev2" for each in trouble) else "watch",
            float(trouble[0].first_step or 0),
        )
        text += f"; {trouble[0].code} is the first spike at the peak, at step {trouble[0].first_step}"
    steps, values = points(loss)
    before, after = values[steps <= plan.left][-few:], values[steps > plan.left][-few:]
    if plan.end < decayed and len(before) and len(after) == few:
        start, end = float(np.median(before)), float(np.median(after))
        gained = (start - end) / abs(start) if start else 0.0
        numbers["gain"] = gained
        text += f"; in the decay the loss goes from {start:.4g} to {end:.4g}"
        word = worse(word, "good" if gained > gain else "bad")
    return Said(word=word, sentence=text, numbers=numbers)


def _schedule(rate: Series, over_peak: Series) -> _Schedule | None:
    """Return the course of the group with the highest rate."""
    column = int(np.argmax(np.where(rate.finite, rate.values, -np.inf).max(axis=0)))
    steps, values = points(rate, rate.labels[column])
    peak = float(values.max())
    if peak <= 0:
        return None
    at_peak = np.flatnonzero(values >= 0.999 * peak)
    positive = values[values > 0]
    end = points(over_peak, rate.labels[column]).last[1]
    return _Schedule(float(positive[0]) / peak, peak, int(steps[at_peak[0]]), int(steps[at_peak[-1]]), end)


def _at_peak(over_peak: Series, found: Findings, near: float) -> list[Finding]:
    """Return the spikes that began while the rate was near its highest so far, in order of time."""
    spikes = [each for each in found.of(loss_spike, exploding_gradient) if each.first_step is not None]
    peaks = at(over_peak, np.array([each.first_step for each in spikes], np.int64)).values
    return [each for each, row in zip(spikes, peaks, strict=True) if np.nan_to_num(row).max() > near]
