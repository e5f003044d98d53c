"""EVAL003: a score of the model stays where it began, at what an untrained one gets."""

import re
from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.report import Severity
from ckaudit.contract.schema.score_names import ACCURACY, EPISODE_RETURN, EXPLAINED_VARIANCE, HELD_OUT, RANKING, SUCCESS_RATE
from ckaudit.metrics.evaluation import accuracy_shares, microbench_score
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.falls import fall_between_thirds
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series, Steps

NO_RISE_OF_ACCURACY = (0.02, 0.25)
NO_RISE_OF_EXPLAINED = (0.05, 0.5)
"""A score has risen where its last third exceeds its first by more than the first number, and by more than the second as a share
of the first third: a share of variance may begin far below zero."""

NUMBERED = re.compile(r"(.*[a-z]_?)\d{1,3}", re.IGNORECASE)
"""Name of the score of one class among several."""

ON_HELD_OUT = re.compile(rf"(?:{HELD_OUT}|test)_(.+)")
"""Name of a score on held-out data, and of the same score on training data."""

RANDOM_ORDER = 0.5
NO_SCORE = "no score is named as an accuracy, an order, a share of variance that is explained, a return or a rate of success"
SAME_RETURN = 0.02
"""Two returns within this share of each other have the same outcome; the cost of single moves makes the difference."""
COLLAPSED_SHARE = 0.95
"""Minimum share of the episodes of a collapsed policy that end alike: a few end otherwise by chance."""
OF_A_GUESS = {EXPLAINED_VARIANCE: "a constant guess is as good", RANKING: "a random order is as good"}
"""Scores whose value for a guess is known by definition."""


@rule("EVAL003", severity="sev2", needs=[], wants=[microbench_score, train_loss_raw, val_loss], unit="1")
def score_stands(
    score: Series | None,
    train: Series | None,
    val: Series | None,
    *,
    max_accuracy: float = 0.2,
    max_explained: float = 0.02,
    max_ranking: float = 0.55,
    min_evals: int = 5,
    min_evals_of_class: int = 10,
    min_returns: int = 50,
) -> Iterator[Hit | Skip]:
    """A score of the model stays where an untrained one has it.

    ## What it checks
    The rule judges scores by their names.

    - An accuracy, from `min_evals` values on, does not rise from its first third to its last, and at most a tenth of its values
      are above `max_accuracy`. Neither the held-out nor the training loss comes down after its first third.
    - An accuracy on held-out data, from `min_evals` values on, does not rise and ends no better than the same accuracy on
      training data began, while that has risen by 0.2: nothing carries over, whatever the loss does.
    - A share of variance that is explained (R2) has at most a tenth of its values above `max_explained`, and does not rise. One
      value of its last third is no better than a constant guess, whose R2 is 0 by definition.
    - A score of an order (AUC, concordance) has at most a tenth of its values above `max_ranking`, and does not rise: a random
      order has a half.
    - Among scores of several classes, whose names differ by a number at their end, one is exactly 0 at all of its
      `min_evals_of_class` values and more, where another ends above 0.1.
    - A return of episodes is the same in all of `min_returns` values and more: a policy that never met another outcome has
      nothing to learn from.
    - A return of episodes is the same, within 2 %, in 95 % of its values from some point in the first half on, `min_returns` at
      least, none was lower and the best was in the first half: the policy has collapsed to the worst outcome.
    - A rate of success is 0 in all of `min_returns` values and more.
    ## Why it matters
    What the model tells apart at its end it told apart at its start: no learning is visible.
    ## False alarms
    Some scores rightly stand:

    - A model that was trained before may keep its score, and a hard task may give little. An accuracy of 20 % that does not move,
      beside a loss that stands, is neither of the two.
    - Where a loss still falls, the accuracy may be late. A loss that is below 0 throughout, as a cross-entropy of labels that are
      no shares is, excuses nothing.
    - A return above 0 that never differs may be the most there is, as of a policy that was trained before: a note.
    """
    if score is None:
        yield Skip("not_applicable", NO_SCORE)
        return
    yield from _of_classes_never_right(score, min_evals_of_class)
    yield from _of_constant_returns(score, min_returns)
    yield from _of_no_success(score, min_returns)
    judged = [place for place, name in enumerate(score.labels) if any(kind.search(name) for kind in (ACCURACY, *OF_A_GUESS))]
    if not judged:
        if not any(len(values) >= min_returns for kind in (EPISODE_RETURN, SUCCESS_RATE) for _, _, values in _named(score, kind)):
            yield Skip("not_applicable", NO_SCORE)
        return
    known = {place: np.flatnonzero(score.finite[:, place]) for place in judged}
    if max(map(len, known.values())) < min_evals:
        yield Skip("too_few_points", f"{max(map(len, known.values()))} values of a score; {min_evals} are needed")
        return
    for place, rows in known.items():
        values = score.values[rows, place]
        name = score.labels[place]
        guess = next((words for kind, words in OF_A_GUESS.items() if kind.search(name)), None)
        if len(values) >= min_evals and guess is None and (learnt := _learnt_by_heart(score, name, values)) is not None:
            yield _hit(score.steps[rows], name, values, f"nothing carries over of what training has come to, {learnt:.3g}")
            continue
        if len(values) < min_evals or (guess is None and (_falls(val) or _falls(train))):
            continue
        if _stands(name, values, max_accuracy, max_explained, max_ranking):
            yield _hit(score.steps[rows], name, values, guess or "no learning is visible")


def _hit(steps: Steps, name: str, values: Floats, what: str) -> Hit:
    return Hit.at(
        steps,
        "sev2",
        f"{{where}} is {{value:.3g}} after all steps, and was {{limit:.3g}} at first: {what}",
        where=name,
        value=float(values[-1]),
        limit=float(values[0]),
        worst=-1,
    )


def _learnt_by_heart(score: Series, name: str, held_out: Floats, *, min_learnt: float = 0.2) -> float | None:
    """Return what an accuracy has come to on training data, if it has risen there and nothing of that shows on held-out data."""
    if (named := ON_HELD_OUT.fullmatch(name)) is None:
        return None
    place = next((score.places[other] for other in (named[1], f"train_{named[1]}") if other in score.places), None)
    trained = np.empty(0) if place is None else accuracy_shares(score.finite_points(place)[1])
    if len(trained) < 2 or (end := median(trained[-3:])) < trained[0] + min_learnt:
        return None
    first_or_less = float(trained[0]) + NO_RISE_OF_ACCURACY[0]
    return end if _stays_low(accuracy_shares(held_out), first_or_less, *NO_RISE_OF_ACCURACY) else None


def _stands(name: str, values: Floats, max_accuracy: float, max_explained: float, max_ranking: float) -> bool:
    """Tell whether a score stays where an untrained model has it."""
    if RANKING.search(name):
        return _stays_low(values - RANDOM_ORDER, max_ranking - RANDOM_ORDER, *NO_RISE_OF_EXPLAINED)
    if EXPLAINED_VARIANCE.search(name):
        is_above_guess = values[-max(3, len(values) // 3) :].min() > 0  # of noise alone one in eight, or fewer
        return not is_above_guess and _stays_low(values, max_explained, *NO_RISE_OF_EXPLAINED)
    return _stays_low(accuracy_shares(values), max_accuracy, *NO_RISE_OF_ACCURACY)


def _of_classes_never_right(score: Series, min_evals: int, *, min_of_others: float = 0.1) -> Iterator[Hit]:
    """Yield the scores of single classes that are 0 from the first value to the last, while those of other classes are not."""
    kinds: dict[str, list[int]] = {}
    for place, name in enumerate(score.labels):
        if (numbered := NUMBERED.fullmatch(name)) is not None:
            kinds.setdefault(numbered[1], []).append(place)
    for places in kinds.values():
        known = {place: score.values[score.finite_in(place), place] for place in places}
        best = max((float(values[-1]) for values in known.values() if len(values)), default=0.0)
        for place, values in known.items():
            if len(values) >= min_evals and not values.any() and best > min_of_others:
                text = f"{{where}} is exactly 0 at all {len(values)} evaluations, and {best:.3g} for another class"
                yield Hit.at(score.steps[score.finite_in(place)], "sev2", text, where=score.labels[place], value=0.0, worst=-1)


def _named(score: Series, kind: re.Pattern[str]) -> Iterator[tuple[str, Steps, Floats]]:
    """Yield name, steps and known values of each score of a kind."""
    for place, name in enumerate(score.labels):
        if kind.search(name):
            rows = score.finite_in(place)
            yield name, score.steps[rows], score.values[rows, place]


def _of_constant_returns(score: Series, min_returns: int) -> Iterator[Hit]:
    """Yield episode returns that never differ, or that fell to their worst value and stay there."""
    for name, steps, values in _named(score, EPISODE_RETURN):
        if len(values) < min_returns:
            continue
        if values.min() == values.max():
            severity: Severity = "note" if values[0] > 0 else "sev2"
            reason = "it may be the most there is" if values[0] > 0 else "there is nothing to learn"
            text = f"{{where}} is {{value:.4g}} all {len(values)} times: no episode ended otherwise, {reason}"
            yield Hit.at(steps, severity, text, where=name, value=float(values[0]))
            continue
        level = median(values[len(values) // 2 :])
        near = np.abs(values - level) <= SAME_RETURN * abs(level)
        share_from_here = np.cumsum(near[::-1])[::-1] / np.arange(len(near), 0, -1)
        since = int(np.argmax(share_from_here >= COLLAPSED_SHARE))
        count = len(values) - since
        is_worst = values.min() >= level - SAME_RETURN * abs(level) and np.argmax(values) < len(values) / 2
        if is_worst and share_from_here[since] >= COLLAPSED_SHARE and count >= max(min_returns, len(values) / 2):
            text = f"{{where}} is {{value:.4g}}, its worst, in {share_from_here[since]:.0%} of the last {count} of {len(values)}"
            text += f"; its best was {values.max():.4g}"
            yield Hit.at(steps[since:], "sev2", text, where=name, value=level)


def _of_no_success(score: Series, min_values: int) -> Iterator[Hit]:
    """Yield the rates of success that are 0 from the first value to the last."""
    for name, steps, values in _named(score, SUCCESS_RATE):
        if len(values) >= min_values and not values.any():
            text = f"{{where}} is 0 all {len(values)} times: no episode has met its goal"
            yield Hit.at(steps, "sev2", text, where=name, value=0.0)


def _stays_low(values: Floats, bound: float, rise: float, rise_share: float) -> bool:
    """Tell whether a score stays below a bound, except for a tenth of its values, and ends no higher than it began."""
    third = max(1, len(values) // 3)
    first, last = median(values[:third]), median(values[-third:])
    has_risen = last - first > max(rise, rise_share * abs(first))
    return bool(np.quantile(values, 0.9) <= bound and last <= bound and not has_risen)


def _falls(loss: Series | None, *, min_fall: float = 0.02, min_points: int = 5) -> bool:
    """Tell whether a loss comes down after its first third, by more than its noise."""
    values = loss.values[loss.finite] if loss is not None else np.empty(0)
    late = values[len(values) // 3 :]
    if len(late) < min_points or late.max() < 0:  # a cross-entropy is not below 0: no accuracy follows this
        return False
    fall = fall_between_thirds(late)
    return fall.first - fall.last > max(min_fall * abs(fall.first), 3 * fall.error)
