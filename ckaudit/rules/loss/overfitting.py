"""LOSS002: the model memorises the training set."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.score_names import is_held_out_score
from ckaudit.metrics.divergence import divergence_step
from ckaudit.metrics.evaluation import eval_artifact_hash, microbench_score
from ckaudit.metrics.loss import train_loss_at_evals, train_loss_raw, untrained_loss, val_loss
from ckaudit.metrics.loss_function import constant_guess, explained_share, never_beats_guess
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.falls import ends_lower
from ckaudit.run.medians import median
from ckaudit.run.negligible_changes import is_negligible
from ckaudit.run.rises import Rise, falls_on, large_or_clear_rise, sustained_rise
from ckaudit.run.robust import parts_of, rank_trend
from ckaudit.run.run_facts import has_taken_all_steps
from ckaudit.run.series import Floats, Series, Steps
from ckaudit.run.tensors import loss_kind_of, loss_vocabulary

EVALS_PER_QUARTER = 3
"""Fewest evaluations in a quarter whose median shows that a validation loss stands."""

LARGE_RISE = 0.1
"""A rise of less than a tenth must stand out of the noise further than a larger one."""

MILD_RISE, BY_HEART = 0.15, 0.2
"""A smaller rise is a note where the loss is not known to be of tokens: a classifier that gets surer of the same answers pays as
much (Guo et al. 2017). Public logs that end well, most of them stopped early, rise by 0.17 at most, overfitted ones by 0.5. Where
the training loss has come below a fifth of the held-out loss, what is left to learn is memory, and `LARGE_RISE` is the bound."""

CARRIED, CARRIED_OF_MUCH, CARRIED_OF_ALL = 0.05, 0.25, 0.5
"""Share of the training loss's fall that shows on held-out data. Below the first nothing carries over. Below the second most of
the fall is memory, where the training loss has fallen by more than half, or no evaluation costs less than the first steps. Below
the third so is that of a model of tokens that begins with a guess, for it learns first what all text shares (500 healthy
trainings: 0.78 and more)."""

TIMES_UNTRAINED, CARRIED_OF_OTHER_UNIT = 2.0, 0.67
"""A held-out loss that stays beyond twice an untrained model's, and falls by less than two thirds as much as the training loss,
is no matter of another unit: the model is not trained for it."""

KNOWN_OF_TRAINING, MIN_STEPS = 0.03, 100
"""Least share of a constant guess's cost that the training loss saves where something is learnt by heart. Within its first
hundred steps a model learns by heart before it learns."""

STEADY_FALL = -2.2
"""Trend of the later half of the evaluations, in standard deviations of pure noise, at which the held-out loss falls."""

A_GUESS = 0.9
"""Share of the log of the vocabulary above which a loss is that of a model that has learnt nothing before."""


@rule(
    "LOSS002",
    severity="sev2",
    needs=[val_loss],
    wants=[train_loss_at_evals, eval_artifact_hash, train_loss_raw, FACTS, explained_share, microbench_score],
    unit="nats/token",
)
def overfitting(
    val: Series,
    train: Series | None,
    same: Series | None,
    logged: Series | None,
    facts: Manifest | None,
    explained: Series | None,
    score: Series | None,
    *,
    min_evals: int = 3,
    min_rise: float = 0.01,
    max_gain: float = 0.02,
    min_train_fall: float = 0.15,
    min_gap_share: float = 0.5,
) -> Iterator[Hit | Skip]:
    """The validation loss rises while the training loss does not.

    ## What it checks
    From `min_evals` evaluations on, the rule asks whether the validation loss rises, or stands, while the training loss goes on
    falling.

    - The validation loss ends above its own lowest level by more than its noise allows and by more than `min_rise` of it
      (sustained_rise), and the training loss does not end above its own (F12, playbook D5.1).
    - Where no training loss was recorded, the rise alone counts, and the message says so.
    - The finding begins where the higher level begins, or at the first evaluation after the divergence step if that is earlier.
    - The validation loss stands where it gains less than `max_gain` from the second quarter of the evaluations to the last,
      unless its last eighth is lower than all before.
    - A validation loss that stands counts where the training loss falls by `min_train_fall` meanwhile (at the end of a schedule
      every loss stands) and ends more than `min_gap_share` of the validation loss below it.
    - All of five or more later evaluations cost a tenth more than the first, while the training loss has fallen by a quarter
      since: a model that learns has its worst evaluation first.
    - From two evaluations on, nothing carries over: the training loss has fallen by 10 % or more, and the validation loss never
      comes below the first training loss by 5 % of that fall.
    - Most of what is learnt is memory where less than 25 % of that fall carries over, and no evaluation costs less than the first
      steps, or the training loss has fallen by more than half and the held-out loss no longer falls.
    - In a model of tokens that began with a guess, most of it is memory where less than half carries over.
    - Both are a note where the held-out loss still falls in the later half of the evaluations: more training makes it better yet.
    - The validation loss stays beyond twice an untrained model's, and falls by less than two thirds as much as the training loss.
    - From three evaluations on: the validation loss never comes below what a constant guess costs, while the training loss does.
      Models of tokens are not judged by this.
    - A held-out loss may be in another unit: its fall from its own first evaluations counts as carried over as well.
    - A rise by less than 2 % of what has been learnt since the first losses, or by less than 5 % where less than a tenth of them
      is left, does not count.
    - A fall of the training loss by as little is no memory.
    ## Why it matters
    From that step on the budget buys memory, not ability.
    ## False alarms
    A higher validation loss is not always memory:

    - A loss that is not known to be of tokens is a note where it ends less than 15 % above its lowest, or less than 10 % where
      the training loss is below a fifth of it: the log likelihood of a classifier rises as it gets surer of the same answers (Guo
      et al. 2017).
    - Healthy runs end 0.1 to 0.3 % above their lowest validation loss; both bounds lie above that.
    - A score on held-out data, such as an accuracy, that still rises steadily since the lowest held-out loss, or over the later
      half of its values, shows that something carries over: a note.
    - A held-out loss that rises in one jump and falls on from there comes from another evaluation, not from memory.
    - Where the files of the evaluation were hashed, only what follows their last change is judged.
    """
    known = val.finite[:, 0] & (val.steps >= _last_change(same))
    steps, losses = val.steps[known], val.values[known, 0]
    rising = rising_held_out_score(score, steps, losses)
    if (nothing := _carries_little_over(steps, losses, logged, None)) is not None:
        yield _softened(nothing, rising)
        return
    level = None if train is None else train.values[known, 0]
    standing = (max_gain, min_train_fall, min_gap_share)
    outcomes = list(_by_course(steps, losses, level, logged, facts, min_evals, min_rise, standing))
    yield from (_softened(outcome, rising) if isinstance(outcome, Hit) else outcome for outcome in outcomes)
    little = _carries_little_over(steps, losses, logged, facts) or _never_beats_guess(steps, losses, logged, explained, facts)
    if little is not None and not any(isinstance(outcome, Hit) for outcome in outcomes):
        yield _softened(little, rising)


def rising_held_out_score(score: Series | None, steps: Steps, losses: Floats) -> str | None:
    """Return the name of a score on held-out data that rises steadily since the held-out loss was lowest; None without one."""
    if score is None or not len(losses):
        return None
    lowest = int(steps[int(np.argmin(losses))])
    for place, name in enumerate(score.labels):
        known = score.finite_in(place)
        late = score.values[known & (score.steps >= min(lowest, int(np.median(score.steps[known] if known.any() else 0)))), place]
        if is_held_out_score(name) and len(late) > 3 and rank_trend(parts_of(late)[1]) > -STEADY_FALL:
            return name
    return None


def _softened(hit: Hit, rising: str | None) -> Hit:
    return replace(hit, severity="note", message=f"{hit.message}, but {rising} still rises") if rising else hit


def _by_course(
    steps: Steps,
    losses: Floats,
    level: Floats | None,
    logged: Series | None,
    facts: Manifest | None,
    min_evals: int,
    min_rise: float,
    standing: tuple[float, float, float],
) -> Iterator[Hit | Skip]:
    """Yield the finding of held-out losses that rise, or stand."""
    if len(steps) < min_evals:
        yield Skip("too_few_points", f"{len(steps)} evaluations; {min_evals} are needed")
        return
    risen = large_or_clear_rise(losses, large=max(min_rise, LARGE_RISE), small=min_rise)
    is_lower = losses[-1] < _untrained(losses, logged)  # what ends above an untrained model has not come from another evaluation
    if risen is not None and is_negligible(risen.end - risen.low, losses, logged):
        return
    if risen is None or (is_lower and falls_on(losses[risen.onset :], risen)):
        above = float(losses[-1] / losses.min() - 1) if losses.min() > 0 else 0.0
        hits = _never_as_low_again(steps, losses, level) or _stands(steps, losses, level, logged, *standing)
        for hit in hits:
            yield _graded(hit, above, facts, _left(level, losses))
        return
    if level is not None and _rises_along(level[np.isfinite(level)], risen, min_rise):
        return
    share = (risen.end - risen.low) / abs(risen.low) if risen.low else math.inf
    yield _graded(_rises(steps, losses, level, risen), share, facts, _left(level, losses))


def _graded(hit: Hit, share: float, facts: Manifest | None, left: float) -> Hit:
    """Return a hit, as a note if the held-out loss ends too little above its lowest."""
    return hit if is_severe_rise(share, facts, left) else replace(hit, severity="note")


def _left(train: Floats | None, val: Floats) -> float:
    """Return the training loss at the last evaluations as a share of the last held-out loss; infinite where it is unknown."""
    known = train[np.isfinite(train)] if train is not None else np.empty(0)
    return median(known[-3:]) / float(val[-1]) if len(known) and val[-1] > 0 else math.inf


def is_severe_rise(share: float, facts: Manifest | None, left: float = math.inf) -> bool:
    """Tell whether a held-out loss that ends so far above its lowest, as a share of it, is more than a note.

    `left` is the training loss at the end as a share of the held-out loss.

    Of tokens any rise beyond noise counts, and a loss that stands: their log likelihood is what is trained for. A record without
    run.json is one of tokens, as the contract defines the loss.
    """
    enough = LARGE_RISE if left < BY_HEART else MILD_RISE
    return share > enough or facts is None or loss_kind_of(facts) == "nats_per_token"


def _rises(steps: Steps, losses: Floats, train: Floats | None, risen: Rise) -> Hit:
    """Return the hit of a validation loss that ends above its lowest."""
    onset = divergence_step(steps, np.zeros(len(steps)) if train is None else train, losses)
    first = risen.onset if onset is None else min(risen.onset, int(np.searchsorted(steps, onset, side="right")))
    lowest = int(np.argmin(losses))
    worst = min(first, lowest) + int(np.argmax(losses[min(first, lowest) :]))
    return Hit(
        severity="sev2",
        where="val_loss",
        first=int(steps[first]),
        last=int(steps[-1]),
        worst=int(steps[worst]),
        value=float(losses[worst]),
        limit=float(losses[lowest]),
        points=len(steps) - first,
        message=f"the validation loss rises to {{value:.4g}} from its lowest, {{limit:.4g}} at step {steps[lowest]}"
        + ("" if risen.noise_is_known else f", in the {len(losses)} evaluations that there are")
        + ("; no training loss was recorded beside it" if train is None else ""),
    )


def _untrained(losses: Floats, logged: Series | None) -> float:
    """Return about what an untrained model costs, on held-out or on training data, whichever is more."""
    return max(median(losses[:3]), untrained_loss(logged.values[:, 0]) if logged is not None else 0.0)


def _rises_along(train: Floats, val: Rise, min_share: float, *, max_ratio: float = 0.1) -> bool:
    """Tell whether the training loss rises too, by `max_ratio` of the validation loss's rise: that is another illness."""
    rise = sustained_rise(train, min_share=min_share)
    return rise is not None and rise.end - rise.low > max_ratio * (val.end - val.low)


def _last_change(same: Series | None) -> int:
    """Return the last step at which a file of the evaluation had changed; -1 where none did."""
    if same is None:
        return -1
    is_same = np.nan_to_num(same.values, nan=1.0)
    rows = np.flatnonzero(np.any(np.diff(is_same, axis=0) != 0, axis=1))
    return int(same.steps[rows[-1] + 1]) if len(rows) else -1


def _carries_little_over(steps: Steps, val: Floats, logged: Series | None, facts: Manifest | None) -> Hit | None:
    """Return the hit of held-out losses that stay near what training began with, while the training loss has left it."""
    known = logged.finite[:, 0] & (logged.steps <= steps[-1]) if logged is not None and len(steps) else np.empty(0, dtype=bool)
    if logged is None or len(val) < 2 or known.sum() < 2 * EVALS_PER_QUARTER or val[0] <= 0:
        return None
    train = logged.values[known, 0]
    third = max(1, len(val) // 3)
    begun = min(third, EVALS_PER_QUARTER)
    few = max(EVALS_PER_QUARTER, len(train) // 20)
    start, end = untrained_loss(train), median(train[-few:])
    if end >= (1 - LARGE_RISE) * start or not ends_lower(train, min_fall=LARGE_RISE):
        return None
    # A held-out loss in another unit is held against its own beginning.
    first, lowest = median(val[:begun]), float(np.median(np.lib.stride_tricks.sliding_window_view(val, begun), axis=1).min())
    if min(start, first) <= 0:
        return None
    carried = max((start - val.min()) / (start - end), (first - lowest) / first / (1 - end / start))
    falls_still = len(val) > third and median(val[-third:]) < val[:-third].min()
    is_memory = val.min() >= start or (end < start / 2 and not falls_still)
    max_carried = CARRIED_OF_MUCH if is_memory else CARRIED
    what = "nothing carries over" if carried <= CARRIED else f"{carried:.0%} of that carries over"
    if val.min() > TIMES_UNTRAINED * start > 0:
        max_carried, what = CARRIED_OF_OTHER_UNIT, "it never came below twice that of an untrained model"
    elif _is_a_guess(start, facts):
        max_carried = CARRIED_OF_ALL
    if carried > max_carried:
        return None
    is_better_each_time = carried > CARRIED and len(val) > 3 and rank_trend(parts_of(val[len(val) // 2 :])[1]) < STEADY_FALL
    return Hit.at(
        steps,
        "note" if is_better_each_time else "sev2",
        f"the training loss has fallen from {start:.4g} to {{limit:.4g}}, and the held-out loss is {{value:.4g}}: {what}"
        + (", and it still falls" if is_better_each_time else ""),
        where="val_loss",
        value=float(val[-1]),
        limit=end,
        worst=-1,
    )


def _never_beats_guess(
    steps: Steps, val: Floats, logged: Series | None, explained: Series | None, facts: Manifest | None, *, min_evals: int = 3
) -> Hit | None:
    """Return the hit of held-out losses that never leave what a constant guess costs, while the training loss comes below it.

    Models of tokens are left out, for they rest there in their first steps. Losses in another unit lie elsewhere.
    """
    if explained is None or logged is None or len(val) < min_evals or loss_kind_of(facts) == "nats_per_token":
        return None
    saved = explained.late_median()
    if saved is None or saved < KNOWN_OF_TRAINING or (steps[-1] < MIN_STEPS and not has_taken_all_steps(steps, facts)):
        return None
    if not never_beats_guess(logged, val, explained):
        return None
    return Hit.at(
        steps,
        "sev2",
        "a constant guess costs {limit:.4g}, the held-out loss never comes below it, and is {value:.4g}, while the training loss "
        f"saves {saved:.0%} of it: nothing carries over",
        where="val_loss",
        value=float(val[-1]),
        limit=constant_guess(logged, explained),
        worst=-1,
    )


def _is_a_guess(loss: float, facts: Manifest | None) -> bool:
    """Tell whether a loss is that of a model of tokens that has learnt nothing before."""
    vocabulary = loss_vocabulary(facts)
    return vocabulary is not None and vocabulary > 1 and loss > A_GUESS * math.log(vocabulary)


def _never_as_low_again(
    steps: Steps, val: Floats, train: Floats | None, *, min_later: int = 5, min_train_fall: float = 0.25
) -> list[Hit]:
    """Return the finding of a first evaluation that none of the later ones comes near, while the training loss falls on."""
    if train is None or len(val) <= min_later or val[0] <= 0 or train[0] <= 0:
        return []
    if val[1:].min() < (1 + LARGE_RISE) * val[0] or median(train[-3:]) > (1 - min_train_fall) * train[0]:
        return []
    return [
        Hit.at(
            steps[1:],
            "sev2",
            "the validation loss is never again near its first, {limit:.4g}, and ends at {value:.4g}",
            where="val_loss",
            value=float(val[-1]),
            limit=float(val[0]),
            worst=int(np.argmax(val[1:])),
        )
    ]


def _stands(
    steps: Steps, val: Floats, train: Floats | None, logged: Series | None, gain: float, fall: float, apart: float
) -> Iterator[Hit]:
    """Yield a validation loss that stands, or rises within its noise, while the training loss goes on falling far below it."""
    if train is None or len(steps) < 4 * EVALS_PER_QUARTER:
        return
    quarters = np.array_split(np.arange(len(steps)), 4)
    before, last = (median(val[part]) for part in quarters[1::2])
    learnt, memory = (median(train[part]) for part in quarters[1::2])
    end = int(quarters[3][len(quarters[3]) // 2])
    is_falling = median(val[end:]) < val[:end].min()
    if is_falling or is_negligible(learnt - memory, val, logged):
        return
    lowest = int(np.argmin(val))
    course = f"has not come below its lowest, {val.min():.4g} at step {steps[lowest]}, and stands at"
    if lowest in quarters[3]:
        course = f"came to {before:.4g} in the second quarter of its evaluations, and stands at"
    if before - last < gain * before and memory < (1 - fall) * learnt and val[-1] - train[-1] > apart * val[-1]:
        yield Hit.at(
            steps[quarters[3]],
            "sev2",
            f"the validation loss {course} {{value:.4g}}, while the training loss has fallen on to {{limit:.4g}}",
            where="val_loss",
            value=float(val[-1]),
            limit=float(train[-1]),
            worst=-1,
        )
