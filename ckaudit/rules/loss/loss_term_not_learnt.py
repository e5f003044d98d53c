"""LOSS011: one of several terms of a loss is not learnt, beside others that are."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss import loss_part, train_loss_raw
from ckaudit.metrics.loss_function import LEARNT_SHARE, MAX_UNEXPLAINED, loss_term_explained_share
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule
from ckaudit.run.medians import median
from ckaudit.run.run_facts import why_loss_need_not_fall
from ckaudit.run.series import Floats, Series

MAX_RANGE, MIN_RANGE_OF_ALL = 1e-3, 0.03
"""Shares of their levels: a term that moves by less does not move, while the sum of all moves by more from batch to batch."""

FREE_BITS = ("kl",)
"""Terms that may stand still on purpose, at a bound below which they are not minimized."""


@rule("LOSS011", severity="sev2", needs=[], wants=[loss_term_explained_share, FACTS, loss_part, train_loss_raw], unit="1")
def loss_term_not_learnt(
    saved: Series | None,
    facts: Manifest | None,
    terms: Series | None,
    loss: Series | None,
    *,
    min_steps: int = 200,
    min_checkpoints: int = 4,
    min_points: int = 20,
) -> Iterator[Hit | Skip]:
    """One of several terms of a loss is not learnt, beside others that are.

    ## What it checks
    The rule judges each loss function that a step calls, and each term that was logged.

    - A loss function saves less than 2 % of what a constant guess costs on its targets, its own noise included, while another
      saves 10 %. Functions that are called with as many classes, or numbers, count as one.
    - Loss functions are judged in the second half of the record, from `min_checkpoints` checkpoints there and `min_steps` steps
      on.
    - A logged term does not move: over the last third of the run it stays within 0.1 % of its level, which is not zero, while the
      sum moves by more than 3 % from batch to batch. That third has at least `min_points` points.
    ## Why it matters
    The sum hides it: the largest term falls, and takes what clipping leaves of the gradient. What the small term is to teach, as
    the class beside the box, is not learnt at all.
    ## False alarms
    Some terms rightly do not move:

    - A task that cannot be told from its inputs looks the same, and so does one that has just been switched on.
    - Losses that play against each other, and those of a policy, are not judged: a constant may be the best answer there.
    - A divergence (KL) may stand at a bound below which nothing is asked of it, and is not judged by its course.
    """
    if undirected := why_loss_need_not_fall(facts):
        yield Skip("not_applicable", undirected)
        return
    if saved is None and terms is None:
        yield needs_one_of(loss_term_explained_share, loss_part)
        return
    if saved is not None:
        yield from _no_better_than_a_guess(saved, min_steps, min_checkpoints)
    if terms is not None and loss is not None:
        yield from _standing(terms, loss, min_points)


def _standing(terms: Series, loss: Series, min_points: int) -> Iterator[Hit]:
    """Yield terms that do not move over the last third of the run, while the sum of all differs from batch to batch."""
    steps, values = loss.finite_points()
    if not len(steps):
        return
    since = steps[-1] - (steps[-1] - steps[0]) / 3
    late = values[steps >= since]
    if len(late) < min_points or np.ptp(late) <= MIN_RANGE_OF_ALL * abs(median(late)):
        return
    for column, label in enumerate(terms.labels):
        own, course = terms.finite_points(column)
        last = course[own >= since]
        if label in FREE_BITS or len(last) < min_points:
            continue
        level = float(last[-1])
        if np.ptp(last) >= MAX_RANGE * abs(level):
            continue
        rows = np.flatnonzero(np.abs(course - level) >= MAX_RANGE * abs(level))
        first = int(rows[-1]) + 1 if len(rows) else 0
        yield Hit.at(
            own[first:],
            "sev2",
            "the term {where} of the loss stands at {value:.4g} from batch to batch, while the sum goes on: nothing that it is "
            "computed from is learnt",
            where=label,
            value=level,
            worst=-1,
        )


def _no_better_than_a_guess(saved: Series, min_steps: int, min_checkpoints: int) -> Iterator[Hit | Skip]:
    """Yield loss functions that save hardly anything of a constant guess's cost, where another function saves a tenth."""
    rows = saved.recorded_rows()
    late = rows.steps > rows.steps[-1] / 2
    if late.sum() < min_checkpoints or rows.steps[-1] < min_steps:
        message = f"{int(late.sum())} checkpoints in the second half of {int(rows.steps[-1])} steps; {min_checkpoints} are needed"
        yield Skip("too_few_points", f"{message}, and {min_steps} steps")
        return
    shares = [rows.values[late & np.isfinite(rows.values[:, column]), column] for column in range(len(rows.labels))]
    learnt = {label: median(share) for label, share in zip(rows.labels, shares, strict=True) if len(share) >= min_checkpoints}
    best = max(learnt, key=learnt.__getitem__, default=None)
    if best is None or learnt[best] < LEARNT_SHARE:
        return
    for label, share in zip(rows.labels, shares, strict=True):
        if label in learnt and _largest_likely(share) < MAX_UNEXPLAINED:
            yield Hit.at(
                rows.steps[late],
                "sev2",
                f"{{where}} saves {{value:.1%}} of what a constant guess costs on its targets, where {best} saves "
                f"{learnt[best]:.0%}: this part of the loss is not learnt",
                where=label,
                value=learnt[label],
                limit=MAX_UNEXPLAINED,
                worst=int(np.argmin(share)),
            )


def _largest_likely(share: Floats) -> float:
    """Return the median of some shares plus two of its standard errors."""
    return median(share) + 2 * float(np.std(share, ddof=1)) / float(np.sqrt(len(share)))
