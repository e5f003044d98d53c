"""Phase 4, its last question: warm-up, peak and decay of the learning rate, and what they did to the loss."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import UNSET

from ckaudit.causes.cause import Findings
from ckaudit.causes.optimization.missing_warmup import EARLY_STEPS
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Finding, Word
from ckaudit.metrics.corpus import language_share, seq_len_p50_p95, source_mix_share
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.loss_function import explained_share, has_used_inputs
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.progress import learning_rate_over_peak
from ckaudit.metrics.weights import weight_rms
from ckaudit.questions.question import FINDINGS, SeriesAnswer, not_applicable, question, worst_of
from ckaudit.questions.values import CurvePoints, changes_of_data, points, steps_of_stages
from ckaudit.rules.data.source_drift import source_drift
from ckaudit.rules.data.text_statistics_drift import MIN_DEVIATIONS
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.loss.loss_rises import why_rise_is_harmless
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.rule import FACTS
from ckaudit.run.falls import fall_would_show, flat_fall
from ckaudit.run.isotonic_regression import isotonic_fits
from ckaudit.run.medians import median
from ckaudit.run.rises import falls_from_each_jump, sustained_rise
from ckaudit.run.robust import deviations_from_past, difference_noise, is_scatter, is_zero_but_for_rounding
from ckaudit.run.run_facts import why_not_judged_as_loss
from ckaudit.run.series import Floats, Series, at
from ckaudit.run.spikes import largest_rise, passing_peaks, recovers_soon

MIN_SOURCE_CHANGE: float = source_drift.thresholds["min_change"]
MIN_RELATIVE_CHANGE: float = source_drift.thresholds["min_relative_change"]
MIN_LENGTH_CHANGE: float = MIN_DEVIATIONS["seq_len_p50_p95"]

ORDINARY_GAIN = 0.037
"""Share of the loss that the weakest of the healthy decays of public logs and the lab gained."""

OVER_LATER_RISES = 1.5
"""A spike at the peak is over so many times the largest rise after the peak: otherwise the loss swings anyhow."""

STANDARD_ERRORS = 3.0
"""How many standard errors a loss must rise by in a decay, and its last level lie below the points before it to count as one."""

MIN_LEARNT_SHARE = 0.4
"""Share of its first level that a loss must have fallen by for a decay to gain anything: a fine-tuning falls by a third while it
learns the form of its answers, and has nothing to settle after that."""


class _Schedule(NamedTuple):
    """Where the learning rate starts over its peak, when it reaches and when it leaves the peak, and where it ends.

    `warmup` is how many steps the way to the peak took, as far as it is recorded.
    """

    start: float
    peak: float
    reached: int
    left: int
    end: float
    warmup: int

    @property
    def sentence(self) -> str:
        """The schedule as a sentence."""
        ends = f"from step {self.reached} to {self.left}, and ends at {self.end:.0%}"
        return f"the rate starts at {self.start:.0%} of its peak, {self.peak:.3g} {ends}"

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that the answer shows."""
        return {"start": self.start, "peak": self.peak, "peak_step": float(self.reached), "end": self.end}


@question(
    "D4.6",
    needs=[learning_rate, learning_rate_over_peak, train_loss_raw],
    wants=[source_mix_share, language_share, seq_len_p50_p95, weight_rms, val_loss, explained_share, FINDINGS, FACTS],
    rules=(
        "update_out_of_band",
        "initialization_lost",
        "learning_rate_jump",
        "learning_rate_zero",
        "schedule_off_plan",
        "curvature_jump",
        "updates_held_back",
        "updates_rounded_away",
        "gradient_noise_too_high",
    ),
    weighs=("loss_spike", "exploding_gradient"),
    causes=(
        "learning_rate_too_high",
        "learning_rate_too_low",
        "learning_rate_is_zero",
        "missing_warmup",
        "schedule_not_stepping",
        "schedule_horizon_wrong",
        "warmup_never_ends",
        "learning_rate_wrong_after_resume",
        "learning_rate_changed",
        "optimizer_unsuited",
    ),
)
def schedule_right(
    rate: Series,
    over_peak: Series,
    loss: Series,
    sources: Series | None,
    languages: Series | None,
    lengths: Series | None,
    sizes: Series | None,
    val: Series | None,
    explained: Series | None,
    findings: Findings,
    facts: Manifest | None,
    *,
    near: float = 0.9,
    early: int = EARLY_STEPS,
    lost: float = 0.3,
    decayed: float = 0.5,
    gain: float = 0.005,
    few: int = 20,
    solved: float = 0.1,
) -> SeriesAnswer:
    """Is the learning-rate schedule right?

    ## Looks at
    Warm-up, peak and decay of the learning rate, the spikes of loss and gradient up to or near the peak, and the decay's gain.
    ## Good
    No spike began there. Once the rate is below `decayed` of its peak, the loss has fallen by more than `gain` of itself since
    the decay began, or neither stands nor rises (medians of `few` points, or of a third of the decay's; playbook D4.6). Healthy
    decays of public logs and the lab gain 3.7 % and more. A run that does not decay is judged by its peak alone.
    ## Watch
    A spike came back. Spikes count while the rate is above `near` of its highest so far, and the peak no older than the warm-up
    was long, or than `early` steps (as in missing_warmup): what comes later has other reasons. Also watched:

    - A spike that only the loss curve shows, under a rate that starts and ends near its peak: there is no schedule to blame.
      Whether the rate is too high is judged by rules that look at more than the loss.
    - A decay that gained nothing, where the loss is below `solved` of its first.
    - A decay in which the loss stands after a fall of less than two fifths, as of a fine-tuning or before a model groks, or
      stands and saves a tenth of what a constant guess costs: it may be at its floor.
    - A decay in which the loss stands and is so noisy that a gain of 3.7 %, or that of the held-out loss, would not be seen.
    - A decay in which the loss jumps and falls on, as where a task is made harder, or rises as LOSS004 calls harmless.
    ## Bad
    The schedule did harm, or its decay no good:

    - A spike is graver than sev2.
    - A spike of the loss took back `lost` of all that had been gained by then, or was gained in the end (as passing_peaks and
      sustained_rise have it), and does not soon recover (recovers_soon).
    - Such a spike is no sign where it begins with other data, as run.json plans them, or as shares of sources and languages or
      lengths show. Nor is it where LOSS004 calls a rise of this loss harmless.
    - In the decay the loss stands or rises, and gains no more than `gain`.
    - `near`, `lost`, `decayed` (as the late stage of coverage), `solved` and `few` are starting values.
    """
    plan = _schedule(rate, over_peak)
    if plan is None:
        return not_applicable("the learning rate is zero throughout")
    text, numbers = plan.sentence, plan.numbers
    word: Word = "good"
    until = plan.reached + (min(early, plan.warmup) if plan.warmup else early)
    trouble = [finding for finding in _at_peak(over_peak, findings, near) if (finding.first_step or 0) <= until]
    if trouble:
        word = "bad" if any(finding.severity != "sev2" for finding in trouble) else "watch"
        numbers["trouble"] = float(trouble[0].first_step or 0)
        text += f"; {trouble[0].code} is the first spike at the peak, at step {trouble[0].first_step}"
    course = points(loss)
    if why := _why_loss_says_nothing(course, facts):
        return SeriesAnswer(word=word, sentence=f"{text}; {why}", numbers=numbers)
    harmless_rise = why_rise_is_harmless(course.values, sizes, facts)
    logged = (sources, MIN_SOURCE_CHANGE), (languages, MIN_SOURCE_CHANGE), (lengths, MIN_LENGTH_CHANGE)
    spike = None if harmless_rise else _unexplained_spike(course, over_peak, near, until, lost, _planned(facts), logged)
    if spike is not None:
        is_bad = min(plan.start, plan.end) < near and not spike.is_harmless
        word, numbers["spike"] = worst_of(word, "bad" if is_bad else "watch"), spike.height
        text += f"; at step {spike.step}, at the peak, the loss is {spike.height:.3g} above the {spike.low:.4g} before"
    if plan.end < decayed and (decay := _decay(course, plan.left, few, _held_out_gain(val, plan.left))) is not None:
        numbers["gain"] = decay.gain
        text += f"; in the decay the loss goes from {decay.before:.4g} to {decay.after:.4g}"
        if numbers["gain"] <= gain and (decay.rises or decay.stands):
            is_useless = not harmless_rise and _is_bad_decay(decay, float(course.values[0]), solved, explained)
            word = worst_of(word, "bad" if is_useless else "watch")
        elif decay.is_made_harder:
            word = worst_of(word, "watch")
            text += ", which it jumps above, and falls on from there"
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


class _Spike(NamedTuple):
    """The highest jump near the peak: its step, its height above the level before, that level, and whether it did no harm."""

    step: int
    height: float
    low: float
    is_harmless: bool


def _why_loss_says_nothing(course: CurvePoints, facts: Manifest | None) -> str | None:
    """Return why neither a spike nor a decay of this loss says anything of the schedule; None where they do."""
    zero = "the loss is zero but for rounding, as that of a policy" if is_zero_but_for_rounding(course.values) else None
    return why_not_judged_as_loss(facts, course.values) or zero


class _Decay(NamedTuple):
    """The level of the loss before a decay and at its end, whether it rises or stands in the decay, and would show a gain.

    A loss that jumps and falls on from there is of a task that was made harder: no falling rate makes a loss jump.
    """

    before: float
    after: float
    rises: bool
    is_made_harder: bool
    stands: bool
    would_show: bool

    @property
    def gain(self) -> float:
        """The share of itself by which the loss fell."""
        return (self.before - self.after) / abs(self.before) if self.before else 0.0


class _Change(NamedTuple):
    """Two steps between which the data changed: the last that has the old data, and the first that shows the new."""

    old: int
    new: int


def _planned(facts: Manifest | None) -> list[_Change]:
    """Return where the data manifest or the configuration lists another stage."""
    configuration = facts.config if facts is not None else UNSET
    return [_Change(step - 1, step) for step in [*changes_of_data(facts), *steps_of_stages(configuration)]]


def _departing(*logged: tuple[Series | None, float]) -> Iterator[_Change]:
    """Yield where logged shares or lengths leave their past level (as source_drift has it), each by its least change or more."""
    for series, min_change in logged:
        if series is None:
            continue
        away, _ = deviations_from_past(series, min_deviation=min_change, relative=MIN_RELATIVE_CHANGE)
        has_departed = np.any(np.abs(np.nan_to_num(away)) > 1, axis=1).astype(np.int8)
        for row in np.flatnonzero(np.diff(has_departed) > 0) + 1:
            yield _Change(int(series.steps[row - 1]), int(series.steps[row]))


def _unexplained_spike(
    course: CurvePoints,
    over_peak: Series,
    near: float,
    until: int,
    lost: float,
    planned: Sequence[_Change],
    logged: Sequence[tuple[Series | None, float]],
) -> _Spike | None:
    """Return the highest jump near the peak that no change of the data explains; changes in the log are looked for last."""
    has_spike = _spike(course, over_peak, near, until, lost, planned) is not None
    return _spike(course, over_peak, near, until, lost, [*planned, *_departing(*logged)]) if has_spike else None


def _spike(
    course: CurvePoints,
    over_peak: Series,
    near: float,
    until: int,
    lost: float,
    changes: Sequence[_Change],
    *,
    min_jump_share: float = 0.15,
    jump: float = 0.4,
    soon: int = 10,
    around_peak: int = 25,
    back_within: float = 0.01,
) -> _Spike | None:
    """Return the highest jump of the loss while the rate was near its peak.

    Args:
        course: The loss.
        over_peak: The learning rate over its highest so far.
        near: Share of that highest from which on the rate is at its peak.
        until: Last step that belongs to the peak.
        lost: Share that a jump takes back of the way that the loss had come by then, or came by the end of the run.
        changes: Where the data become others: a jump that begins there is the data's.
        min_jump_share: Least jump, as a share of the level before, and least way that the loss had come, as a share of its first.
        jump: Least jump of a single point that is back at once, as a share of the level before.
        soon: Steps after a change of the data in which a jump belongs to it.
        around_peak: Points before and after a jump whose scatter it must stand out of.
        back_within: Share of the steps within which half of a harmless jump is gone.
    """
    steps, values = course
    if len(values) < 5:
        return None
    at_peak = (np.nan_to_num(at(over_peak, steps).values).max(axis=1, initial=0.0) > near) & (steps <= until)
    spikes, end = [], median(values[-max(3, len(values) // 20) :])
    for first, last, low in _stretches(values, min_jump_share):
        rows = first + np.flatnonzero(at_peak[first : last + 1])
        if not len(rows) or any(steps[first] > change.old and steps[first - 1] < change.new + soon for change in changes):
            continue
        row = int(rows[np.argmax(values[rows])])
        height, way = float(values[row] - low), float(values[0] - low)
        enough = max((jump if first == last else min_jump_share) * abs(low), lost * max(way, float(values[0] - end)))
        around = values[max(row - around_peak, 0) : row + around_peak]
        if low > 0 and is_scatter(around, float(values[row]) / low):
            continue
        is_large = way > min_jump_share * abs(values[0]) and height > enough
        if is_large and height > OVER_LATER_RISES * largest_rise(values[steps > until], last - first + 2):
            spikes.append(
                _Spike(
                    int(steps[row]),
                    height,
                    low,
                    recovers_soon(steps, values, int(steps[first]), low, low + height, soon=back_within),
                )
            )
    return max(spikes, key=lambda spike: spike.height, default=None)


def _stretches(values: Floats, min_jump_share: float) -> Iterator[tuple[int, int, float]]:
    """Yield first row, last row and level before: of each stretch above its level that is back, and of a lasting rise."""
    yield from passing_peaks(values, min_ratio=1 + min_jump_share)
    if (rise := sustained_rise(values, min_share=min_jump_share)) is not None:
        yield rise.onset, len(values) - 1, rise.low


def _decay(course: CurvePoints, left: int, few: int, held_out_gain: float) -> _Decay | None:
    """Return what a decay did to the loss; None where fewer than three points lie before it, or six after.

    The level before is that of the last points that have one level in the best-fitting falling curve: a loss may fall steeply as
    long as the rate rises.
    """
    steps, values = course
    before, after = values[steps <= left], values[steps > left]
    few = min(few, len(after) // 3)
    if len(before) < 3 or few < 2:
        return None
    level, recent, noise = before[-min(few, int(isotonic_fits(before).width[-1])) :], before[-few:], difference_noise(values)
    if median(recent) - median(level) < STANDARD_ERRORS * noise / math.sqrt(len(level)):
        level = recent  # a level of one point may be a lucky batch
    part = np.concatenate([level, after])
    rise = sustained_rise(part)
    is_made_harder = rise is not None and falls_from_each_jump(part[rise.onset :], rise)
    error = noise * math.sqrt(1 / len(level) + 1 / few)
    stands_out = median(after[-few:]) - median(level) > STANDARD_ERRORS * error
    return _Decay(
        before=median(level),
        after=median(after[-few:]),
        rises=rise is not None and not is_made_harder and stands_out,
        is_made_harder=is_made_harder,
        stands=flat_fall(part) is not None,
        would_show=fall_would_show(part, min(ORDINARY_GAIN, held_out_gain) if held_out_gain > 0 else ORDINARY_GAIN),
    )


def _is_bad_decay(decay: _Decay, start: float, solved: float, explained: Series | None) -> bool:
    """Tell whether a decay without a gain did harm, or no good where there was something to gain.

    Args:
        decay: What it did.
        start: The first loss.
        solved: Share of it below which there is nothing left.
        explained: Which share of its targets the model explains.
    """
    if abs(decay.after) <= solved * abs(start):
        return False
    has_learnt = start - decay.before >= MIN_LEARNT_SHARE * abs(start)
    return decay.rises or (has_learnt and decay.would_show and not has_used_inputs(explained))


def _held_out_gain(val: Series | None, left: int) -> float:
    """Return the share of the held-out loss that the decay gained, 0 where it is not known."""
    if val is None or not len(val.labels):
        return 0.0
    steps, values = points(val)
    before, after = values[steps <= left][-1:], values[steps > left]
    return float(1 - median(after) / before[0]) if len(before) and len(after) and before[0] > 0 else 0.0


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
    first, reached, left = int(steps[0]), int(steps[at_peak[0]]), int(steps[at_peak[-1]])
    return _Schedule(float(positive[0]) / peak, peak, reached, left, end, warmup=reached - first)


def _at_peak(over_peak: Series, findings: Findings, near: float) -> list[Finding]:
    """Return the spikes that began while the rate was near its highest so far, in order of time."""
    spikes = [finding for finding in findings.of(loss_spike, exploding_gradient) if finding.first_step is not None]
    peaks = at(over_peak, np.array([spike.first_step for spike in spikes], np.int64)).values
    return [candidate for candidate, row in zip(spikes, peaks, strict=True) if np.nan_to_num(row).max() > near]
