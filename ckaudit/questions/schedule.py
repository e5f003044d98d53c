"""Phase 4, its last question: warm-up, peak and decay of the learning rate, and what they did to the loss."""

import inspect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import UNSET

from ckaudit.causes.cause import Findings
from ckaudit.causes.missing_warmup import missing_warmup
from ckaudit.contract.interview import Word
from ckaudit.contract.manifest import Manifest
from ckaudit.contract.report import Finding
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.progress import learning_rate_over_peak
from ckaudit.questions.question import FINDINGS, Said, foreign, question, worse
from ckaudit.questions.values import Points, points
from ckaudit.rules.exploding_gradient import exploding_gradient
from ckaudit.rules.loss_spike import loss_spike
from ckaudit.rules.rule import FACTS
from ckaudit.run.medians import medians_of_three
from ckaudit.run.peaks import ROUNDED
from ckaudit.run.resolution import decimal_step
from ckaudit.run.robust import ENOUGH_FOR_NOISE, MEDIAN_COST, difference_noise, log_noise
from ckaudit.run.series import Series, at

EARLY: int = inspect.signature(missing_warmup.function).parameters["early"].default


class _Schedule(NamedTuple):
    """Where the learning rate starts over its peak, when it reaches and when it leaves the peak, and where it ends."""

    start: float
    peak: float
    reached: int
    left: int
    end: float


@question(
    "D4.6", needs=[learning_rate, learning_rate_over_peak, train_loss_raw], wants=[FINDINGS, FACTS],
    rules=(
        "update_out_of_band", "initialization_lost", "learning_rate_jump", "learning_rate_zero", "schedule_off_plan",
        "curvature_jump", "updates_held_back", "gradient_noise_too_high",
    ),
    weighs=("loss_spike", "exploding_gradient"),
    causes=(
        "learning_rate_too_high", "learning_rate_too_low", "learning_rate_is_zero", "missing_warmup", "schedule_not_stepping",
        "schedule_horizon_wrong", "warmup_never_ends", "learning_rate_wrong_after_resume", "learning_rate_changed",
        "optimizer_unsuited",
    ),
)  # fmt: skip
def schedule_right(
    rate: Series, over_peak: Series, loss: Series, found: Findings, facts: Manifest | None, *,
    near: float = 0.9, early: int = EARLY, lost: float = 0.3, decayed: float = 0.5, gain: float = 0.005, few: int = 20,
    solved: float = 0.1,
) -> Said:  # fmt: skip
    """Is the learning-rate schedule right?

    ## Looks at
    Warm-up, peak and decay of the learning rate, the spikes of loss and gradient that began on the way to the peak or
    near it, and what the decay gained.
    ## Good
    No spike there, and once the rate has fallen below `decayed` of its peak, the loss fell by more than `gain` of itself
    since the decay began (medians of `few` points, or of a third of what there is; playbook D4.6; healthy decays of public
    logs and the lab gain 3.7 % and more). A run that does not decay is judged by its peak alone.
    ## Watch
    A spike that came back, while the rate was above `near` of its highest so far and the peak at most `early` steps old
    (as in missing_warmup). Or a decay that gained nothing where the loss is below `solved` of its first, or too noisy to tell.
    ## Bad
    A graver spike, or one that took back `lost` of all that had been gained, but where run.json says that other data begin
    there; or a decay that gained nothing. `near`, `lost`, `decayed` (as the late stage of coverage), `solved` and `few` are
    starting values.
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
        word = "bad" if any(each.severity != "sev2" for each in trouble) else "watch"
        numbers["trouble"] = float(trouble[0].first_step or 0)
        text += f"; {trouble[0].code} is the first spike at the peak, at step {trouble[0].first_step}"
    course = points(loss)
    if (spike := _spike(course, over_peak, near, plan.reached + early, lost, changes_of_data(facts))) is not None:
        word, numbers["spike"] = "bad", spike.height
        text += f"; at step {spike.step}, at the peak, the loss is {spike.height:.3g} above the {spike.low:.4g} before"
    if plan.end < decayed and (decay := _decay(course, plan.left, few)) is not None:
        numbers["gain"] = (decay.before - decay.after) / abs(decay.before) if decay.before else 0.0
        text += f"; in the decay the loss goes from {decay.before:.4g} to {decay.after:.4g}"
        if numbers["gain"] <= gain:
            is_open = abs(decay.after) <= solved * abs(float(course.values[0])) or decay.is_hidden
            word = worse(word, "watch" if is_open else "bad")
    return Said(word=word, sentence=text, numbers=numbers)


class _Spike(NamedTuple):
    """The highest jump near the peak: its step, how far it stands above the level before, and that level."""

    step: int
    height: float
    low: float


class _Decay(NamedTuple):
    """The level of the loss before a decay and at its end, and whether noise hides what it gained."""

    before: float
    after: float
    is_hidden: bool


def changes_of_data(facts: Manifest | None) -> list[int]:
    """Return the steps from which on other data were planned, as run.json says them in its data manifest."""
    plan = facts.data_manifest if facts is not None else UNSET
    stages = plan.get("stages") if isinstance(plan, dict) else None
    steps = [each.get("first_step") for each in stages if isinstance(each, dict)] if isinstance(stages, list) else []
    return [int(step) for step in steps if isinstance(step, int | float)]


def _spike(
    course: Points, over_peak: Series, near: float, until: int, lost: float, changes: Sequence[int], *,
    noises: float = 8.0, least: float = 0.15, jump: float = 0.4, soon: int = 10,
) -> _Spike | None:  # fmt: skip
    """Return the highest jump of the loss while the rate was near its peak.

    Args:
        course: The loss.
        over_peak: The learning rate over its highest so far.
        near: From which share of it on the rate is at its peak.
        until: Last step that belongs to the peak.
        lost: Share of the way so far that a jump takes back.
        changes: Steps from which on the data are others.
        noises: Standard deviations of the loss that no batch makes, of a positive loss on a log scale too.
        least: Share of the level that way and jump must be.
        jump: The same for a point that is back at once.
        soon: Steps after a change of the data in which a jump is its own.
    """
    steps, values = course
    if len(values) < 5:
        return None
    smooth = medians_of_three(values)
    before = np.concatenate([values[:1], np.minimum.accumulate(values)[:-1]])
    height, way, level = values - before, values[0] - before, np.abs(before)
    peaks = np.nan_to_num(at(over_peak, steps).values).max(axis=1, initial=0.0)
    noise, share = (difference_noise(values), log_noise(values)) if len(values) >= ENOUGH_FOR_NOISE else (0.0, 0.0)
    rounding = ROUNDED * float(decimal_step(values).min())
    alone = smooth - before < height / 2
    large = (height > lost * way) & (way > least * abs(values[0])) & (height > max(noises * noise, rounding))
    large &= height > np.maximum(np.where(alone, jump, least), np.expm1(min(noises * share, 700.0))) * level
    planned = np.array([any(0 <= step - change <= soon for change in changes) for step in steps])
    rows = np.flatnonzero(large & (peaks > near) & (steps <= until) & ~planned)
    if not len(rows):
        return None
    row = int(rows[np.argmax(height[rows])])
    return _Spike(int(steps[row]), float(height[row]), float(before[row]))


def _decay(course: Points, left: int, few: int) -> _Decay | None:
    """Return what a decay did to the loss; None where fewer than three points lie before it, or after."""
    steps, values = course
    before, after = values[steps <= left], values[steps > left]
    few = min(few, len(after) // 3) if len(after) < 3 * few else few
    if len(before) < 3 or few < 2:
        return None
    start, end = float(np.median(before[-few:])), float(np.median(after[-few:]))
    noise = difference_noise(values)
    error = MEDIAN_COST * noise * (1 / len(before[-few:]) + 1 / few) ** 0.5
    return _Decay(start, end, bool(2 * error > 0.01 * abs(start) and end < start + 2 * error))


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
