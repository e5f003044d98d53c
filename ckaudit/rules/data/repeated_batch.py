"""DATA003: batches come again too soon."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.data import batch_duplicate_share, batch_repeat_distance, batch_reused
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.rules.rule import FACTS, Hit, Skip, is_written_by_ckaudit, rule
from ckaudit.run.falls import ends_lower
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Mask, Series, single
from ckaudit.run.spans import spans
from ckaudit.run.tensors import loss_kind_of

UNSEEN_REPEATS = 2
"""Repeats after which the recorder keeps an array for a step, to see whether it comes again."""


@rule(
    "DATA003",
    severity="sev1",
    needs=[train_loss_raw],
    wants=[batch_repeat_distance, batch_duplicate_share, FACTS, val_loss, batch_reused],
    unit="steps",
)
def repeated_batch(
    loss: Series,
    distance: Series | None,
    duplicates: Series | None,
    facts: Manifest | None,
    val: Series | None,
    reused: Series | None,
    *,
    max_steps_back: int = 10,
    max_repeated_share: float = 0.2,
    stuck_share: float = 0.9,
    window: int = 20,
    min_points: int = 10,
    max_duplicate_share: float = 0.25,
) -> Iterator[Hit | Skip]:
    """Batches come again too soon.

    ## What it checks
    How many steps ago the very same inputs were seen, and how many rows of a batch are equal to another one:

    - More than `max_repeated_share` of the last `window` steps repeat one of the last `max_steps_back` steps: loader workers
      share a seed (sev2).
    - At least `stuck_share` of the last `window` steps repeat an earlier one: the loader stands still (sev1).
    - After a resume, at least `min_points` batches are those from the run's beginning: the loader's place was lost.
    - The share of the rows of a batch that are equal to another row of it is above `max_duplicate_share` in the median over the
      checkpoints: sev2 (public corpora have 0.4 to 13.6 % near duplicates in all, Lee et al. 2022).
    ## Why it matters
    A repeated batch is learnt by heart: the training loss falls for nothing, and the data that was to come is never seen.
    ## False alarms
    Some data comes again as it should:

    - An epoch repeats the data at a distance of its own length, and is silent.
    - Where every step of the run has the same batch, from the second on, it is sev2: the batch may be all data, as of a graph or
      a differential equation, or one that is overfitted on purpose.
    - That is a note where the held-out loss falls, or where the program holds one array in hand, as no loader does (a text is no
      single batch). The losses judge what that array teaches.
    """
    if duplicates is not None:
        yield from _within(duplicates, max_duplicate_share)
    if distance is None:
        if not is_written_by_ckaudit(facts):  # in a record by ckaudit, no repeat means that there was none
            yield Skip("not_recorded", "needs batch")
        return
    again = np.zeros(len(loss.steps), bool)
    again[np.isin(loss.steps, distance.steps[(distance.values <= max_steps_back).any(axis=1)])] = True
    share = _share(again, window)
    series = single("batches", "1", loss.steps, share)
    for span in spans(series, (share > max_repeated_share)[:, None]):
        start = max(int(span.rows[0]) - window + 1, 0)
        first = start + int(np.argmax(again[start : int(span.rows[0]) + 1]))
        highest = float(share[span.rows].max())
        is_whole = highest >= stuck_share and first <= 1 and bool(again[1:].all())
        severity: Severity = "sev1" if highest >= stuck_share else "sev2"
        if is_whole:
            is_all = is_array_reused(reused, distance) and loss_kind_of(facts) != "nats_per_token"  # a text is no single batch
            severity = "note" if is_all or _carries_over(val, loss) else "sev2"
        yield Hit(
            severity=severity,
            where="batches",
            first=int(loss.steps[first]),
            last=span.last,
            worst=int(loss.steps[first]),
            points=span.points,
            value=100 * highest,
            limit=100 * max_repeated_share,
            message="every step trains on what the step before did"
            + (", as where a batch is all there is" if severity == "note" else "")
            if is_whole
            else "{value:.0f} % of " + f"{window} batches in a row were seen within the {max_steps_back} steps before",
        )
    yield from _from_the_beginning(distance, facts, max_steps_back, min_points)


def is_array_reused(reused: Series | None, distance: Series) -> bool:
    """Tell whether the program passes one array at every step; the recorder does not see the first `UNSEEN_REPEATS` repeats."""
    return reused is not None and len(reused.steps) >= max(1, len(distance.steps) - UNSEEN_REPEATS)


def _carries_over(val: Series | None, loss: Series, *, min_fall: float = 0.2) -> bool:
    """Tell whether the held-out loss ends well below its first or an untrained model's: then the one batch teaches something."""
    known = val.values[val.finite_in(0), 0] if val is not None else np.empty(0)
    untrained = median(loss.finite_points()[1][:3])
    return len(known) > 1 and (ends_lower(known, min_fall=min_fall) or median(known[-3:]) < (1 - min_fall) * untrained)


def _share(again: Mask, window: int) -> Floats:
    """Return the share of repeats in each step's last `window`, 0 before there are as many."""
    counted = np.concatenate([[0.0], np.cumsum(again)])
    share = np.zeros(len(again))
    if len(again) >= window:
        share[window - 1 :] = (counted[window:] - counted[:-window]) / window
    return share


def _within(duplicates: Series, max_share: float, *, min_checkpoints: int = 2) -> Iterator[Hit]:
    """Yield where the batches of most checkpoints repeat themselves."""
    known = duplicates.finite[:, 0]
    shares = duplicates.values[known, 0]
    if len(shares) >= min_checkpoints and (usual := median(shares)) > max_share:
        yield Hit.at(
            duplicates.steps[known],
            "sev2",
            "{value:.0f} % of the rows of a batch are equal to another one of it",
            where="batches",
            value=100 * usual,
            limit=100 * max_share,
            worst=0,
        )


def _from_the_beginning(distance: Series, facts: Manifest | None, near: int, min_points: int) -> Iterator[Hit]:
    """Yield a hit for each session that repeats the batches of the run from its first step on."""
    sessions = facts.sessions if facts is not None and facts.sessions is not UNSET else []
    for seam in [
        session.resumed_from for session in sessions if session.resumed_from is not UNSET and session.resumed_from > near
    ]:
        same = (distance.values[:, 0] == seam) & (distance.steps > seam)
        if same.sum() >= min_points and distance.steps[same][0] <= seam + near:
            steps = distance.steps[same]
            yield Hit.at(
                steps,
                "sev2",
                "after the resume from step {value:.0f} the batches are those from the beginning of the data",
                where="batches",
                value=float(seam),
                limit=0.0,
                worst=0,
            )
