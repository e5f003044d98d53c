"""Phase 4, its last question: warm-up, peak and decay of the learning rate, and what they did to the loss."""

import inspect
from typing import NamedTuple

import numpy as np

from ckaudit.causes.cause import Findings
from ckaudit.causes.missing_warmup import missing_warmup
from ckaudit.contract.interview import Word
from ckaudit.contract.report import Finding
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.progress import learning_rate_over_peak
from ckaudit.questions.question import FINDINGS, Said, foreign, question, worse
from ckaudit.questions.values import points
from ckaudit.rules.exploding_gradient import exploding_gradient
from ckaudit.rules.loss_spike import loss_spike
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
    "D4.6", needs=[learning_rate, learning_rate_over_peak, train_loss_raw], wants=[FINDINGS],
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
