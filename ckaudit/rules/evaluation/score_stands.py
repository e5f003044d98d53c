"""EVAL003: a score of the model stays where it began, at what an untrained one gets."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.score_names import ACCURACY, EXPLAINED_VARIANCE, RANKING
from ckaudit.metrics.evaluation import accuracy_shares, microbench_score
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.falls import fall_between_thirds
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series

NO_RISE_OF_ACCURACY = (0.02, 0.25)
NO_RISE_OF_EXPLAINED = (0.05, 0.5)
"""What has risen by less from its first third to its last has not risen, in itself and as a share of where it began: a share of
variance may begin far below zero."""

RANDOM_ORDER = 0.5
OF_A_GUESS = {EXPLAINED_VARIANCE: "a constant guess is as good", RANKING: "a random order is as good"}
"""Scores of which it is known by definition what a guess has."""


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
) -> Iterator[Hit | Skip]:
    """A score of the model stays where an untrained one has it.

    ## What it checks
    Scores that are named as an accuracy, from `min_evals` values on: it does not rise from its first third to its last, no value
    but a tenth is above `max_accuracy`, and neither the held-out nor the training loss comes down after their first third. And
    those named as the share of variance that is explained (R2): none but a tenth is above `max_explained`, it does not rise, and
    the last is no better than a constant guess has it, by the definition of R2. So are those of an order (AUC, concordance), of
    which a random one has a half: none but a tenth is above `max_ranking`.
    ## Why it matters
    What the model tells apart at its end it told apart at its start: no learning is visible.
    ## False alarms
    A model that was trained before may keep its score, and a hard task may give little: an accuracy of a fifth that does not move
    beside a loss that stands is neither. Where a loss still falls, an accuracy may be late.
    """
    names = score.labels if score is not None else ()
    judged = [place for place, name in enumerate(names) if any(kind.search(name) for kind in (ACCURACY, *OF_A_GUESS))]
    if score is None or not judged:
        yield Skip("not_applicable", "no score is named as an accuracy, an order or a share of variance that is explained")
        return
    known = {place: np.flatnonzero(score.finite[:, place]) for place in judged}
    if max(map(len, known.values())) < min_evals:
        yield Skip("too_few_points", f"{max(map(len, known.values()))} values of a score; {min_evals} are needed")
        return
    for place, rows in known.items():
        values = score.values[rows, place]
        name = score.labels[place]
        guess = next((words for kind, words in OF_A_GUESS.items() if kind.search(name)), None)
        if len(values) < min_evals or (guess is None and (_falls(val) or _falls(train))):
            continue
        if RANKING.search(name):
            stands = _stays_low(values - RANDOM_ORDER, max_ranking - RANDOM_ORDER, *NO_RISE_OF_EXPLAINED)
        elif guess is not None:
            stands = _stays_low(values, max_explained, *NO_RISE_OF_EXPLAINED)
        else:
            stands = _stays_low(accuracy_shares(values), max_accuracy, *NO_RISE_OF_ACCURACY)
        if stands:
            yield Hit.at(
                score.steps[rows],
                "sev2",
                "{where} is {value:.3g} after all steps, and was {limit:.3g} at first: " + (guess or "no learning is visible"),
                where=name,
                value=float(values[-1]),
                limit=float(values[0]),
                worst=-1,
            )


def _stays_low(values: Floats, bound: float, rise: float, rise_share: float) -> bool:
    """Tell whether a score stays below a bound, a tenth of its values aside, and ends no higher than it began."""
    third = max(1, len(values) // 3)
    first, last = median(values[:third]), median(values[-third:])
    has_risen = last - first > max(rise, rise_share * abs(first))
    return bool(np.quantile(values, 0.9) <= bound and last <= bound and not has_risen)


def _falls(loss: Series | None, *, min_fall: float = 0.02, min_points: int = 5) -> bool:
    """Tell whether a loss comes down after its first third, by more than its noise."""
    values = loss.values[loss.finite] if loss is not None else np.empty(0)
    late = values[len(values) // 3 :]
    if len(late) < min_points:
        return False
    fall = fall_between_thirds(late)
    return fall.first - fall.last > max(min_fall * abs(fall.first), 3 * fall.error)
