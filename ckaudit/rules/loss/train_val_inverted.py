"""LOSS006: the model does better on held-out data than on what it trains on."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.loss_function import has_auxiliary_loss, label_smoothing, loss_to_function_ratio, targets_mixed
from ckaudit.metrics.trend import theil_sen
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA, MEDIAN_STANDARD_ERROR_FACTOR
from ckaudit.run.run_facts import counts_updates
from ckaudit.run.series import Floats, Series
from ckaudit.run.spans import Span, spans

POINTS_AROUND, WIDE_POINTS_AROUND = 5, 12
"""Training points before and after an evaluation whose median is its level: for a gap that is noted, and for one that is sev2."""

SMOOTHED_LOSS_SHARE = 0.4
"""Share of the first losses that label smoothing of 0.2 may cost: with ten classes it costs 0.38 of a uniform guess."""

MIXED_LOSS_SHARE = 0.6
"""The same where rows are mixed as well, in evenly drawn shares: half a nat more, 0.22 of a guess among ten classes."""

STANDARD_ERRORS = 2.0
"""A level is lowered by so many of its standard errors before it is sev2: chance exceeds them once in 40 times."""

MIN_FOR_AN_ERROR = 3
"""Fewest points that show scatter."""

MIN_COURSE = 8
"""Fewest evaluations that show whether a gap widens."""

START, LATE_START, LATE_RATIO = 1e-3, 1e-2, 1.5
"""Shares of the run's steps, and a factor. A log that begins after the first share lacks some of the loss's initial height: its
limit is so many times higher. A log that begins after the second share does not say what the run began with."""


BLOCK_ROWS = 2**14
"""Evaluations that are handled together: their training losses fit in the processor's cache."""


@rule(
    "LOSS006",
    severity="sev2",
    needs=[val_loss, train_loss_raw],
    wants=[FACTS, label_smoothing, targets_mixed, loss_to_function_ratio],
    unit="nats/token",
)
def train_val_inverted(
    val: Series,
    train: Series,
    facts: Manifest | None,
    smoothing: Series | None,
    mixed: Series | None,
    ratio: Series | None,
    *,
    max_share: float = 0.18,
    max_share_not_tokens: float = 0.26,
    note_share: float = 0.02,
    min_evals: int = 3,
    min_widening: float = 1.5,
    max_chance: float = 0.01,
) -> Iterator[Hit | Skip]:
    """The validation loss lies below the training loss.

    ## What it checks
    The gap is the training loss around an evaluation less the validation loss, over the first losses, or over their height above
    the lowest validation loss where that is below zero.

    - The training loss around an evaluation is the median of the points near it, none from before half of its step or after half
      as many steps again.
    - More than `max_share` at `min_evals` evaluations in a row is sev2: the two cannot be losses of the same thing (lab: label
      smoothing of 0.1 comes to 0.12, a third of the targets at random to 0.2 and more).
    - For that finding, 12 points before and after the evaluation count, the gap is lowered by two standard errors, and it is the
      median of three evaluations.
    - Where nothing says that the inputs are tokens, the limit is `max_share_not_tokens` (public logs: augmented images come to
      0.24).
    - Without tokens, the limit is 0.4 where labels are smoothed (0.2 of ten classes costs 0.38 of a uniform guess), and 0.6 where
      rows are mixed or nobody knows (another 0.22).
    - Beyond 0.6, one evaluation is enough.
    - A gap of more than `note_share`, by 5 points before and after, is a note.
    - Such a small gap is sev2 where it widens without a doubt, to `min_widening` times from the second quarter of the evaluations
      to the last (lab: held-out rows in the training set come to 1.9).
    - Widening is beyond doubt where Mann-Kendall gives a probability below `max_chance`, from 8 evaluations on. It counts only
      where run.json says that no module drops anything, and targets are neither smoothed nor mixed.
    ## Why it matters
    Targets of the training set are wrong, the two losses are computed in two ways, or the held-out set is in the training set.
    ## False alarms
    Some training losses are rightly higher:

    - Dropout, label smoothing and augmentation burden the training loss alone: a small gap stays a note.
    - Dropout costs more the better the model gets: a gap that widens where there may be dropout stays a note.
    - Everything is a note in a log whose first 1 % is missing: the losses that a gap is compared with are not there.
    - It is a note in a run that trains on more than one loss function, as where a teacher's answers are targets too.
    - Where a step is an epoch, its training loss is a mean taken while it fell: it is compared with the evaluation before it too.
    """
    known = np.flatnonzero(train.finite[:, 0])
    if len(known) < 2 * POINTS_AROUND:
        yield Skip("too_few_points", f"{len(known)} points of the training loss; {2 * POINTS_AROUND} are needed")
        return
    start, late = _start(train, known, val)
    if start <= 0:
        return
    start -= min(0.0, float(np.nanmin(val.values, initial=0.0)))  # a likelihood that falls below zero falls from there
    held_out = val.values if counts_updates(facts) else _through_epochs(val.values, start)
    gap = (_level(train, known, val, POINTS_AROUND)[:, None] - held_out) / start  # (E, V)
    steady = _middle_of_three((_level(train, known, val, WIDE_POINTS_AROUND, STANDARD_ERRORS)[:, None] - held_out) / start)
    late_ratio = 1.0 if late <= START else LATE_RATIO if late <= LATE_START else np.inf
    is_of_tokens = facts is not None and facts.vocabulary is not UNSET
    limit = late_ratio * (max_share if is_of_tokens else _limit_not_of_tokens(smoothing, mixed, max_share_not_tokens))
    rest = np.nan_to_num(gap) > note_share
    accused = list(spans(val, np.nan_to_num(steady) > limit, min_points=min_evals))
    if not accused:
        limit = MIXED_LOSS_SHARE * late_ratio
        accused = list(spans(val, np.nan_to_num(steady) > limit))
    for span in accused:
        rest[span.rows] = False
        hit = _too_wide(span, steady, limit)
        yield replace(hit, severity="note") if has_auxiliary_loss(ratio) else hit
    yield from too_few(val, min_evals)
    nothing_costs_more = facts is not None and facts.dropout == 0 and not _is_any(smoothing) and not _is_any(mixed)
    wider = (
        late <= START
        and nothing_costs_more
        and _widens(val, gap[:, 0], min_widening, max_chance, -(-2 * POINTS_AROUND * len(val.steps) // len(known)))
    )
    for span in spans(val, rest, min_points=min_evals):
        yield Hit.over(
            span,
            "sev2" if wider else "note",
            "the training loss lies above {where} by {value:.0%} of what the run began with"
            + (", and further and further" if wider else ": dropout, smoothing, or targets that are wrong"),
            badness=gap,
            limit=note_share,
        )


def _limit_not_of_tokens(smoothing: Series | None, mixed: Series | None, plain: float) -> float:
    """Return the limit of the gap where inputs are not known to be tokens: higher where targets are changed, or may be."""
    if smoothing is None or _is_any(mixed):
        return MIXED_LOSS_SHARE
    return SMOOTHED_LOSS_SHARE if _is_any(smoothing) else plain


def _is_any(series: Series | None) -> bool:
    """Tell whether anything is above zero."""
    return series is not None and bool((series.values[series.finite] > 0).any())


def _through_epochs(val: Floats, start: float) -> Floats:
    """Return the higher of the held-out losses before and after each epoch, since the training loss is a mean over the epoch."""
    before = np.concatenate([np.full((1, val.shape[1]), start), val[:-1]])
    return np.asarray(np.fmax(before, val))


def _too_wide(span: Span, gap: Floats, limit: float) -> Hit:
    """Return the hit of a gap that two losses of the same thing cannot have."""
    message = (
        "the training loss lies above {where} by {value:.0%} of what the run began with; "
        "no usual dropout or smoothing makes more than {limit:.0%}"
    )
    return Hit.over(span, "sev2", message, badness=gap, limit=limit)


def _start(train: Series, known: "np.ndarray", val: Series) -> tuple[float, float]:
    """Return the loss that the run began with, the higher of both that are known, and how late the log begins, as a share."""
    last = float(train.steps[known[-1]])
    evals = np.flatnonzero(val.finite[:, 0])
    values = [float(train.values[known[0], 0]), median(train.values[known[:POINTS_AROUND], 0])]
    first = [float(train.steps[known[0]])]
    if len(evals) and val.steps[evals[0]] <= LATE_START * last:
        values.append(float(val.values[evals[0], 0]))
        first.append(float(val.steps[evals[0]]))
    return max(values), 0.0 if min(first) <= 1 else min(first) / last


def _widens(val: Series, gap: Floats, times: float, chance: float, apart: int) -> bool:
    """Tell whether the gap widens from the second quarter of the evaluations to the last; in the first it still comes down.

    One evaluation in `apart` is taken, so that no two share training points.
    """
    known = np.flatnonzero(np.isfinite(gap))[::apart]
    quarter = len(known) // 4
    if len(known) < MIN_COURSE:
        return False
    before, after = (median(gap[part]) for part in (known[quarter : 2 * quarter], known[-quarter:]))
    trend = theil_sen(val.steps[known[quarter:]].astype(float), gap[known[quarter:]])
    return after > 0 and after > times * before and trend.slope > 0 and trend.p < chance


def _middle_of_three(gap: Floats) -> Floats:
    """Return the median of each evaluation's gap and its two neighbours' gaps; the first and the last stay as they are."""
    middle = gap.copy()
    if len(gap) > 2:
        middle[1:-1] = np.median(np.stack([gap[:-2], gap[1:-1], gap[2:]]), axis=0)
    return middle


def _level(train: Series, known: "np.ndarray", val: Series, around: int, errors: float = 0.0) -> Floats:
    """Return the median training loss around each evaluation, shape (E,), less `errors` of its standard errors.

    NaN where no loss is near an evaluation. Losses count from half of its step up to one and a half times its step.
    """
    steps, losses = train.steps[known], train.values[known, 0]
    places = np.searchsorted(steps, val.steps, side="right")
    starts = np.maximum(places - around, np.searchsorted(steps, val.steps // 2))
    ends = np.minimum(places + around, np.searchsorted(steps, val.steps + val.steps // 2, side="right"))
    sizes, levels = ends - starts, np.full(len(places), np.nan)
    for size in np.unique(sizes[sizes >= (MIN_FOR_AN_ERROR if errors else 1)]).tolist():
        rows = np.flatnonzero(sizes == size)
        for part in (rows[begin : begin + BLOCK_ROWS] for begin in range(0, len(rows), BLOCK_ROWS)):
            near = losses[starts[part, None] + np.arange(size)]
            levels[part] = np.median(near, axis=1) - (errors * _standard_errors(near) if errors else 0.0)
    return levels


def _standard_errors(values: Floats) -> Floats:
    """Return the standard errors of the medians of rows, as of normal values; shape (R,)."""
    deviations = np.abs(values - np.median(values, axis=1, keepdims=True))
    return np.asarray(MEDIAN_STANDARD_ERROR_FACTOR * MAD_TO_SIGMA * np.median(deviations, axis=1) / math.sqrt(values.shape[1]))
