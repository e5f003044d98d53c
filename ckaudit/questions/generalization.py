"""Phase 5: does it generalize? Held-out text, capacity, data, and what is forgotten."""

import math

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Word
from ckaudit.metrics.divergence import val_rise
from ckaudit.metrics.evaluation import microbench_score
from ckaudit.metrics.loss import slice_val_loss, train_loss_at_evals, train_loss_raw, train_val_gap, val_loss
from ckaudit.metrics.memorization import forgetting
from ckaudit.metrics.plateau import steps_since_improvement, train_loss_slope, val_slope, val_slope_p
from ckaudit.metrics.progress import tokens_seen
from ckaudit.metrics.scaling import entropy_floor, loss_above_floor, unigram_entropy
from ckaudit.questions.learning import STANDSTILL_RULES, against_floor
from ckaudit.questions.question import SeriesAnswer, lenient_before, not_applicable, not_recorded, question, word_if_high
from ckaudit.questions.values import MIN_SHOWN_RATIO, above_best, changes_of_data, largest, last_row, points
from ckaudit.rules.evaluation.probes_forgotten import probes_forgotten
from ckaudit.rules.loss.overfitting import is_severe_rise, overfitting, rising_held_out_score
from ckaudit.rules.rule import FACTS
from ckaudit.run.medians import medians_of_parts
from ckaudit.run.negligible_changes import is_negligible
from ckaudit.run.rises import sustained_rise
from ckaudit.run.robust import MEDIAN_STANDARD_ERROR_FACTOR, difference_noise
from ckaudit.run.run_facts import why_not_judged_as_loss
from ckaudit.run.series import Floats, Series, Steps
from ckaudit.wording import plural

RISE: float = overfitting.thresholds["min_rise"]
MIN_EVALS: int = overfitting.thresholds["min_evals"]


@question(
    "D5.1",
    needs=[val_loss, train_loss_at_evals, train_val_gap, val_rise],
    wants=[train_loss_raw, FACTS, microbench_score],
    rules=(
        "overfitting",
        "gap_widens",
        "train_val_inverted",
        "split_overlap",
        "validation_noise",
        "evaluated_in_training_mode",
        "evaluation_artifact_changed",
        "nonfinite_values",
        "loss_rises",
        "slice_gap_off",
    ),
)
def overfitted(
    val: Series,
    train: Series,
    gap: Series,
    rise: Series,
    logged: Series | None,
    facts: Manifest | None,
    score: Series | None,
    *,
    max_rise: float = RISE,
    evals: int = MIN_EVALS,
    wide: float = 0.1,
    solved: float = 0.1,
) -> SeriesAnswer:
    """Does it overfit?

    ## Looks at
    The held-out loss beside the training loss at the same steps, from `evals` evaluations on.
    ## Good
    Both fall, and the gap between them stays below `wide` of the held-out loss. The held-out loss is within `max_rise` of its
    best (playbook D5.1; `max_rise` and `evals` are those of overfitting, `wide` is a starting value).
    ## Watch
    The held-out loss stands above its best, or the gap is wide.
    ## Bad
    What is learnt does not hold for other data:

    - The training loss falls and the held-out loss rises or stands, as overfitting has it.
    - The held-out loss ends above its best by more than noise (sustained_rise) and by more than 2 % of what has been learnt, or 5
      % of it where the best is near zero, as LOSS002 has it. The gap is wide besides.
    - A loss that is not known to be of tokens must end 15 % above its best, or 10 % where the training loss is below a fifth.
    - A held-out loss that ends below `solved` of its first is not bad: the task is solved. Nor is one beside a score on held-out
      data that still rises.
    """
    steps, values = points(val)
    if len(values) < evals:
        return not_recorded(f"{len(values)} evaluations; {evals} are needed", "val_loss")
    beside = [points(series) for series in (train, rise, gap)]
    if not all(len(curve.steps) for curve in beside):
        return not_recorded("training and held-out loss are finite at no step together", "val_loss")
    end, (trained, risen, apart) = float(values[-1]), (curve.last[1] for curve in beside)
    lowest = int(np.argmin(values))
    text = f"at step {steps[-1]} the held-out loss is {end:.4g} and the training loss {trained:.4g}, a gap of {apart:+.3g}"
    if risen > 0:
        text += f"; it stands {above_best(risen, float(values[lowest]))}, of step {steps[lowest]}"
    since = len(values) - 1 - lowest
    is_wide = apart > wide * abs(end)
    rising = risen > max_rise and since >= evals
    rose = (
        rising
        and is_wide
        and is_severe_rise(risen, facts, trained / end if end > 0 else math.inf)
        and _rises(values, logged)
        and end > solved * float(values[0])
    )
    if rose and (learnt := rising_held_out_score(score, steps, values)) is not None:
        text, rose = f"{text}; {learnt} still rises", False
    word: Word = "bad" if rose else "watch" if rising or is_wide else "good"
    return SeriesAnswer(word=word, sentence=text, numbers={"val": end, "train": trained, "gap": apart, "rise": risen})


def _rises(values: Floats, logged: Series | None) -> bool:
    """Tell whether a held-out loss ends above its lowest level by more than noise, and by more than is negligible."""
    rise = sustained_rise(values)
    return rise is not None and not is_negligible(rise.end - rise.low, values, logged)


@question(
    "D5.2",
    needs=[val_loss, val_slope, val_slope_p, steps_since_improvement, val_rise],
    wants=[train_loss_raw],
    rules=(
        "overfitting",
        "split_overlap",
        "validation_noise",
        "evaluated_in_training_mode",
        "evaluation_artifact_changed",
        *STANDSTILL_RULES,
    ),
)
def time_to_stop(
    val: Series,
    slope: Series,
    chance: Series,
    since: Series,
    rise: Series,
    logged: Series | None,
    *,
    max_rise: float = RISE,
    flat: float = RISE,
    sure: float = 0.05,
    horizon: int = 100,
) -> SeriesAnswer:
    """Is it time to stop pretraining?

    ## Looks at
    The robust slope of the held-out loss over its last thousand steps, how sure it is, and when the loss last improved.
    ## Good
    Hardly anything is gained any more (playbook D5.2): the loss falls by less than `flat` of itself in a thousand steps, or the
    slope is chance with a probability above `sure` and nothing improved in `horizon` steps. Stopping costs nothing.
    ## Watch
    The loss still falls: going on pays.
    ## Bad
    The loss rose by more than `max_rise` over its best (the limit of overfitting, and that of `flat`), in a rise that no
    evaluation makes by chance: the time to stop was earlier.
    """
    judged = [points(series) for series in (slope, chance, since, rise)]
    if not all(len(curve.steps) for curve in (points(val), *judged)):
        return not_recorded("the held-out loss, or its slope, is finite nowhere", "val_loss")
    step, end = points(val).last
    trend, p, ago, risen = (curve.last[1] for curve in judged)
    share = trend / abs(end) if end else 0.0
    text = f"up to step {step} the held-out loss, {end:.4g}, has a slope of {trend:+.3g} per 1,000 steps"
    text += f" (by chance with p = {p:.2g}); the last improvement was {ago:.0f} steps ago"
    numbers = {"slope": trend, "share": share, "p": p, "since_improvement": ago, "rise": risen}
    ended = share > -flat or (p > sure and ago >= horizon)
    if risen > max_rise:
        text += f"; it stands {above_best(risen, float(points(val).values.min()))}"
    rose = risen > max_rise and _rises(points(val).values, logged)
    return SeriesAnswer(
        word="bad" if rose else "good" if ended and risen <= max_rise else "watch", sentence=text, numbers=numbers
    )


@question(
    "D5.3",
    needs=[loss_above_floor, entropy_floor, train_loss_raw],
    wants=[unigram_entropy],
    rules=(*STANDSTILL_RULES, "loss_rises", "loss_below_floor", "dropped_tokens", "dropout_rate_high"),
    causes=("capacity_too_small",),
)
def capacity_sufficient(
    above_floor: Series, floor: Series, loss: Series, unigram: Series | None, *, near: float = 0.1, flat: float = 0.01
) -> SeriesAnswer:
    """Is the capacity sufficient?

    ## Looks at
    The last training loss against the floor that its power law has, and against word frequencies. The floor holds the entropy of
    the text and what a model of this size cannot learn.
    ## Good
    The loss is within `near` of the way from the start to the floor (playbook D5.3). Only a larger model tells how much of the
    floor is the text's.
    ## Watch
    The loss is farther from the floor, or above the entropy of single tokens.
    ## Bad
    The loss is above that entropy and flat (it changes by less than `flat`, as in D2.4): far above any floor. `near` is a
    starting value.
    """
    return against_floor(above_floor, floor, loss, unigram, near=near, flat=flat)


@question(
    "D5.4",
    needs=[train_loss_raw],
    wants=[train_loss_slope, tokens_seen, FACTS],
    rules=(
        "nonfinite_values",
        "overfitting",
        "batches_of_one_kind",
        "repeated_batch",
        "repeated_documents",
        "tokens_stand_still",
        "text_statistics_drift",
        "loss_rises",
        *STANDSTILL_RULES,
    ),
)
def data_enough(
    loss: Series,
    slope: Series | None,
    tokens: Series | None,
    facts: Manifest | None,
    *,
    returns: float = 0.1,
    steep: float = 0.5,
    enough: int = 3,
    early: int = 300,
) -> SeriesAnswer:
    """Is there enough data?

    ## Looks at
    The slope of the training loss in its last hundred points over the steepest, and the tokens seen for each parameter. With
    fewer than `enough` hundreds of points, the slopes between the medians of equal parts count, of three points each at least.
    ## Good
    The slope is at most `returns` of the steepest: returns diminish (playbook D5.4).
    ## Watch
    The slope is more than `returns` of the steepest.
    ## Bad
    The data ends, or the run does, while the loss still falls as fast as ever:

    - The slope is more than `steep` of the steepest, with few points by two standard errors more.
    - With fewer than `enough` slopes, or before step `early`, that cannot be told: every run begins so.
    - The four limits are starting values.
    """
    if undirected := why_not_judged_as_loss(facts, points(loss).values):
        return not_applicable(undirected)
    steps, values, error = _slopes(loss, slope, enough)
    falls = np.maximum(-values, 0.0)
    if len(falls) < enough:
        min_evals = 3 * (enough + 1)
        return not_recorded(f"{points(loss).values.size} points of the loss; {min_evals} are needed", "train_loss_raw")
    steepest, end = int(np.argmax(falls)), float(falls[-1])
    share = end / float(falls[steepest]) if falls[steepest] > 0 else 0.0
    text = f"the loss falls by {end:.3g} in 1,000 steps at step {steps[-1]}, by {falls[steepest]:.3g} at its steepest,"
    text += f" step {steps[steepest]}: {share:.1%} of it"
    numbers = {"slope": end, "steepest": float(falls[steepest]), "share": share}
    if tokens is not None:
        numbers["tokens"] = points(tokens).last[1]
        text += f"; {numbers['tokens']:,.0f} tokens were seen"
        if facts is not None and facts.parameters is not UNSET and facts.parameters:
            numbers["tokens_per_parameter"] = numbers["tokens"] / facts.parameters
            text += f", {numbers['tokens_per_parameter']:.3g} for each parameter"
    is_steep = end - 2 * error > steep * falls[steepest]
    word = lenient_before("bad", int(steps[-1]), early) if is_steep else word_if_high(share, watch=returns, bad=np.inf)
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


def _slopes(loss: Series, slope: Series | None, enough: int, *, parts: int = 10, fewest: int = 3) -> tuple[Steps, Floats, float]:
    """Return steps and slopes of the loss in 1,000 steps, and the standard error of the last slope.

    Args:
        loss: The training loss.
        slope: Its slopes in windows of a hundred points, without an error worth speaking of.
        enough: How many windows will do; with fewer, the slopes between equal parts of the record are taken.
        parts: Most parts.
        fewest: Points in a part.
    """
    if slope is not None and slope.points >= enough:
        return *points(slope), 0.0
    steps, values = points(loss)
    count = min(parts, len(values) // fewest)
    if count < 2:
        return steps[:0], values[:0], 0.0
    places, stages = medians_of_parts(steps.astype(float), count), medians_of_parts(values, count)
    way = np.diff(places) / 1000
    noise = difference_noise(values)
    error = MEDIAN_STANDARD_ERROR_FACTOR * noise * math.sqrt(2 / (len(values) // count)) / float(way[-1])
    return places[1:].astype(np.int64), np.diff(stages) / way, error


@question(
    "D5.5",
    wants=[forgetting, slice_val_loss, FACTS],
    rules=(
        "slice_regression",
        "probes_forgotten",
        "probe_jump",
        "benchmark_regression",
        "return_lost",
        "token_drift",
        "input_drift",
        "source_drift",
    ),
)
def forgets(
    probes: Series | None,
    slices: Series | None,
    facts: Manifest | None,
    *,
    watch: float = probes_forgotten.thresholds["note_ratio"],
    bad: float = probes_forgotten.thresholds["sev2_ratio"],
) -> SeriesAnswer:
    """Does it forget what it knew?

    ## Looks at
    The perplexity of each early probe, or else of each held-out slice, over its lowest so far, at the last checkpoint.
    ## Good
    The perplexity stays low: at most `watch` times its lowest (playbook D5.5).
    ## Watch
    The perplexity is more than that.
    ## Bad
    The perplexity is more than `bad` times its lowest, unless run.json plans other data: what that data leaves out is forgotten,
    and comes back with it. Both limits are those of probes_forgotten.
    """
    row = last_row(probes) if probes is not None else _over_lowest(slices) if slices is not None else None
    if row is None:
        return not_recorded("no early probe and no slice was followed", "probe_perplexity", "slice_val_loss")
    step, ratios = row
    name, times = largest(ratios)
    noun = "probe" if probes is not None else "slice"
    text = f"at step {step} {name} has {times:.3g}x its lowest perplexity, the most of {plural(len(ratios), noun)}"
    if times < MIN_SHOWN_RATIO:
        text = f"at step {step} no perplexity of {plural(len(ratios), noun)} is above its lowest"
    planned = [change for change in changes_of_data(facts) if 1 < change <= step]
    if planned and times > bad:
        text += f"; other data were planned from step {planned[-1]} on"
    word = word_if_high(times, watch=watch, bad=np.inf if planned else bad)
    return SeriesAnswer(word=word, sentence=text, numbers={"forgetting": times, f"{noun}s": float(len(ratios))})


def _over_lowest(slices: Series) -> tuple[int, dict[str, float]] | None:
    """Return the last step, and each slice's perplexity there over its lowest; None where none was evaluated twice."""
    courses = {label: points(slices, label) for label in slices.labels}
    known = {label: course for label, course in courses.items() if len(course.values) > 1}
    if not known:
        return None
    ratios = {label: math.exp(min(700.0, course.last[1] - float(course.values.min()))) for label, course in known.items()}
    return max(course.last[0] for course in known.values()), ratios
