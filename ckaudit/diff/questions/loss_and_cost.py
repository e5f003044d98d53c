"""Loss and cost: at the last steps, at equal tokens and time, on held-out text; steps, speed and memory."""

import math

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.diff import Word
from ckaudit.diff.noise import MAX_FALSE_ALARMS, SEED_LEAD, Stretches, quantile
from ckaudit.diff.questions import PairAnswer, lower_is_better, missing, question
from ckaudit.diff.run_pair import RunPair, level
from ckaudit.metrics import Metric
from ckaudit.metrics.hardware import gpu_mem_used
from ckaudit.metrics.loss import slice_val_loss, train_loss_raw, val_loss
from ckaudit.metrics.progress import tokens_seen
from ckaudit.metrics.speed import step_time, tokens_per_sec
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Floats, Series


@question(place=1, weighs="loss")
def final_loss(both: RunPair) -> PairAnswer:
    """What does the last step cost?

    This is the loss of one batch: its noise is that of a single point, many times that of the smoothed loss.
    """
    if answer := nonfinite_answer(both.in_training, train_loss_raw):
        return answer
    stretches = both.in_training.stretches(train_loss_raw, size=1, last=100, ahead=0.0)
    if stretches is None:
        return missing(both, "train_loss_raw")
    return loss_verdict(stretches, f"loss at step {int(stretches.last[-1])}")


@question(place=2, weighs="loss")
def smoothed_loss(both: RunPair) -> PairAnswer:
    """What do the last steps cost?

    This is the median of the last twentieth of the steps, of at least 20.
    """
    if answer := nonfinite_answer(both.in_training, train_loss_raw):
        return answer
    stretches = both.in_training.level(train_loss_raw)
    if stretches is None:
        return missing(both, "train_loss_raw")
    return loss_verdict(stretches, f"median loss of steps {int(stretches.first[-1])} to {int(stretches.last[-1])}")


@question(place=3, weighs="loss")
def loss_at_equal_tokens(both: RunPair) -> PairAnswer:
    """What does the loss cost after as many tokens?"""
    by_tokens = both.on_axis("tokens")
    if by_tokens is not None and (answer := nonfinite_answer(by_tokens, train_loss_raw)):
        return answer
    stretches = None if by_tokens is None else by_tokens.level(train_loss_raw)
    if by_tokens is None or stretches is None:
        return missing(both, "tokens_seen")
    step = int(stretches.last[-1])
    seen = tokens_seen(both.right.run).until(step)
    tokens = float(seen.finite_points()[1][-1])
    return loss_verdict(stretches, f"median loss after {tokens:.4g} tokens")


@question(place=6, weighs="loss")
def validation_loss(both: RunPair) -> PairAnswer:
    """What does held-out text cost at the last evaluation?

    The runs are compared at equal tokens if equal steps have not seen as many.
    """
    fair = both.fair
    if answer := nonfinite_answer(fair, val_loss):
        return answer
    stretches = fair.evaluation(val_loss)
    if stretches is None:
        return missing(both, "val_loss")
    step = int(stretches.last[-1])
    place = f"as many tokens, step {step} of the second" if fair.axes.axis == "tokens" else f"step {step}"
    return loss_verdict(stretches, f"held-out loss at {place}")


@question(place=7, weighs="loss", falls_with=("validation_loss",))
def validation_slices(both: RunPair) -> PairAnswer:
    """What does each slice of the held-out text cost at the last evaluation?

    The answer is about the slice that differs most, relative to its noise. The band grows with the number of slices.
    """
    fair = both.fair
    labels = fair.paired(slice_val_loss).labels
    slices = [(label, one) for column, label in enumerate(labels) if (one := fair.evaluation(slice_val_loss, column)) is not None]
    if not slices:
        return missing(both, "slice_val_loss")
    label, widest = max(slices, key=lambda one: abs(np.nan_to_num(one[1].excess[-1])))
    return loss_verdict(widest, f"held-out loss of {label} at step {int(widest.last[-1])}", share=MAX_FALSE_ALARMS / len(slices))


@question(place=5, weighs="loss")
def steps_to_loss(both: RunPair) -> PairAnswer:
    """How many steps does it take to the same loss?

    The loss is the higher one of the lowest levels of both. The noise of the steps is the noise of the level, divided by the
    slope of the loss there. A loss that ends as NaN or infinity has no level.
    """
    if answer := nonfinite_answer(both.in_training, train_loss_raw):
        return replace(answer, left=None, right=None, unit="steps")
    stretches = both.in_training.stretches(train_loss_raw)
    if stretches is None or len(stretches.first) < 4:
        return missing(both, "train_loss_raw")
    down = [np.minimum.accumulate(column) for column in (stretches.left, stretches.right)]
    aim = max(float(column[-1]) for column in down)
    middle = (stretches.first + stretches.last) / 2
    left, right = (_reached(middle, column, aim) for column in down)
    rows = np.searchsorted(middle, [min(left, right), max(left, right)])
    row = int(min(rows[1], len(middle) - 1))
    before = max(0, min(int(rows[0]), row) - 1)
    fall = (down[0][before] - down[0][row] + down[1][before] - down[1][row]) / 2
    pace = fall / max(1.0, middle[row] - middle[before])
    _, _, noise = level(stretches)
    scaled_noise = noise / stretches.spread[-1] * float(stretches.spread[row])
    whole = float(middle[-1] - middle[0])
    band = min(whole, scaled_noise / pace) if pace > 0 else whole
    word = lower_is_better(left, right, band)
    sentence = f"a loss of {aim:.4g} is reached at step {left:.0f} and at step {right:.0f}; noise explains {band:.0f} steps"
    alone = np.minimum.accumulate(stretches.left_alone)
    return PairAnswer(
        word=word,
        sentence=sentence,
        left=round(left),
        left_alone=round(_reached(middle, alone, aim)) if stretches.runs > 1 and alone[-1] <= aim else None,
        right=round(right),
        band=band,
        unit="steps",
    )


def _reached(steps: Floats, down: Floats, aim: float) -> float:
    """Return where a falling curve reaches `aim`, linearly interpolated."""
    row = int(np.argmax(down <= aim))
    above, goal, below = (value / 2 for value in (down[row - 1], aim, down[row]))  # halves, so that no difference overflows
    if row == 0 or above == below or not math.isfinite(above):  # half of the smallest float is 0
        return float(steps[row])
    share = (above - goal) / (above - below)
    return float(steps[row - 1] + share * (steps[row] - steps[row - 1]))


@question(place=4, weighs="cost")
def loss_at_equal_time(both: RunPair, *, min_speed_noise: float = 0.02) -> PairAnswer:
    """What does the loss cost after as much time?

    Only time in which the training ran counts, without pauses between sessions. The varying speed of a machine is noise. Other
    work of the machine counts too, so this alone makes no pair better or worse.

    Args:
        both: The runs.
        min_speed_noise: Relative standard deviation of the speed of a dedicated machine.
    """
    by_time = both.on_axis("time")
    clock = max(min_speed_noise, noise_of_speed(both, step_time)) if by_time is not None else 0.0
    stretches = None if by_time is None else by_time.level(train_loss_raw, ahead=math.hypot(SEED_LEAD, clock))
    if by_time is None or stretches is None:
        return missing(both, "time")
    return replace(loss_verdict(stretches, f"median loss after the time that step {int(stretches.last[-1])} took"), grave=False)


@question(place=10, weighs="cost")
def speed(both: RunPair, *, share: float = 0.01, parts: int = 10, min_speed_difference: float = 0.05) -> PairAnswer:
    """How long does a step take?

    This is the median, which checkpoints and evaluations do not affect; or the tokens per second if no step was timed. The speed
    of a shared machine varies between tenths of a run and between replicas: that much is noise. Other work of the machine is not
    recorded, so speed alone makes no pair better or worse.

    Args:
        both: The runs.
        share: Share of differences between tenths of a run, or between replicas, that are larger than the band.
        parts: Number of parts of a run.
        min_speed_difference: Relative difference of a dedicated machine's speed between two starts.
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
    """Return the relative standard deviation of the speed between parts of a run, of both runs together."""
    return math.hypot(*(_wobble(value, parts) for value in _values(both, metric)))


def _values(both: RunPair, metric: Metric) -> list[Floats]:
    return [_positive(metric(side.run)) for side in (both.left, both.right)]


def _positive(series: Series) -> Floats:
    """Return the positive values of a series; a speed of 0 or less is invalid."""
    return series.values[series.finite & (series.values > 0)]


def _wobble(values: Floats, parts: int) -> float:
    """Return the relative robust standard deviation of the medians of parts of a run; 0 without values."""
    if not len(values):
        return 0.0
    medians = np.array([median(part) for part in np.array_split(values, min(parts, len(values)))])
    return float(np.divide(MAD_TO_SIGMA * median(np.abs(medians - median(medians))), median(values)))


@question(place=11, weighs="cost")
def memory(both: RunPair, *, noise: float = 0.02, grave: float = 0.2) -> PairAnswer:
    """How much memory does it take?

    This is the largest memory in use on any device.

    Args:
        both: The runs.
        noise: Share that an allocator may keep or release.
        grave: Share from which on the pair as a whole is better or worse; fragmentation causes less than that.
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


# Comparison of two levels of a loss, and the sentence about it.
def loss_verdict(stretches: Stretches, what: str, *, share: float = MAX_FALSE_ALARMS, unit: str = "nats/token") -> PairAnswer:
    """Return the answer for the last level of a loss, with a sentence that begins with `what`."""
    left, right, band = level(stretches, share=share)
    word = lower_is_better(left, right, band)
    if stretches.runs > 1:
        word = _beyond_all(stretches, word, band)
    word_in_sentence = {"same": "equal", "within_noise": "within noise", "worse": "higher", "better": "lower"}[word]
    since = _since(stretches, share) if word in ("worse", "better") else ""
    of = f" (mean of {stretches.runs} runs)" if stretches.runs > 1 else ""
    sentence = f"{what}: {left:.4g}{of} and {right:.4g}, {word_in_sentence}{since}; noise explains {band:.2g}"
    alone = float(stretches.left_alone[-1]) if stretches.runs > 1 else None
    return PairAnswer(word=word, sentence=sentence, left=left, left_alone=alone, right=right, band=band, unit=unit)


def _beyond_all(stretches: Stretches, word: Word, band: float, *, share: float = 0.1) -> Word:
    """Return the word about the mean of several runs if it holds for each of them: a level that one of them has is chance.

    Args:
        stretches: The levels.
        word: The word for the mean.
        band: Largest difference that noise explains.
        share: Share of the band by which the second run must be beyond the outermost of them.
    """
    right, margin = float(stretches.right[-1]), share * band
    if word == "worse" and right <= stretches.high[-1] + margin:
        return "within_noise"
    if word == "better" and right >= stretches.low[-1] - margin:
        return "within_noise"
    return word


def _since(stretches: Stretches, share: float) -> str:
    """Return the step since which the level has been on this side of its band; empty if that began before the first segment."""
    side = stretches.excess * np.sign(stretches.excess[-1])
    inside = np.flatnonzero(side <= quantile(share))
    row = int(inside[-1]) + 1 if len(inside) else 0
    return f" since step {int(stretches.first[row])}" if 0 < row < len(side) - 1 else ""


def nonfinite_answer(both: RunPair, metric: Metric, unit: str = "nats/token") -> PairAnswer | None:
    """Return the answer if the last common value is not finite in one run, or drops to exactly 0; else None.

    Levels use finite values only; without this a loss that ended as NaN would be judged by earlier values. Some programs log 0 in
    place of NaN.
    """
    paired = both.paired(metric)
    rows = np.flatnonzero(paired.recorded[:, :1])
    if not len(rows):
        return None
    left, right = paired.left[rows, 0], paired.right[rows, 0]
    lost = [not np.isfinite(values[-1]) or _drops_to_zero(values) for values in (left, right)]
    if lost[0] == lost[1]:
        return None
    which, values = ("first", left) if lost[0] else ("second", right)
    state = "no number" if not np.isfinite(values[-1]) else "exactly 0, where nothing was computed,"
    return PairAnswer(
        word="better" if lost[0] else "worse",
        sentence=f"{metric.name} at step {int(paired.steps[rows[-1]])} is {state} in the {which}",
        left=float(left[-1]),
        right=float(right[-1]),
        unit=unit,
    )


def _drops_to_zero(values: Floats, *, min_points: int = 3, min_share: float = 0.01) -> bool:
    """Tell whether values end at exactly 0, several times, and were far from it just before."""
    others = np.flatnonzero(values != 0)
    if values[-1] != 0 or not len(others) or len(values) - 1 - others[-1] < min_points:
        return False
    return bool(abs(values[others[-1]]) > min_share * abs(values[others[0]]))
