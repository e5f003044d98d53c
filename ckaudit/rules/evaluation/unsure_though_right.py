"""EVAL005: a classifier is right, and its loss says that it is not sure."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.score_names import held_out_accuracies
from ckaudit.metrics.evaluation import accuracy_shares, microbench_score
from ckaudit.metrics.loss import val_loss
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.series import Series, at

DEAREST_ERROR = 10.0
"""Nats that a wrong answer costs a model that is sure of it; few models are surer than one in twenty thousand."""

MAX_SMOOTHED = 1.1
"""Nats that targets smoothed by 0.1 cost at most, among up to 1,000 classes; a second softmax costs more from six classes on."""

MIN_LOSS = 0.3
"""The loss of a model that is right lies below so many nats."""


@rule("EVAL005", severity="sev2", needs=[microbench_score, val_loss], unit="nats")
def unsure_though_right(
    score: Series,
    val: Series,
    *,
    min_accuracy: float = 0.95,
    max_first_accuracy: float = 0.9,
    min_loss_share: float = 0.5,
    min_evals: int = 3,
) -> Iterator[Hit | Skip]:
    """A classifier is right, and its loss says that it is not sure.

    ## What it checks
    The rule takes a held-out accuracy beside the held-out loss, at `min_evals` evaluations or more that have both. All of these
    hold:

    - The accuracy begins below `max_first_accuracy`.
    - The accuracy comes to `min_accuracy` at the median of its last third.
    - The lowest loss of all, less ten nats for each wrong answer, is still at least `min_loss_share` of the first loss, and 0.3
      nats.
    ## Why it matters
    The loss cannot say how good the model is, and its gradient is that of a model which knows little. With C classes, a second
    softmax leaves log(C - 1 + e) - 1 for an answer that is right and sure.
    ## False alarms
    Some losses stay high without a second softmax:

    - Labels that are smoothed by 0.1 leave a quarter of what a guess costs, half with few classes, and 1.1 nats among a thousand
      classes: up to there it is a note.
    - Labels that are smoothed by a third and more leave half of any guess.
    - A loss with a margin, or of a teacher's probabilities, is held up on purpose.
    - The loss of a model that overfits rises, but was low before.
    """
    for place in held_out_accuracies(score.labels):
        name = score.labels[place]
        losses = at(val, score.steps)
        known = score.finite[:, place] & (losses.age[:, 0] == 0) & np.isfinite(losses.values[:, 0])
        if known.sum() < min_evals:
            yield Skip("too_few_points", f"{known.sum()} evaluations have {name} and the loss; {min_evals} are needed")
            continue
        steps, right, costs = score.steps[known], accuracy_shares(score.values[known, place]), losses.values[known, 0]
        third = max(1, len(steps) // 3)
        accuracy, lowest = median(right[-third:]), float(costs.min())
        unexplained = lowest - DEAREST_ERROR * (1 - accuracy)
        if right[0] < max_first_accuracy and accuracy >= min_accuracy and unexplained >= max(MIN_LOSS, min_loss_share * costs[0]):
            yield Hit.at(
                steps[int(np.argmax(right >= min_accuracy)) :],
                "sev2" if unexplained > MAX_SMOOTHED else "note",
                f"{{where}} is {accuracy:.1%}, and the held-out loss never comes below {{value:.3g}}, having begun at "
                "{limit:.3g}: right predictions have low confidence, as under a second softmax"
                + ("" if unexplained > MAX_SMOOTHED else ", or smoothed targets"),
                where=name,
                value=lowest,
                limit=float(costs[0]),
                worst=-1,
            )
