"""GRAD002: the gradient norm grows without bound."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.gradients import boxed_gradient_norm, grad_global_norm
from ckaudit.metrics.loss import ends_at_best, ends_no_higher, stays_solved, train_loss_raw, without_solved_steps
from ckaudit.metrics.reductions import running_medians
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.curve_shapes import Turn, slide
from ckaudit.run.medians import median
from ckaudit.run.robust import MEDIAN_STANDARD_ERROR_FACTOR, difference_noise, is_scatter
from ckaudit.run.run_facts import POLICY_ACTS, TURNS, is_reinforcement_learning, takes_turns
from ckaudit.run.series import Floats, Series, Steps, at
from ckaudit.run.spans import Span, spans
from ckaudit.run.spikes import SustainedGrowth, sustained_growth
from ckaudit.wording import plural

WINDOW = 50
"""Number of points whose median is the usual norm, as for the flags of spikes (F15)."""

MIN_HISTORY = 10
"""Minimum number of earlier points whose median is a usual size."""

MEDIAN_WINDOW, NOISE_DEVIATIONS = 3, 3.0
"""Losses in a running median, and deviations of the noise of such medians within which it is no higher than before."""

HOLDER_SHARE = 0.9
"""Share of the squared norm from which a tensor is named as the place: it has nine times as much as all others together."""


MAX_LOSS_MULTIPLE = 1000.0
"""Multiple of the loss that no healthy gradient norm has from the start, whatever the unit of both."""


@rule("GRAD002", severity="sev1", needs=[grad_global_norm], wants=[boxed_gradient_norm, train_loss_raw, FACTS], unit="1")
def exploding_gradient(
    norm: Series,
    box: Series | None,
    loss: Series | None,
    facts: Manifest | None,
    *,
    note_ratio: float = 4.0,
    max_ratio: float = 10.0,
    min_points: int = 3,
    shock_ratio: float = 1000.0,
    felt_loss_share: float = 0.05,
    slide_ratio: float = 2.5,
) -> Iterator[Hit | Skip]:
    """The gradient norm leaves its usual size by an order of magnitude and stays there.

    ## What it checks
    The rule divides the global gradient norm by the median of the 50 points before it, of ten at least. It also looks at how the
    norm ends and begins.

    - A ratio above `max_ratio` (trainproof and runmedic use the same ten) for `min_points` points in a row is an explosion
      (playbook D4.3): sev1.
    - An explosion is sev2 where it is over before the last tenth of the steps, and the loss ends below what it was by
      `felt_loss_share`.
    - A shorter one over `shock_ratio` is sev2: a plateau that is left reaches 110 (lab), a large spike 160 (public logs), a
      flipped bit 650,000.
    - Where a black box holds the step of a short one, and a tensor has most of the squared norm, that tensor is the place.
    - Points over `note_ratio` that are no explosion are one note, all together.
    - From three points on: a norm that ends `max_ratio` times above what it was before, and above all of it, is sev1. Slow growth
      takes the running median with it.
    - Such growth is sev2 where the last point alone shows it, or where the loss is as good as its best to the end.
    - A norm that grows to `slide_ratio` times over the second half, no more slowly than over the first (straight on a log axis,
      M09), and beyond its median over the first ten points, is sev2.
    - That growth is a note while the loss is no higher than it was: a model that gets surer of its answers has larger gradients
      where it errs.
    - A norm that is a thousand times the loss, at the median of the first ten points, was too large before there was a past:
      sev2.
    - Healthy runs begin with a norm of up to ten times the loss, for both go with the loss's unit (133 runs, public logs among
      them). Chaotic recurrent cells and weights drawn 30 times too large come to 12,000 and more.
    ## Why it matters
    Without clipping, the next updates throw the weights out of their basin. With clipping, they all point where one batch did.
    ## False alarms
    Some large norms are only noted, or are not judged:

    - Single outliers are common in healthy runs. The embedding's large share at the start is part of the median.
    - The loss falls all the way: it is no higher in the explosion than in the ten points before, nor in any tenth of the run from
      there on, and ends below them by `felt_loss_share`.
    - The norm stays below its own median over the first ten points, and the loss stays within `felt_loss_share` of its range
      above the lowest.
    - A norm that ends high has grown by less than `max_ratio` to the power of 1.5, and the loss stays within `felt_loss_share` of
      its range above the lowest.
    - Such a norm is on its way from a small start to its ordinary size. It grows up to sixteenfold while the loss falls (a ResNet
      and a detector among the public logs).
    - The task is solved: by medians of ten points the loss is below a tenth of its first after the explosion, and below a quarter
      before and in it.
    - A model that has learnt its data has next to no gradient left. One hard sample is many times that, and still far below what
      the same weights were trained with.
    - The explosion lies within six deviations of the logarithms of the 50 norms before: norms of single rows differ by orders of
      magnitude.
    - The negative log of a density has a gradient that grows as its width shrinks: a note where the norm slows down and the loss
      is no higher than it was.
    - The gradient of a policy and its critic goes with what they meet, which is another thing each time: a note.
    - The gradient of two networks that play against each other goes with how well the other one does: a note up to `shock_ratio`.
    """
    outcomes = [
        *_explosions(norm, box, loss, note_ratio, max_ratio, min_points, shock_ratio, felt_loss_share, slide_ratio),
        *_from_the_start(norm, loss),
    ]
    if is_reinforcement_learning(facts):
        outcomes = [_softened(outcome, POLICY_ACTS) for outcome in outcomes]
    elif takes_turns(facts):
        outcomes = [_softened(outcome, TURNS, shock_ratio) for outcome in outcomes]
    yield from outcomes


def _from_the_start(norm: Series, loss: Series | None, *, limit: float = MAX_LOSS_MULTIPLE) -> Iterator[Hit]:
    """Yield a norm that is a large multiple of the loss in the first points that have both."""
    if loss is None:
        return
    losses = at(loss, norm.steps).values[:, 0]
    known = np.flatnonzero(norm.finite[:, 0] & np.isfinite(losses))[:MIN_HISTORY]
    if len(known) < MIN_HISTORY:
        return
    usual, level = median(norm.values[known, 0]), median(np.abs(losses[known]))
    if usual > limit * level > 0:
        yield Hit.at(
            norm.steps[known],
            "sev2",
            f"the gradient norm is {usual:.3g} from the start, {{value:.3g}} times the loss: it explodes on its way back, or is "
            "taken of gradients that are still multiplied by a loss scale",
            where=norm.labels[0],
            value=usual / level,
            limit=limit,
        )


def _softened(outcome: Hit | Skip, why: str, up_to: float | None = None) -> Hit | Skip:
    """Return a note in place of a hit, unless its value is above a limit."""
    if not isinstance(outcome, Hit) or (up_to is not None and (outcome.value or 0.0) > up_to):
        return outcome
    return replace(outcome, severity="note", message=f"{outcome.message}; {why}")


def _explosions(
    norm: Series,
    box: Series | None,
    loss: Series | None,
    note_ratio: float,
    max_ratio: float,
    min_points: int,
    shock_ratio: float,
    felt_loss_share: float,
    slide_ratio: float,
) -> Iterator[Hit | Skip]:
    norm = without_solved_steps(norm, loss)
    positive = np.flatnonzero(norm.finite[:, 0] & (np.nan_to_num(norm.values[:, 0]) > 0))
    if len(positive) < min_points:
        yield Skip("too_few_points", f"{len(positive)} points of the gradient norm; {min_points} are needed")
        return
    ratio = _over_running_median(norm)  # (T, 1)
    exploded = False
    for span in spans(norm, np.nan_to_num(ratio) > max_ratio, min_points=min_points):
        peak = float(np.nanmax(ratio[span.rows]))
        min_parts = 2 if peak < max_ratio**1.5 else 3 if peak < shock_ratio else 10
        if _is_scatter(span, norm, peak) or _is_harmless(span, norm, loss, felt_loss_share, min_parts=min_parts):
            continue
        exploded = True
        yield Hit.over(
            span,
            "sev2" if _is_overcome(span, norm, loss, felt_loss_share) else "sev1",
            "the gradient norm reaches {value:.3g}x its running median; the limit is {limit:.0f}x",
            badness=ratio,
            limit=max_ratio,
        )
        ratio[span.rows] = np.nan
    for span in spans(norm, np.nan_to_num(ratio) > shock_ratio):
        if _is_scatter(span, norm, float(np.nanmax(ratio[span.rows]))) or _is_harmless(
            span, norm, loss, felt_loss_share, for_long=False
        ):
            continue
        exploded = True
        yield _shock(span, ratio, shock_ratio, box)
        ratio[span.rows] = np.nan
    if not exploded and (growth := sustained_growth(norm.values[positive, 0], min_ratio=max_ratio)) is not None:
        exploded = True
        yield _grown(norm, positive, growth, loss, felt_loss_share, max_ratio)
    turn = None if exploded else slide(norm.values[positive, 0], times=slide_ratio)
    if turn is not None and turn.after > median(norm.values[positive, 0][:MIN_HISTORY]):
        hit = _sliding(norm, positive[turn.first : turn.last + 1], turn)
        yield replace(hit, severity="note") if ends_no_higher(loss, last=int(norm.steps[-1]), felt=felt_loss_share) else hit
    yield from _isolated(norm, np.nan_to_num(ratio[:, 0]), note_ratio)


def _shock(span: Span, ratio: Floats, limit: float, box: Series | None) -> Hit:
    """Return the hit of a short explosion, with the tensor behind it where the black box tells."""
    hit = Hit.over(
        span,
        "sev2",
        "the gradient norm is {value:.3g}x its running median for a moment; batches stay below {limit:.0f}x",
        badness=ratio,
        limit=limit,
    )
    # The tensor that has most of the gradient at the worst step, where the black box tells.
    if box is None or hit.worst is None or hit.worst not in box.steps:
        return hit
    norms = np.nan_to_num(box.values[int(np.searchsorted(box.steps, hit.worst))], posinf=0.0)
    total, top = float(np.hypot.reduce(norms)), int(np.argmax(norms))
    if not total or (norms[top] / total) ** 2 <= HOLDER_SHARE:
        return hit
    share = (norms[top] / total) ** 2
    return replace(hit, where=box.labels[top], message=f"{hit.message}; {{where}} has {share:.1%} of its square")


def _sliding(norm: Series, rows: Steps, turn: Turn) -> Hit:
    """Return the hit of a norm that grows over the second half of the run and does not slow down."""
    return Hit.at(
        norm.steps[rows],
        "sev2",
        "the gradient norm grows and does not slow down, from {limit:.3g} in the middle of the run to {value:.3g}",
        where=norm.labels[0],
        value=turn.after,
        limit=turn.before,
    )


def _is_scatter(span: Span, norm: Series, peak: float) -> bool:
    """Tell whether the norms before a span scatter so widely, as those of batches of one row do, that the peak is scatter."""
    before = norm.values[: span.rows[0], 0][norm.finite[: span.rows[0], 0]][-WINDOW:]
    return is_scatter(before, peak)


def _is_harmless(
    span: Span, norm: Series, loss: Series | None, felt: float, *, for_long: bool = True, min_parts: int = 10
) -> bool:
    """Tell whether a large norm is harmless.

    It is where the norm is no larger than at the start and the loss as good as its best, where the loss falls all the way, or
    where the task is solved and stays so. The loss that falls is cut into ten parts, or into `min_parts` where it has few points:
    the larger the norm, the more of them are needed.
    """
    began = median(norm.finite_points()[1][:MIN_HISTORY])
    is_as_before = bool((norm.values[span.rows, 0] < began).all())
    if stays_solved(loss, span.first, span.last):
        return True
    if for_long and _falls_all_the_way(loss, span.first, span.last, felt, min_parts=min_parts):
        return True
    if is_as_before and not for_long and loss is not None:
        later = loss.steps[loss.finite[:, 0] & (loss.steps > span.last)][:MIN_HISTORY]
        return len(later) > 0 and _is_at_best(loss, int(later[0]), int(later[-1]), felt, typical=True)
    return is_as_before and _is_at_best(loss, span.first, span.last, felt)


def _is_overcome(span: Span, norm: Series, loss: Series | None, felt: float, *, end_share: float = 0.9) -> bool:
    """Tell whether an explosion is over before the last tenth of the steps, and the loss ends well below what it was before."""
    if loss is None or span.last > end_share * float(norm.steps[-1]):
        return False
    known = loss.finite[:, 0]
    before, after = loss.values[known & (loss.steps < span.first), 0], loss.values[known & (loss.steps > span.last), 0]
    if min(len(before), len(after)) < MIN_HISTORY:
        return False
    level = median(before[-MIN_HISTORY:])
    return median(after[-MIN_HISTORY:]) < level - felt * abs(level)


def _falls_all_the_way(loss: Series | None, first: int, last: int, felt: float, *, min_parts: int, parts: int = 10) -> bool:
    """Tell whether the loss is no higher between two steps than before, nor in any part from there on, and ends well below.

    There are `parts` parts, down to `min_parts` where a part would have less than two losses.
    """
    if loss is None:
        return False
    known, steps, values = loss.finite[:, 0], loss.steps, loss.values[:, 0]
    before, after = values[known & (steps < first)][-MIN_HISTORY:], values[known & (steps >= first)]
    within = values[known & (steps >= first) & (steps <= last)]
    parts = min(parts, len(after) // 2)
    if not len(before) or not len(within) or parts < min_parts:
        return False
    level, levels = median(before), [median(part) for part in np.array_split(after, parts)]
    noise = MEDIAN_STANDARD_ERROR_FACTOR * difference_noise(before) / MEDIAN_WINDOW**0.5
    highest = max(*levels, *(running_medians(within, min(MEDIAN_WINDOW, len(within))) - max(0.0, NOISE_DEVIATIONS * noise)))
    return bool(highest <= level and levels[-1] < level - felt * abs(level))


def _is_at_best(loss: Series | None, first: int, last: int, felt: float, *, typical: bool = False) -> bool:
    """Tell whether the loss between two steps, or its median there, is as good as the best so far; false without a loss."""
    if loss is None:
        return False
    within = loss.finite[:, 0] & (loss.steps >= first) & (loss.steps <= last)
    before = loss.values[loss.finite[:, 0] & (loss.steps <= last), 0]
    lowest, highest = before.min(initial=np.inf), before.max(initial=-np.inf)
    values = loss.values[within, 0]
    return bool(within.any() and (median(values) if typical else values.max()) <= lowest + felt * (highest - lowest))


def _grown(norm: Series, rows: Steps, growth: SustainedGrowth, loss: Series | None, felt: float, max_ratio: float) -> Hit:
    """Return the hit of a norm that ends far above what it was; on its way from a small start it is a note."""
    first, last = rows[growth.onset], rows[-1]
    is_no_worse = ends_no_higher(loss, last=int(norm.steps[last]), felt=felt)
    is_harmless = is_no_worse or ends_at_best(loss, since=int(norm.steps[first]), felt=felt)
    is_start = growth.end < max_ratio**1.5 * growth.lowest and is_harmless
    is_small = is_start or (is_no_worse and _slows_down(norm.values[rows, 0]))
    inside = rows[growth.onset :]
    worst = inside[np.argmax(norm.values[inside, 0])]
    severity: Severity = "note" if is_small else "sev1" if len(inside) > 1 and not is_harmless else "sev2"
    return Hit(
        severity=severity,
        where=norm.labels[0],
        value=growth.end,
        limit=growth.low,
        first=int(norm.steps[first]),
        last=int(norm.steps[last]),
        worst=int(norm.steps[worst]),
        points=len(inside),
        message="the gradient norm has grown to {value:.3g}, from {limit:.3g} in all of the run before"
        + (", while the loss falls" if is_start else ""),
    )


def _slows_down(values: Floats) -> bool:
    """Tell whether a norm grows in its second half by less than half, in logs, of what it grew within the first."""
    first, second, *_ = np.array_split(values, 4)
    if len(first) < MIN_HISTORY:
        return False
    grown = median(second) / median(first)
    return grown > 1 and median(values[len(values) // 2 :]) < median(second) * grown**0.5


def _isolated(norm: Series, ratio: Floats, limit: float) -> Iterator[Hit]:
    """Yield one note on all points that stand over the running median by more than a limit."""
    rows = np.flatnonzero(ratio > limit)
    if not len(rows):
        return
    worst = int(np.argmax(ratio))
    yield Hit(
        severity="note",
        where=norm.labels[0],
        first=int(norm.steps[rows[0]]),
        last=int(norm.steps[rows[-1]]),
        worst=int(norm.steps[worst]),
        value=float(ratio[worst]),
        limit=limit,
        points=len(rows),
        message=f"the gradient norm stands over {limit:g}x its running median at {plural(len(rows), 'step')}; most at step "
        f"{{worst}}, where it is {norm.values[worst, 0]:.3g}, {{value:.3g}}x",
    )


def _over_running_median(norm: Series) -> Floats:
    """Return each point over the median of the finite points before it; NaN before there are enough of them."""
    known = norm.finite[:, 0]
    _, values = norm.finite_points()
    ratio = np.full(len(values), np.nan)
    with np.errstate(all="ignore"):
        for row in range(MIN_HISTORY, min(WINDOW, len(values))):
            ratio[row] = values[row] / median(values[:row])
        if len(values) > WINDOW:
            np.divide(values[WINDOW:], running_medians(values[:-1], WINDOW), out=ratio[WINDOW:])
    if known.all():
        return ratio[:, None]
    over = np.full(norm.values.shape, np.nan)
    over[known, 0] = ratio
    return over
