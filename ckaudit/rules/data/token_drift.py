"""DATA004: the tokens of the batches change their distribution."""

from collections.abc import Iterable, Iterator

import numpy as np

from ckaudit.metrics.data import token_kl_drift
from ckaudit.metrics.loss import slice_val_loss, val_loss
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series
from ckaudit.run.spans import spans

MIN_EARLIER_DISTANCES = 2
"""Minimum number of earlier distances for a new distance to be judged as one of another kind."""


@rule("DATA004", severity="sev2", needs=[token_kl_drift], wants=[val_loss, slice_val_loss], unit="nats")
def token_drift(
    drift: Series,
    val: Series | None,
    slices: Series | None,
    *,
    max_divergence: float = 0.8,
    note_divergence: float = 0.1,
    min_ratio: float = 5.0,
    worse_loss_share: float = 0.1,
    parted_loss_share: float = 0.03,
    min_history: int = 5,
) -> Iterator[Hit | Skip]:
    """The tokens of the batches change their distribution.

    ## What it checks
    The divergence of each batch's tokens from those of the first batch (M35, SEV2-1):

    - A divergence beyond `max_divergence` nats, and beyond `min_ratio` times the median before it, is text of another kind
      (sev2).
    - A divergence beyond `note_divergence` nats, and beyond `min_ratio` times the median of all before it (at least
      `min_history`), is noted.
    - Such a note is sev2 where the validation loss, or that of a slice of what is held out, has got worse since by
      `worse_loss_share` of its best.
    - A slice that has got worse by `parted_loss_share` of its best is enough where another slice is at its best: what is trained
      on is then learnt at the cost of the rest.
    - In the lab's dev split healthy batches reach 0.09, a planned curriculum over sources 0.53; sources one after the other 1.4,
      junk 2.1, other tokens 4.
    ## Why it matters
    The model is trained on something else than before, or on nothing that means anything.
    ## False alarms
    Batches of a few tokens differ by chance, and a curriculum by intention: both stay below `max_divergence`, and neither harms
    what is held out. Batches of a few documents, each about something else, differ as much from one another at any step.
    """
    yield from too_few(drift, min_history)
    before = np.array([_median(drift.values[:row], MIN_EARLIER_DISTANCES) for row in range(len(drift.steps))])[:, None]
    strange = drift.values > np.fmax(max_divergence, min_ratio * before)
    for span in spans(drift, strange):
        yield Hit.over(
            span,
            "sev2",
            "the tokens are {value:.2g} nats from those of the first batch; {limit:.2g} is another kind",
            badness=drift.values,
            limit=max_divergence,
        )
    usual = np.array([_median(drift.values[:row], min_history) for row in range(len(drift.steps))])[:, None]
    for span in spans(drift, (drift.values > np.maximum(note_divergence, min_ratio * usual)) & ~strange):
        harmed = _worse_since([val, slices], span.first, worse_loss_share) or _parted_since(slices, span.first, parted_loss_share)
        yield Hit.over(
            span,
            "sev2" if harmed else "note",
            "the tokens are {value:.2g} nats from the first batch's, further than before"
            + (f", and {harmed} has got worse since" if harmed else ""),
            badness=drift.values,
            limit=note_divergence,
        )


def _worse_since(serieses: Iterable[Series | None], step: int, share: float) -> str:
    """Return the first loss whose last two evaluations since a step lie above the best of all; nothing where none does."""
    for series in (seriese for seriese in serieses if seriese is not None):
        for column, label in enumerate(series.labels):
            known = series.finite_in(column)
            steps, losses = series.steps[known], series.values[known, column]
            late = losses[steps >= step][-2:]
            if len(late) == 2 and float(late.min()) > (1 + share) * float(losses.min()):
                return label
    return ""


def _parted_since(slices: Series | None, step: int, share: float) -> str:
    """Return the slice that has got worse since a step, where another slice is at its best in the last evaluation."""
    if slices is None or not any(_is_at_its_best(slices, column) for column in range(len(slices.labels))):
        return ""
    return _worse_since([slices], step, share)


def _is_at_its_best(series: Series, column: int) -> bool:
    known = series.values[series.finite_in(column), column]
    return len(known) > 1 and int(known.argmin()) == len(known) - 1


def _median(values: Floats, min_points: int) -> float:
    """Return the median of the finite values, infinite where there are too few."""
    known = values[np.isfinite(values)]
    return median(known) if len(known) >= min_points else float("inf")
