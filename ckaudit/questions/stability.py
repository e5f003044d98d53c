"""Phase 4: is it stable? Spikes, gradients that vanish or explode, clipping, activations and the schedule."""

import numpy as np

from ckaudit.causes.cause import Findings
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Word
from ckaudit.metrics.activations import activation_outlier_rate, activation_std, largest_output
from ckaudit.metrics.gradients import block_gradient_norm, grad_global_norm, gradient_norm, gradient_share
from ckaudit.metrics.loss import ends_at_best, ends_no_higher, learnt_since, ratio_to_guess, train_loss_raw, where_unsolved
from ckaudit.metrics.movement import epsilon_to_gradient
from ckaudit.metrics.optimizer import clip_coefficient, grad_clip_rate, learning_rate
from ckaudit.metrics.spikes import grad_norm_over_median, loss_over_median
from ckaudit.metrics.weights import weight_rms
from ckaudit.questions.question import (
    FINDINGS,
    SeriesAnswer,
    lenient_before,
    not_applicable,
    not_recorded,
    question,
    word_if_high,
    worst_of,
)
from ckaudit.questions.values import (
    MIN_SHOWN_RATIO,
    growth,
    largest,
    last_row,
    levels,
    points,
    ratio_of_alike,
    ratio_to_lowest_before,
    rises_at_once,
    row_of,
    smallest,
    uneven_list,
)
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import clips_less_at_end, frequent_clipping, is_cancelled_by_adam
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.rule import FACTS
from ckaudit.run.medians import median, thirds_of_steps
from ckaudit.run.robust import ENOUGH_FOR_NOISE
from ckaudit.run.run_facts import is_reinforcement_learning, takes_turns
from ckaudit.run.series import Series, Steps, at
from ckaudit.run.spikes import sustained_growth
from ckaudit.run.tensor_groups import alike_blocks
from ckaudit.run.tensors import table_of

MIN_AT_THE_END: int = frequent_clipping.thresholds["min_points"]

FELT_LOSS_SHARE: float = exploding_gradient.thresholds["felt_loss_share"]


@question(
    "D4.1",
    needs=[train_loss_raw],
    wants=[loss_over_median, grad_norm_over_median, learning_rate, gradient_share, FINDINGS],
    rules=("loss_spike", "validation_spike", "seam_jump", "optimizer_state_reset", "nonfinite_values", "hidden_nonfinite"),
    weighs=("loss_rises",),
)
def spike_recovers(
    loss: Series,
    relative: Series | None,
    gradient: Series | None,
    rate: Series | None,
    shares: Series | None,
    findings: Findings,
    *,
    jump: float = loss_spike.thresholds["jump_ratio"],
) -> SeriesAnswer:
    """Why did the loss spike?

    ## Looks at
    The largest jump of the loss over the median of the points before it, or, with fewer than fifty points, over the lowest level
    before it. Beside it, the gradient norm, the learning rate and the tensor with the largest share of the gradient at that step.
    ## Good
    There is no incident, as loss_spike counts them: isolated points are none (playbook D4.1).
    ## Watch
    An incident came back, or a loss rises and stays (loss_rises).
    ## Bad
    The loss did not recover:

    - Incidents did not come back, or came again and again: go back to an earlier checkpoint.
    - With fewer than fifty points, loss_spike knows only the peaks that are back. There a loss is bad that rises and stays, and
      makes half of the way at once, to more than `jump` times the level before (that of loss_spike).
    """
    course = points(loss)
    rises = findings.of(loss_rises)
    stays = (
        None if relative is not None else next((rise for rise in rises if rises_at_once(course, rise, min_rise_ratio=jump)), None)
    )
    if relative is None and stays is None and len(course.values) < ENOUGH_FOR_NOISE:
        return not_recorded(f"{len(course.values)} points of train_loss_raw; {ENOUGH_FOR_NOISE} are needed", "train_loss_raw")
    steps, heights = points(relative) if relative is not None else ratio_to_lowest_before(course)
    level = "median" if relative is not None else "lowest level"
    if stays is None and heights.max(initial=0.0) <= 1:
        return SeriesAnswer(word="watch" if rises else "good", sentence=f"no loss stands above the {level} of those before it")
    step = int(steps[int(np.argmax(heights))]) if stays is None else int(stays.first_step or 0)
    at_spike = np.array([step], np.int64)
    numbers = {"step": float(step), "loss": float(at(loss, at_spike).values[0, 0])}
    text = f"the largest jump is at step {step}: {numbers['loss']:.4g}"
    for height in heights[steps == step].tolist():
        numbers[f"over_{level.partition(' ')[0]}"] = height
        text += f", {height:.3g}x the {level} before it"
    circumstances, others = _at_jump(at_spike, gradient, rate, shares)
    word: Word = "bad" if stays else "watch" if rises else "good"
    circumstances += "; it stays there" if stays else f"; {rises[0].code} tells of a rise that stays" if rises else ""
    return SeriesAnswer(word=word, sentence=text + circumstances, numbers=numbers | others)


def _at_jump(step: Steps, gradient: Series | None, rate: Series | None, shares: Series | None) -> tuple[str, dict[str, float]]:
    """Return in words and numbers what gradient norm, learning rate and tensor there were at a step, shape (1,)."""
    text, numbers = "", {}
    if gradient is not None and (at_step := at(gradient, step)).age[0, 0] == 0:
        numbers["gradient_over_median"] = float(at_step.values[0, 0])
        text += f"; the gradient norm is {numbers['gradient_over_median']:.3g}x its own"
    if rate is not None and np.isfinite(rates := at(rate, step).values).any():
        numbers["learning_rate"] = float(np.nanmax(rates))
        text += f"; the learning rate {numbers['learning_rate']:.3g}"
    if shares is not None and np.isfinite((known := at(shares, step)).values).any():
        column = int(np.nanargmax(known.values[0]))
        text += f"; {shares.labels[column]} has {known.values[0, column]:.0%} of the gradient"
        text += f" {known.age[0, column]} steps before" if known.age[0, column] else ""
    return text, numbers


@question(
    "D4.2",
    needs=[block_gradient_norm],
    wants=[FACTS, gradient_norm, weight_rms, train_loss_raw],
    rules=("vanishing_gradient", "starved_branch"),
)
def gradient_vanishes(
    norm: Series,
    facts: Manifest | None,
    tensors: Series | None,
    rms: Series | None,
    loss: Series | None,
    *,
    ordinary: float = vanishing_gradient.thresholds["note_ratio"],
    starved: float = vanishing_gradient.thresholds["max_ratio"],
) -> SeriesAnswer:
    """Does the gradient vanish?

    ## Looks at
    How many times less gradient the weakest block gets than the strongest of its list, at the last checkpoint and at the worst.
    Checkpoints at which the loss is below a tenth of its first are left out where there are others: chance rules there.
    ## Good
    The weakest block gets at most `ordinary` times less (playbook D4.2; the limits are those of vanishing_gradient).
    ## Watch
    The weakest block gets less than that, or was more than `starved` times below the strongest at an earlier checkpoint.
    ## Bad
    At the last checkpoint, a block gets more than `starved` times less than a block of its build, the square of that less than
    one of another build, or none at all.
    """
    if len(norm.labels) < 2:
        return not_applicable("the model has fewer than two blocks")
    norm = where_unsolved(norm, loss)
    rows = [(int(norm.steps[row]), uneven_list(row_of(norm, int(row)))) for row in np.flatnonzero(norm.finite.any(axis=1))]
    apart = [(_apart(row), step, row) for step, row in rows]
    now, step, row = apart[-1]
    worst, when, then = max(apart, key=lambda ratio: ratio[0])
    text = f"at step {step} {_weakest(row)}"
    if worst > now:
        text += f"; at the worst, step {when}, {_weakest(then)}"
    alike = ratio_of_alike(row, norm.labels, alike_blocks(norm.labels, table_of(facts), tensors, rms))
    word: Word = "bad" if alike > starved or now > starved**2 else word_if_high(now, watch=ordinary, bad=np.inf)
    word = worst_of(word, word_if_high(worst, watch=starved, bad=np.inf))
    return SeriesAnswer(word=word, sentence=text, numbers={"ratio": now, "worst_ratio": worst})


def _apart(row: dict[str, float]) -> float:
    """Return the ratio of the largest value to the smallest: 1 where all are zero."""
    smallest_norm, largest_norm = min(row.values()), max(row.values())
    return largest_norm / smallest_norm if smallest_norm > 0 else np.inf if largest_norm > 0 else 1.0


def _weakest(row: dict[str, float]) -> str:
    (low, low_value), (high, high_value) = smallest(row), largest(row)
    if low_value == high_value:
        return "all blocks get the same gradient" if high_value > 0 else "no block gets a gradient"
    return f"{low} gets {high_value / low_value:.3g}x less gradient than {high}" if low_value > 0 else f"{low} gets no gradient"


@question(
    "D4.3",
    needs=[grad_global_norm],
    wants=[gradient_norm, train_loss_raw, FACTS],
    rules=(
        "exploding_gradient",
        "overflow",
        "gradients_carried_over",
        "noise_scale_jump",
        "nonfinite_values",
        "hidden_nonfinite",
    ),
)
def gradient_explodes(
    norm: Series,
    tensors: Series | None,
    loss: Series | None,
    facts: Manifest | None,
    *,
    watch: float = exploding_gradient.thresholds["note_ratio"],
    bad: float = exploding_gradient.thresholds["max_ratio"],
    fewest: int = 8,
    early: int = 50,
    shoots: float = 20.0,
) -> SeriesAnswer:
    """Does the gradient explode?

    ## Looks at
    Where the gradient norm stands at the end, and how it began:

    - The level of the global gradient norm in the last of ten stretches, over its lowest level, from `fewest` points on. Shorter
      records have as many stretches as have two points each.
    - The tensor that grew most, by thirds of the record.
    - How far the norm shot up in the first `early` steps, over the median of its first three points.
    ## Good
    The norm is stable, or falls slowly (playbook D4.3).
    ## Watch
    The norm is larger than it was, and may be so for a harmless reason:

    - It is more than `watch` times as large (the limits are those of exploding_gradient).
    - It shot up at first by more than `shoots` times, and came back.
    - It ends below where it began, however small it was in between, as where a task is solved but for its hard samples.
    - The model makes its own data, whose returns grow with what it can do, or takes turns with another model, whose progress
      makes its loss steeper.
    - It grows to the square of `bad` at most while the loss is no higher than it was: the sharper a density is that a model
      learns, the steeper is its loss.
    ## Bad
    The norm is more than `bad` times as large. With stretches of two points each, it must have grown in a growth that lasts
    (sustained_growth, as in exploding_gradient). `early` and `shoots` are starting values (healthy runs of the lab stay at 11 and
    below, one without warm-up comes to 35).
    """
    steps, values = points(norm)
    if len(values) < fewest:
        return not_recorded(f"{len(values)} points of grad_global_norm; {fewest} are needed", "grad_global_norm")
    stages = levels(values, min(10, len(values) // 2))
    low, end = float(stages.min()), float(stages[-1])
    if low <= 0:
        low = float(values[values > 0].min(initial=np.inf))
    ratio = end / low
    text = f"the level of the gradient norm goes from {stages[0]:.3g} to {end:.3g} by step {steps[-1]}, "
    text += f"{ratio:.3g}x its lowest" if ratio >= MIN_SHOWN_RATIO else "its lowest"
    numbers = {"first": float(stages[0]), "last": end, "lowest": low, "ratio": ratio}
    if tensors is not None and (grown := growth(tensors, early=0)):
        name, times = largest(grown)
        numbers["tensor_ratio"] = times
        text += f"; {name} is the one that grew most, {times:.3g}x"
    at_first = values[steps <= steps[0] + early]
    peak, first = int(np.argmax(at_first)), median(values[:3])
    shot = float(at_first[peak]) / first if first > 0 else 0.0
    lasts = len(values) >= 20 or sustained_growth(values[values > 0], min_ratio=bad) is not None
    limit = bad**2 if ends_no_higher(loss, felt=FELT_LOSS_SHARE) or ends_at_best(loss, felt=FELT_LOSS_SHARE) else bad
    is_bad = lasts and end > stages[0] and not is_reinforcement_learning(facts) and not takes_turns(facts)
    word = word_if_high(ratio, watch=watch, bad=limit if is_bad else np.inf)
    if shot > shoots:
        numbers["shot"] = shot
        text += f"; it shot up to {at_first[peak]:.3g} at step {steps[peak]}, {shot:.3g}x its first level"
        word = worst_of(word, "watch")
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


@question(
    "D4.4",
    needs=[grad_clip_rate, clip_coefficient],
    wants=[gradient_share, train_loss_raw, epsilon_to_gradient, grad_global_norm],
    rules=("frequent_clipping", "dominant_tensor"),
)
def clipping_hides(
    rate: Series,
    factor: Series,
    shares: Series | None,
    loss: Series | None,
    epsilon: Series | None,
    norm: Series | None,
    *,
    warmup: int = frequent_clipping.thresholds["warmup"],
    often: float = frequent_clipping.thresholds["note_rate"],
    always: float = frequent_clipping.thresholds["max_rate"],
    deep: float = frequent_clipping.thresholds["deep_coefficient"],
    felt: float = frequent_clipping.thresholds["felt_epsilon"],
) -> SeriesAnswer:
    """Does clipping hide a cause?

    ## Looks at
    How often and how deeply the gradient is clipped, and by which tensor:

    - The share of clipped steps in the last hundred, after the first `warmup` steps.
    - How much clipping leaves at their median. A coefficient of exactly 0 belongs to an infinite norm, whose update the loss
      scaler skips: it does not count.
    - Which tensor has the largest part of the gradient, and how often.
    ## Good
    At most `often` of the steps are clipped (playbook D4.4; the limits are those of frequent_clipping).
    ## Watch
    More of the steps are clipped, but mildly, or no longer deeply at the end. Or the optimizer divides the size of the gradient
    out again: epsilon is below `felt` of the clipped gradient in every matrix.
    ## Bad
    More than `always` of the steps are clipped, and less than `deep` of the gradient is left, to the end. Where the loss is
    larger than a guess among tokens costs, that limit is as many times less.
    """
    steps, values = points(rate)
    if steps[-1] <= warmup:
        return not_recorded(f"the first {warmup} steps are not judged; the run has {steps[-1]}", "grad_clip_rate")
    step, share = int(steps[-1]), float(values[-1])
    inside = factor.values[factor.finite & (factor.steps > step - 100)[:, None]]
    left = median(inside[inside > 0]) if (inside > 0).any() else 1.0
    text = f"{share:.0%} of the last hundred steps up to {step} were clipped, at the median to {left:.2g} of the gradient"
    numbers = {"rate": share, "left": left}
    if shares is not None:
        tops = [largest(row_of(shares, int(row)))[0] for row in np.flatnonzero(shares.finite.any(axis=1))]
        name = max(dict.fromkeys(tops), key=tops.count)
        numbers["offender"] = tops.count(name) / len(tops)
        text += f"; {name} is the largest part of the gradient at {tops.count(name)} of {len(tops)} checkpoints"
    limit = deep / ratio_to_guess(loss)
    is_deep = (
        share > always
        and left < limit
        and not (clips_less_at_end(factor, limit, MIN_AT_THE_END) or is_cancelled_by_adam(factor, norm, epsilon, felt))
    )
    word = "bad" if is_deep else word_if_high(share, watch=often, bad=np.inf)
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


@question(
    "D4.5",
    needs=[activation_std],
    wants=[activation_outlier_rate, train_loss_raw],
    rules=(
        "nonfinite_values",
        "hidden_nonfinite",
        "activation_drift",
        "dead_units",
        "saturated_units",
        "logit_growth",
        "input_scale_off",
        "weights_grow",
        "weight_scale_off",
        "spectral_norm_runaway",
    ),
    causes=("normalization_missing", "saturating_activation"),
)
def activations_healthy(
    spread: Series,
    outliers: Series | None,
    loss: Series | None,
    *,
    watch: float = 1.5,
    bad: float = activation_drift.thresholds["max_ratio"],
    usual: float = activation_drift.thresholds["usual_ratio"],
    paid: float = activation_drift.thresholds["paid_loss_fall"],
    tail: float = activation_drift.thresholds["max_outlier_rate"],
    early: int = 100,
) -> SeriesAnswer:
    """Are the activations healthy?

    ## Looks at
    The spread of every module's output in the last third of the steps over that in the middle third, for at first all of them
    grow. Beside it, the share of elements beyond six deviations.
    ## Good
    No module's spread grows by more than `watch` times in a hundred steps (playbook D4.5; drill DR-1 watches half as much again).
    ## Watch
    The spread of a module does, or more than `tail` percent of a module's elements lie far outside (as activation_drift has it).
    Or a spread has grown while the loss fell by more than `paid` of itself (as activation_drift has it): it grew with what was
    learnt.
    ## Bad
    The spread of a module has grown by more than `bad` times altogether, after `early` steps (a starting value), to more than
    `usual` times the largest spread of any module before. Or the residual stream runs away or vanishes while the loss does not
    fall (as activation_drift has it): branches come and go.
    """
    grown = growth(spread, early=1)
    if not grown:
        return not_recorded(f"{spread.points} checkpoints with activations; 3 are needed", "activation_std")
    name, times = largest(grown)
    steps = points(spread, name).steps
    middle, end = (int(median(steps[part])) for part in thirds_of_steps(steps)[1:])
    pace = times ** min(1.0, 100 / (end - middle))
    text = f"from about step {middle} to {end} the spread of {name} grew most, {times:.3g}x, or {pace:.3g}x in a hundred steps"
    level = median(points(spread, name).values[thirds_of_steps(steps)[2]])
    bad = bad if level > usual * largest_output(spread) else np.inf
    runs_away = lenient_before(word_if_high(times, watch=np.inf, bad=bad), int(spread.steps[-1]), early)
    if runs_away == "bad" and loss is not None and learnt_since(loss, middle) > paid:
        runs_away = "watch"
    word, numbers = worst_of(runs_away, word_if_high(pace, watch=watch, bad=np.inf)), {"growth": times, "pace": pace}
    if outliers is not None:
        step, row = last_row(outliers)
        where, share = largest(row)
        numbers["outliers"] = share
        text += f"; at most {share:.2g} % lie far outside, in {where} at step {step}"
        word = worst_of(word, word_if_high(share, watch=tail, bad=np.inf))
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)
