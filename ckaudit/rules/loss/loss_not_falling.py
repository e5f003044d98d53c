"""LOSS003: after a good part of the run, the loss is still that of a model that has learnt no order."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.loss_function import LEARNT_SHARE, MAX_UNEXPLAINED, explained_share, has_used_inputs, rests_at_constant_guess
from ckaudit.metrics.movement import NEGLIGIBLE_DISTANCE, median_distance_moved
from ckaudit.metrics.reductions import running_medians
from ckaudit.metrics.scaling import unigram_entropy
from ckaudit.metrics.weights import relative_movement, weight_rms
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule
from ckaudit.run.falls import (
    Fall,
    fall_accelerates,
    fall_between_thirds,
    fall_would_show,
    flat_fall,
    largest_fall,
    plateau_of,
    would_reach_level,
)
from ckaudit.run.medians import median
from ckaudit.run.rises import sustained_rise
from ckaudit.run.robust import MEDIAN_STANDARD_ERROR_FACTOR, begins_with_its_run, difference_noise, looks_like_a_score
from ckaudit.run.run_facts import (
    LOOKS_LIKE_A_SCORE,
    counts_updates,
    has_taken_all_steps,
    is_known_to_be_a_loss,
    why_loss_need_not_fall,
)
from ckaudit.run.series import Floats, Series, Steps
from ckaudit.run.tensors import loss_kind_of, loss_vocabulary, table_of

MIN_POINTS = 3
"""Two points show no trend."""

MIN_STEPS = 100
"""Within the first hundred updates a rate that warms up moves little: whether the loss falls cannot be judged yet."""

MIN_POINTS_OF_LEVEL, MIN_STEPS_OF_LEVEL = 50, 200
"""A level is compared with what a guess costs from so many points and steps on."""

PLATEAU_STEPS, EARLY_PLATEAU = 1000, "so early in a training the loss may rest there"
"""A model of tokens first learns how often each token occurs, then what follows what; in between its loss rests (Belrose et al.
2024)."""

MAY_BE_ITS_FLOOR = "it may be as low as model and data allow"
"""How low a loss can come is known only for a mean over tokens: noise, negatives or temperatures hold other losses up."""

ABOVE_FREQUENCIES = 1.05
"""A model that ends so many times above the entropy of the tokens knows less than a table of counts. None of 56 healthy trainings
of tokens with 200 steps and more does; a plateau lies at the entropy itself."""

WORSE_THAN_A_GUESS = 1.25
"""An untrained model of tokens costs at most 20 % more than a uniform guess (T5, Mamba)."""

STILL_ABOVE = 0.5
"""A model that is sure of another text begins above a guess, and is learning where it comes most of the way down. A model that
runs away begins at a guess."""

MIN_DISTANCE = 2 * NEGLIGIBLE_DISTANCE
"""Share of their size by which weights have moved where they learn. In the lab they come to half of it at most with a low rate or
an optimizer that does not fit, and to 0.03 and more on a plateau that is left again."""

CHANNELS_PER_BIT, NARROW_BOUND_SHARE = 2.0, 0.5
"""A residual stream of fewer channels per bit of a token has no room for what came before; a level above half of the bound shows
that the model needs it."""

GUESSES = (0.95 * math.log(1_000), 1.05 * math.log(1_200_000))
"""Cost of a uniform guess among the tokens of the smallest and the largest vocabulary in use, in nats, with 5 % to spare."""

CLASSES = (2, 10, 100, 1000)  # the most common numbers: a flat loss may lie at the cost of any other guess by chance
SMALL_FALL = 0.05
"""Share of the level that a fine-tuning may fall by in all: a log too noisy to show so much cannot tell it from a flat run."""

POINTS_OF_NO_GUESS = 5
"""Where a loss is not that of a guess, as in a fine-tuning, three or four points may lie within 1 % by chance."""

TIMES_A_CONSTANT, TIMES_A_CONSTANT_AT_THE_END = 10.0, 2.0
"""Where the loss function gives so many times what a constant guess costs, the model has the scale of its targets wrong. A model
that has just begun comes down to it from above, in its first steps or, with rare targets, in hundreds."""

BUCKETS = 256
"""Buckets of the token histogram: each holds one token where the vocabulary is no larger."""


@rule(
    "LOSS003",
    severity="sev2",
    needs=[],
    wants=[train_loss_raw, unigram_entropy, val_loss, FACTS, explained_share, relative_movement, weight_rms],
    facts=[["vocabulary"]],
    unit="nats/token",
)
def loss_not_falling(
    loss: Series | None,
    entropy: Series | None,
    val: Series | None,
    facts: Manifest | None,
    explained: Series | None,
    moved: Series | None,
    sizes: Series | None,
    *,
    min_plan_share: float = 0.5,
    tail_share: float = 0.1,
    unigram_margin: float = 0.98,
    guess_share: float = 0.9,
    max_bound_ratio: float = 10.0,
) -> Iterator[Hit | Skip]:
    """The loss does not fall, or has stopped far too high.

    ## What it checks
    Whether the loss leaves what a model costs that has learnt nothing. The level of the loss is the median of the last
    `tail_share` of the points, from 50 points, 200 steps and `min_plan_share` of the plan on. It does not fall where one of these
    holds:

    - The level lies above `unigram_margin` of the entropy of the tokens (PAN-1; known for small vocabularies): the model knows
      how often each token occurs, and nothing of their order.
    - The level lies above `guess_share` of the log of the vocabulary: the model knows nothing.
    - The stream has fewer than two channels per bit of a token, and the level lies above half of either bound: there is no room
      for what came before.
    - In the second half of the run the model saves less than 2 % of what a constant guess costs on its targets, and stands there:
      its inputs tell it nothing. A model that saves 10 % has learnt, and its curve is not judged.
    - All planned steps are taken, the model saves as little, its median weight has moved by less than 1 % of its size, and the
      loss fell by less than 5 %.
    - A model of tokens costs 25 % more than a uniform guess after half of its plan, or 5 % more at its end. That is a note where
      it began higher and has come more than half of the way down.
    - The loss function gives, all through the second half of the run, ten times what a constant guess costs, twice that once all
      planned steps are taken, or 10 % more without a fall that would reach it in as many steps again.
    - Where nothing of this is recorded: the curve stands from the first steps of the run on (no law of learning explains it
      better than a level), from 3 points and 100 steps on.
    - Such a curve stands at what a uniform guess among a thousand to a million tokens costs, or, from 5 points on, anywhere, if
      its noise would let a fall of 5 % in its first quarter show.
    - From 120 points on: the curve ends as high as it began, or it fell by less than 10 % while the held-out loss moved by 25 %
      of it.
    - From 120 points on: the curve has stayed within 3 % of its first fall since its first quarter, without a trend, above half
      of its start.
    - Where only a held-out loss is recorded: it stands from its first evaluation on at what a uniform guess costs, among a
      thousand to a million tokens, or from 10 evaluations on among 2, 10, 100 or 1,000 classes.
    ## Why it matters
    A loss that rests there says that nothing reaches the weights, or that targets have nothing to do with inputs (D1.1, D2.4).
    ## False alarms
    Some healthy losses stand, and are silent or a note:

    - A plateau at the entropy of the tokens comes before heads form that look back, and ends before half of the plan (lab: a
      third).
    - In the first 1,000 steps such a plateau is a note while weights move (2 % of their size and more) or where they are not
      recorded, unless the plan is done and the loss is still above a table of frequencies.
    - A loss that rests lower may be as low as model and data allow: the loss alone cannot tell. It is a note where the loss is
      not known to be one of tokens.
    - A loss above `max_bound_ratio` times the bound is no mean over tokens: another illness.
    - A fine-tuning falls by a few percent: it is not called flat where its noise hides as much, or the held-out loss falls.
    - A model that has just begun to learn is still near a guess: it does not rest where the held-out loss has fallen by 5 % and
      is lowest at the last of 5 evaluations and more.
    - With fewer evaluations, such a model does not rest where the loss falls faster in its last third than in its first, or by 1
      % within its second half and beyond its noise.
    - Healthy runs whose curve stands for three quarters of their steps are at a third of their first loss by then (public logs).
    """
    undirected = why_loss_need_not_fall(facts, sizes)
    if undirected or loss is None:
        yield from [Skip("not_applicable", undirected)] if undirected else _held_out_alone(val, facts, min_plan_share)
        return
    steps, values = loss.finite_points()
    bound, guess, why = _bound(entropy, facts, unigram_margin, guess_share)
    standing = _ends_where_it_began(steps, values, facts, explained, moved, bound)
    worse = _costs_more_than_a_guess(steps, values, facts, min_plan_share)
    worse = worse or _costs_more_than_a_constant(steps, values, explained, facts)
    if (hit := standing or worse) is not None:
        yield hit
        return
    if skip := _skipped(steps, values, facts, min_plan_share):
        yield skip
        return
    if bound is not None and (width := _narrow(facts)) is not None:
        bound, guess, why = bound * NARROW_BOUND_SHARE, 0.0, f"{width} channels have no room for more"
    has_level = len(values) >= MIN_POINTS_OF_LEVEL and steps[-1] >= MIN_STEPS_OF_LEVEL
    level = median(values[-max(10, int(tail_share * len(values))) :])
    has_ended = 0 < ABOVE_FREQUENCIES * guess < level and has_taken_all_steps(steps, facts)
    early = EARLY_PLATEAU if may_plateau(steps, facts, moved) and not has_ended else ""
    learnt, is_learning = held_out_falls(val), _is_still_falling(val, values)
    rests = not (is_learning and level < guess)
    first = len(values) if bound is None else _since(values, bound)
    is_above = bound is not None and bound < level <= max_bound_ratio * bound and first < len(values)
    at_a_guess = rests_at_constant_guess(steps, values, explained, facts)
    if has_level and rests and is_above:
        message = "the loss has come to {value:.4g} and no lower; " + why
        yield _hit(steps, first, level, bound, message, excuse=early if guess > 0 else "")
    elif at_a_guess is not None and not (is_learning or _is_lower(val, level)):
        message = "the loss has come to {value:.4g}, what a constant guess costs: the model explains none of its targets"
        yield _hit(steps, at_a_guess, level, None, message, excuse=early)
    elif has_used_inputs(explained):
        return
    elif begins_with_its_run(steps) and (flat := _flat_course(values, facts)) and not learnt:
        if _is_a_guess(values, facts) or (len(values) >= POINTS_OF_NO_GUESS and fall_would_show(values, SMALL_FALL)):
            yield _flat(steps, flat, excuse=early)
        else:
            yield Skip("too_few_points", "the loss is too short or too noisy to tell one that stands from one that falls by 5 %")
    elif (still := plateau_of(steps, values, val)) is not None and not (learnt and still.kind == "flat"):
        excuse = "" if still.kind != "rests" else _why_it_may_rest(steps, facts, moved)
        yield _hit(steps, still.row, still.level, still.limit, still.message, excuse=excuse)
    elif not begins_with_its_run(steps) and (bound is None or not has_level):
        yield Skip("not_recorded", "needs vocabulary" if has_level else "needs the first steps of the run")


def _skipped(steps: Steps, values: Floats, facts: Manifest | None, min_plan_share: float) -> Skip | None:
    """Return why the course of a loss cannot be judged, or not yet."""
    planned = facts.planned_steps if facts else UNSET
    if len(values) < MIN_POINTS or (steps[-1] < MIN_STEPS and counts_updates(facts)):
        last = int(steps[-1]) if len(steps) else 0
        return Skip("too_few_points", f"{len(values)} points up to step {last}; {MIN_POINTS} and {MIN_STEPS} steps are needed")
    if planned is not UNSET and steps[-1] < min_plan_share * planned:
        return Skip("too_few_points", f"step {steps[-1]} of {planned}; {min_plan_share:.0%} of the plan are needed")
    if not is_known_to_be_a_loss(facts) and looks_like_a_score(values):
        return Skip("not_applicable", LOOKS_LIKE_A_SCORE)
    return None


def _ends_where_it_began(
    steps: Steps, losses: Floats, facts: Manifest | None, explained: Series | None, moved: Series | None, bound: float | None
) -> Hit | None:
    """Return the hit of a training that is over, in which weights hardly came from their start and nothing was learnt.

    Nothing is learnt where the model explains none of its targets, or knows less than a table of frequencies. The weights of a
    fine-tuning may move as little, but its model knows something from the beginning.
    """
    way = median_distance_moved(moved)
    if way is None or way >= NEGLIGIBLE_DISTANCE or len(losses) < 2 or not has_taken_all_steps(steps, facts):
        return None
    tenth = max(1, len(losses) // 10)
    first, last = median(losses[:tenth]), median(losses[-tenth:])
    saved = explained.late_median() if explained is not None else None
    knows_nothing = bound is not None and last > bound if saved is None else saved <= MAX_UNEXPLAINED
    if not knows_nothing or first - last >= SMALL_FALL * abs(first):
        return None
    what = f"all planned steps are taken, the weights have come {way:.2g} of their size"
    return _hit(steps, 0, last, first, what + ", and the loss from {limit:.4g} to {value:.4g}: nothing is learnt")


def _costs_more_than_a_guess(steps: Steps, losses: Floats, facts: Manifest | None, min_plan_share: float) -> Hit | None:
    """Return the hit of a model of tokens that is worse than a uniform guess when half of its plan is done."""
    vocabulary, planned = loss_vocabulary(facts), facts.planned_steps if facts else UNSET
    if loss_kind_of(facts) != "nats_per_token" or vocabulary is None or planned is UNSET or not len(steps):
        return None
    tenth, guess = max(1, len(losses) // 10), math.log(vocabulary)
    first, level = median(losses[:tenth]), median(losses[-tenth:])
    max_ratio = ABOVE_FREQUENCIES if has_taken_all_steps(steps, facts) else WORSE_THAN_A_GUESS
    if steps[-1] < min_plan_share * planned or not level > max_ratio * guess > 0:
        return None
    message = "the loss is {value:.4g}, and a uniform guess has {limit:.4g}: the model is worse than one that knows nothing"
    comes_down = level - guess < STILL_ABOVE * (first - guess)
    excuse = f"it began at {first:.4g} and comes down" if comes_down else ""
    return _hit(steps, _since(losses, guess), level, guess, message, excuse=excuse)


def _costs_more_than_a_constant(
    steps: Steps, losses: Floats, explained: Series | None, facts: Manifest | None, *, min_checkpoints: int = 3
) -> Hit | None:
    """Return the hit of a model that is worse than a constant guess all through the second half of a run.

    It costs many times as much, or at least a tenth more without coming down to the guess in as many steps again.
    """
    if explained is None or not len(steps) or steps[-1] < MIN_STEPS_OF_LEVEL:
        return None
    rows = explained.recorded_rows()
    times = 1 - rows.values[:, 0]
    late = rows.steps > steps[-1] / 2
    if late.sum() < min_checkpoints or not times[late].min() > 1 + LEARNT_SHARE:
        return None
    max_times = TIMES_A_CONSTANT_AT_THE_END if has_taken_all_steps(steps, facts) else TIMES_A_CONSTANT
    if times[late].min() <= max_times and would_reach_level(losses[steps > steps[-1] / 2], median(times[late])):
        return None
    bound = max_times if times[late].min() > max_times else 1 + LEARNT_SHARE
    first = int(np.flatnonzero(times <= bound)[-1]) + 1 if (times <= bound).any() else 0
    message = "the loss gives {value:.3g} times what a constant guess costs: the model is worse than one that knows nothing"
    row = int(np.searchsorted(steps, rows.steps[first])) if first else 0
    return _hit(steps, row, median(times[late]), None, message)


def _flat(steps: Steps, fall: Fall, *, excuse: str) -> Hit:
    """Return the hit of a curve that never falls."""
    few = "" if len(steps) >= MIN_POINTS_OF_LEVEL else f", in the {len(steps)} points that there are"
    message = "the loss stands at {value:.4g}, having begun at {limit:.4g}: nothing is learnt" + few
    return _hit(steps, 0, fall.last, fall.first, message, excuse=excuse)


def _held_out_alone(val: Series | None, facts: Manifest | None, min_plan_share: float) -> Iterator[Hit | Skip]:
    """Judge the held-out loss of a run without a training loss; a fine-tuning's may stand anywhere but at a guess."""
    if val is None:
        yield needs_one_of(train_loss_raw, val_loss)
        return
    steps, values = val.finite_points()
    if skip := _skipped(steps, values, facts, min_plan_share):
        yield skip
    elif (_flat_course(values, facts) is not None and _is_a_guess(values, facts)) or _is_a_guess_of_classes(values, facts):
        message = "the held-out loss stands at {value:.4g}, what a uniform guess costs, at each evaluation: nothing is learnt"
        yield replace(_hit(steps, 0, median(values), float(values[0]), message), where=val.labels[0])


def _is_a_guess_of_classes(values: Floats, facts: Manifest | None, *, min_points: int = 10, max_distance: float = 0.01) -> bool:
    """Tell whether three quarters of many points lie within a hundredth of what a guess among a round number of classes costs."""
    if len(values) < min_points or loss_kind_of(facts) == "other":
        return False
    apart = np.abs(values[:, np.newaxis] / np.log(CLASSES) - 1)
    return bool((np.quantile(apart, 0.75, axis=0) < max_distance).any())


def _flat_course(values: Floats, facts: Manifest | None) -> Fall | None:
    """Return the fall of a curve that stands. A curve that rises counts as flat only where its level is that of a guess."""
    flat = flat_fall(values)
    return flat if flat is None or _is_a_guess(values, facts) or sustained_rise(values) is None else None


def _is_a_guess(values: Floats, facts: Manifest | None) -> bool:
    """Tell whether the level of a curve, but for its noise, is that of a model of tokens that has learnt nothing."""
    error = MEDIAN_STANDARD_ERROR_FACTOR * difference_noise(values) / math.sqrt(len(values))
    level = median(values)
    return loss_kind_of(facts) != "other" and GUESSES[0] - 2 * error < level < GUESSES[1] + 2 * error


def held_out_falls(val: Series | None, *, min_fall: float = 0.005) -> bool:
    """Tell whether the held-out loss falls: then something is learnt, whatever the training loss hides.

    It falls by more than its noise, or from each evaluation to the next: on the same data it moves with the weights alone.
    """
    if val is None or (known := val.finite_in(0)).sum() < MIN_POINTS:
        return False
    losses = val.values[known, 0]
    if (np.diff(losses) < 0).all() and losses[0] - losses[-1] > min_fall * abs(losses[-1]):
        return True
    fall = largest_fall(losses)
    return fall.deviations > 3 and fall.first - fall.last > min_fall * abs(fall.last)


def _is_still_falling(val: Series | None, train: Floats, *, min_evaluations: int = 5) -> bool:
    """Tell whether the held-out loss has fallen by `SMALL_FALL` and is lowest at the end; where it is unknown, ask the other."""
    if val is None or (known := val.finite_in(0)).sum() < min_evaluations:
        return fall_accelerates(train) or not fall_between_thirds(train[len(train) // 2 :]).is_none
    losses = val.values[known, 0]
    return bool(losses[-1] == losses.min() and losses[0] - losses[-1] > SMALL_FALL * abs(losses[0]))


def _is_lower(val: Series | None, level: float) -> bool:
    """Tell whether the held-out loss is lower than the training loss by a tenth: only the training targets are noisy then."""
    held_out = val.late_median() if val is not None else None
    return held_out is not None and held_out < 0.9 * level


def may_plateau(steps: Steps, facts: Manifest | None, moved: Series | None) -> bool:
    """Tell whether a model of tokens is in its first steps, and its weights have moved far enough to be learning."""
    come = median_distance_moved(moved)
    in_first_steps = loss_kind_of(facts) == "nats_per_token" and steps[-1] < PLATEAU_STEPS
    return in_first_steps and come is not None and come >= MIN_DISTANCE


def _why_it_may_rest(steps: Steps, facts: Manifest | None, moved: Series | None) -> str:
    """Return why a loss that fell and rests may be healthy: it is not known to be of tokens, or its log is young."""
    if loss_kind_of(facts) != "nats_per_token":
        return MAY_BE_ITS_FLOOR
    return EARLY_PLATEAU if moved is None and steps[-1] < PLATEAU_STEPS else ""


def _hit(steps: Steps, row: int, level: float, limit: float | None, message: str, *, excuse: str = "") -> Hit:
    """Return the hit from a row on; an excuse makes it a note."""
    text = f"{message}; {excuse}" if excuse else message
    row = min(row, len(steps) - 1)  # the last points may lie below a level that is a median
    return Hit.at(steps[row:], "note" if excuse else "sev2", text, where="loss", value=level, limit=limit, worst=-1)


def _bound(entropy: Series | None, facts: Manifest | None, margin: float, share: float) -> tuple[float | None, float, str]:
    """Return the level below which the model knows something, the level of a guess, and the guess in words."""
    vocabulary = loss_vocabulary(facts)
    if vocabulary is None or vocabulary < 2:
        return None, 0.0, ""
    if entropy is not None and entropy.finite.any() and vocabulary <= BUCKETS:
        bits = median(entropy.values[entropy.finite])
        return margin * bits, bits, f"who knows only how often each token occurs has {bits:.4g}"
    guess = math.log(vocabulary)
    return share * guess, guess, f"a guess has {guess:.4g}"


def _narrow(facts: Manifest | None) -> int | None:
    """Return the channels of a stream that has too few to hold more than the token itself; None where it has enough."""
    vocabulary, width = loss_vocabulary(facts), table_of(facts).width()
    if vocabulary is None or width is None:
        return None
    return width if width < CHANNELS_PER_BIT * math.log2(max(2, vocabulary)) else None


def _since(values: Floats, bound: float, *, smooth: int = 9) -> int:
    """Return the row since which the running median of a loss stays above a bound."""
    middle = running_medians(np.concatenate([np.full(smooth - 1, values[0]), values]), smooth)
    below = np.flatnonzero(middle <= bound)
    return int(below[-1]) + 1 if len(below) else 0
