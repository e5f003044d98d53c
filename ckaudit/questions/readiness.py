"""Phase 6: is it ready for fine-tuning, did fine-tuning work, and is it ready for what comes after?

The answers read these names, which an evaluation logs; scores are 0 to 1, or percent where one is above 1:

    microbench_score/coherence               unseen text reads as one text
    microbench_score/fluency                 the language is whole
    microbench_score/instruction_following   what is asked is done, on instructions never trained on
    microbench_score/format_adherence        answers have the format that was asked for
    microbench_score/consistency             the same request gets answers of the same quality
    slice_val_loss/instruction               held-out loss on text in the format of instructions
"""

import numpy as np

from ckaudit.contract.schema.report import Word
from ckaudit.metrics.divergence import val_rise
from ckaudit.metrics.evaluation import microbench_score
from ckaudit.metrics.loss import slice_val_loss, val_loss
from ckaudit.metrics.memorization import STAGES, probe_group_perplexity
from ckaudit.metrics.plateau import val_slope, val_slope_p
from ckaudit.metrics.probes import HELD_OUT, TRAIN, probe_accuracy
from ckaudit.questions.learning import STANDSTILL_RULES
from ckaudit.questions.question import SeriesAnswer, not_recorded, question, word_if_high, word_if_low, worst_of
from ckaudit.questions.values import CurvePoints, above_best, points
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.run.falls import ends_lower
from ckaudit.run.rises import sustained_rise
from ckaudit.run.series import Series

RISE: float = overfitting.thresholds["min_rise"]
COHERENCE, FLUENCY, FOLLOWING = "coherence", "fluency", "instruction_following"
FORMAT, CONSISTENCY, INSTRUCTION = "format_adherence", "consistency", "instruction"
WELL_SCORE, BROKEN_SCORE = 0.8, 0.5
"""Scores from which on a trait is reliable, and below which it is broken (starting values)."""


@question(
    "D6.1",
    needs=[val_loss, val_slope, val_slope_p, val_rise],
    wants=[microbench_score],
    rules=(
        "overfitting",
        "split_overlap",
        "validation_noise",
        "evaluated_in_training_mode",
        "evaluation_artifact_changed",
        *STANDSTILL_RULES,
    ),
)
def pretraining_done(
    val: Series,
    slope: Series,
    chance: Series,
    rise: Series,
    scores: Series | None,
    *,
    flat: float = RISE,
    max_rise: float = RISE,
    sure: float = 0.05,
    well: float = WELL_SCORE,
    broken: float = BROKEN_SCORE,
) -> SeriesAnswer:
    """When is pretraining done?

    ## Looks at
    The slope of the held-out loss over its last thousand steps, and `microbench_score/coherence`: whether unseen text is
    continued coherently.
    ## Good
    The held-out loss falls by less than `flat` of itself in a thousand steps, or by no more than chance (p above `sure`), and
    coherence is at least `well` (playbook D6.1).
    ## Watch
    The held-out loss still falls: not yet. Or coherence is below `well`.
    ## Bad
    The held-out loss rose by more than `max_rise` over its best (`flat` and `max_rise` are the limit of overfitting), in a rise
    that no evaluation makes by chance. Or it is flat, and coherence is below `broken`. `well` and `broken` are starting values. A
    plateau without a score of coherence is half an answer: not recorded.
    """
    judged = [points(series) for series in (slope, chance, rise)]
    if not all(len(curve.steps) for curve in (points(val), *judged)):
        return not_recorded("the held-out loss, or its slope, is finite nowhere", "val_loss")
    step, end = points(val).last
    trend, p, risen = (curve.last[1] for curve in judged)
    share = trend / abs(end) if end else 0.0
    text = f"at step {step} the held-out loss is {end:.4g}, with a slope of {trend:+.3g} per 1,000 steps (p = {p:.2g})"
    numbers = {"val": end, "slope": trend, "share": share, "p": p, "rise": risen}
    coherent = _scores(scores, COHERENCE)
    if len(coherent.values):
        numbers[COHERENCE] = coherent.last[1]
        text += f"; {COHERENCE} is {numbers[COHERENCE]:.2g}"
    if risen > max_rise:
        word: Word = "bad" if sustained_rise(points(val).values) is not None else "watch"
        lowest = float(points(val).values.min())
        return SeriesAnswer(word=word, sentence=f"{text}; it stands {above_best(risen, lowest)}", numbers=numbers)
    if share < -flat and p <= sure:
        return SeriesAnswer(word="watch", sentence=f"{text}: it still falls", numbers=numbers)
    if COHERENCE not in numbers:
        missing = (f"microbench_score/{COHERENCE}",)
        return SeriesAnswer(
            word="not_recorded",
            sentence=f"{text}; whether unseen text is coherent is not known",
            numbers=numbers,
            missing=missing,
        )
    return SeriesAnswer(word=word_if_low(numbers[COHERENCE], watch=well, bad=broken), sentence=text, numbers=numbers)


@question("D6.2", needs=[microbench_score])
def fine_tuning_may_start(scores: Series, *, well: float = WELL_SCORE, broken: float = BROKEN_SCORE) -> SeriesAnswer:
    """Should supervised fine-tuning start?

    ## Looks at
    `microbench_score/fluency`, and beside it `microbench_score/instruction_following`, on prompts like instructions.
    ## Good
    The language is fluent, `well` or more, and instructions are followed weakly, below `well` (playbook D6.2).
    ## Watch
    Fluency is lower, or instructions are followed well already, so that there is little to gain.
    ## Bad
    Fluency is below `broken`: fine-tuning repairs no language. Both are starting values.
    """
    fluent, following = _scores(scores, FLUENCY), _scores(scores, FOLLOWING)
    missing = [name for name, known in ((FLUENCY, fluent), (FOLLOWING, following)) if not len(known.values)]
    texts = [
        f"{name.replace('_', ' ')} is {known.last[1]:.2g} at step {known.last[0]}"
        for name, known in ((FLUENCY, fluent), (FOLLOWING, following))
        if len(known.values)
    ]
    if len(fluent.values) and fluent.last[1] < broken:
        return SeriesAnswer(word="bad", sentence="; ".join(texts), numbers={FLUENCY: fluent.last[1]})
    if missing:
        return not_recorded("; ".join(texts) or "no score of fluency", *(f"microbench_score/{name}" for name in missing))
    numbers = {FLUENCY: fluent.last[1], FOLLOWING: following.last[1]}
    word = worst_of(
        word_if_low(numbers[FLUENCY], watch=well, bad=broken), word_if_high(numbers[FOLLOWING], watch=well, bad=np.inf)
    )
    return SeriesAnswer(word=word, sentence="; ".join(texts), numbers=numbers)


@question("D6.3", wants=[slice_val_loss, microbench_score])
def fine_tuning_works(slices: Series | None, scores: Series | None, *, min_change: float = 0.01) -> SeriesAnswer:
    """Does fine-tuning work?

    ## Looks at
    `slice_val_loss/instruction`, and whether `microbench_score/format_adherence` and, where it is logged,
    `microbench_score/instruction_following` rise with it, from the first evaluation to the last.
    ## Good
    The loss falls and the scores rise, each by more than `min_change` of its first value and by more than noise (playbook D6.3).
    ## Watch
    The score of the format rises and the loss does not fall, or instructions are followed no better than at first.
    ## Bad
    The loss falls while the format is ignored: its score does not rise. Or neither moves. `min_change` is a starting value.
    """
    loss = CurvePoints(np.empty(0, np.int64), np.empty(0)) if slices is None else points(slices, INSTRUCTION)
    formed, following = _scores(scores, FORMAT), _scores(scores, FOLLOWING)
    named = ((f"slice_val_loss/{INSTRUCTION}", loss), (f"microbench_score/{FORMAT}", formed))
    missing = [name for name, known in named if len(known.values) < 2]
    if missing:
        return not_recorded("fewer than two evaluations of instructions", *missing)
    text = (
        f"the loss on instructions goes from {loss.first[1]:.4g} at step {loss.first[0]} to {loss.last[1]:.4g} at {loss.last[0]}"
    )
    text += f", the score of the format from {formed.first[1]:.2g} to {formed.last[1]:.2g}"
    numbers = {
        "loss_first": loss.first[1],
        "loss_last": loss.last[1],
        "format_first": formed.first[1],
        "format_last": formed.last[1],
    }
    falls, rises = ends_lower(loss.values, min_fall=min_change), ends_lower(-formed.values, min_fall=min_change)
    word: Word = "good" if falls and rises else "watch" if rises else "bad"
    if len(following.values) > 1:
        numbers |= {"following_first": following.first[1], "following_last": following.last[1]}
        text += f", that of following them from {following.first[1]:.2g} to {following.last[1]:.2g}"
        if word == "good" and not ends_lower(-following.values, min_fall=min_change):
            word = "watch"
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


@question("D6.4", needs=[microbench_score])
def preference_tuning_may_start(
    scores: Series, *, reliable: float = 0.9, well: float = WELL_SCORE, broken: float = BROKEN_SCORE
) -> SeriesAnswer:
    """When does fine-tuning give way to preference tuning?

    ## Looks at
    `microbench_score/format_adherence` and `microbench_score/consistency`.
    ## Good
    The format is kept reliably, `reliable` or more, and quality is consistent, `well` or more (playbook D6.4).
    ## Watch
    One of them is lower.
    ## Bad
    The score of the format is below `broken`: basic compliance comes first. The three limits are starting values.
    """
    formed, steady = _scores(scores, FORMAT), _scores(scores, CONSISTENCY)
    last = {name: course.last for name, course in ((FORMAT, formed), (CONSISTENCY, steady)) if len(course.values)}
    text = "; ".join(f"{name.replace('_', ' ')} is {value:.2g} at step {step}" for name, (step, value) in last.items())
    numbers = {name: value for name, (_, value) in last.items()}
    if FORMAT in numbers and numbers[FORMAT] < broken:
        return SeriesAnswer(word="bad", sentence=text, numbers=numbers)
    if missing := [f"microbench_score/{name}" for name in (FORMAT, CONSISTENCY) if name not in numbers]:
        return not_recorded(text or "no score of the format", *missing)
    words = word_if_low(numbers[FORMAT], watch=reliable, bad=broken), word_if_low(numbers[CONSISTENCY], watch=well, bad=0)
    return SeriesAnswer(word=worst_of(*words), sentence=text, numbers=numbers)


@question("D6.5", needs=[probe_accuracy], wants=[probe_group_perplexity])
def pretraining_quality(
    accuracy: Series, perplexity: Series | None, *, strong: float = STAGES[1], hardly: float = STAGES[0], apart: float = 0.5
) -> SeriesAnswer:
    """How good is the pretraining, before fine-tuning?

    ## Looks at
    How the second halves of seen and of held-out texts are continued: the share of exact tokens, and the log of the perplexity of
    the true continuation.
    ## Good
    Seen probes are continued to `strong` or more, and the log perplexity of held-out ones fell by `apart` of its first (playbook
    D6.5; `strong` and `hardly` are the stages of memorization_stage, `apart` is a starting value).
    ## Watch
    Seen probes are continued less, or the perplexity of held-out ones fell less.
    ## Bad
    Not even seen probes are continued: to less than `hardly`.
    """
    seen = points(accuracy, TRAIN)
    if not len(seen.values):
        return not_recorded("no probe of training was continued", "probe_accuracy")
    step, share = seen.last
    text, numbers = f"at step {step} {share:.0%} of the tokens of seen probes are continued exactly", {"seen": share}
    if share < hardly:
        return SeriesAnswer(word="bad", sentence=text, numbers=numbers)
    unseen = CurvePoints(np.empty(0, np.int64), np.empty(0)) if perplexity is None else points(perplexity, HELD_OUT)
    if len(unseen.values) < 2:
        return not_recorded(f"{text}; held-out probes were not scored twice", "probe_perplexity")
    first, end = unseen.first[1], unseen.last[1]
    fell = 1 - np.log(max(end, 1.0)) / np.log(first) if first > 1 else 0.0
    text += f"; the perplexity of held-out ones goes from {first:.4g} to {end:.4g}"
    numbers |= {"held_out_first": first, "held_out_last": end}
    word = worst_of(word_if_low(share, watch=strong, bad=hardly), word_if_low(float(fell), watch=apart, bad=-np.inf))
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


def _scores(scores: Series | None, name: str) -> CurvePoints:
    """Return the points of one score, as shares: percent where one of them is above 1."""
    if scores is None:
        return CurvePoints(np.empty(0, np.int64), np.empty(0))
    known = points(scores, name)
    return CurvePoints(known.steps, known.values / 100) if len(known.values) and known.values.max() > 1 else known
