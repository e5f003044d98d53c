"""MOVE001: a trainable tensor stands still, or nearly."""

from collections.abc import Container, Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.contract.schema.tensor_names import other_attention_projections
from ckaudit.metrics.estimated_movement import cells_like
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.loss import is_down_to_rounding, train_loss_raw
from ckaudit.metrics.movement import updated_by_another_optimizer
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.pairs import together
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.weights import relative_movement, update_norm, update_to_weight, weight_rms, weight_statistics_change
from ckaudit.metrics.words import element_type, optimizer_adapts
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule, too_few
from ckaudit.run.cancelled_gradients import cancelled, half_precision_gains, waiting_factors
from ckaudit.run.falls import fall_between_thirds
from ckaudit.run.series import Floats, Mask, Series, Steps, at
from ckaudit.run.spans import Span, spans
from ckaudit.run.tensors import TensorTable, table_of

ONE_UPDATE = 1e-5
"""A total distance below this share of a tensor's size is less than one ordinary update (the lower end of update_out_of_band)."""

OF_RATE = 0.1
"""Adam moves weights of size one or less by one learning rate per step: a total distance of a tenth of a rate is negligible."""

HALF_SPACING = 2.0**-24
"""Half of the distance from a float32 number to the next, over its size: a smaller update leaves it as it is."""

MAX_BELOW_OTHERS = 10.0
"""Under plain SGD an update is the rate times the gradient: one that is at most so many times smaller, per gradient, is well."""

MIN_STILL_SHARE = 0.1
"""Least share of the record, at its end, over which nothing changes: a schedule that ends at zero rests for its last steps."""


@rule(
    "MOVE001",
    severity="sev1",
    needs=[],
    wants=[
        update_norm,
        update_to_weight,
        relative_movement,
        weight_statistics_change,
        weight_rms,
        learning_rate,
        gradient_norm,
        train_loss_raw,
        optimizer_adapts,
        FACTS,
        element_type,
    ],
    unit="1",
)
def barely_moving(
    norm: Series | None,
    relative: Series | None,
    way: Series | None,
    seen: Series | None,
    rms: Series | None,
    rate: Series | None,
    gradient: Series | None,
    loss: Series | None,
    adapts: Series | None,
    facts: Manifest | None,
    types: Series | None,
    *,
    warmup: int = 20,
    min_relative_movement: float = 0.01,
    min_points: int = 3,
) -> Iterator[Hit | Skip]:
    """A trainable tensor stands still, or nearly.

    ## What it checks
    Each tensor that is to train must move, by its updates after `warmup` steps or, unmeasured, by what checkpoints show:

    - Updates of exactly zero at `min_points` checkpoints in a row, while the learning rate is not zero, are sev1 (playbook D1.5),
      but sev2 where the gradient is zero as well or is not made: then the optimizer has nothing to apply.
    - Updates below `min_relative_movement` of the median tensor's, by the root mean square of their elements as well as relative
      to the tensor's size, are sev2 (TRI-5; lab's healthy runs stay above 0.04).
    - Without measured updates: over `min_points` checkpoints no statistic and no sampled element changes, or the way so far is
      below `min_relative_movement` of the median tensor's. In any record: the whole way is less than one usual update.
    - Such a tensor is sev2, for nobody said whether it is to train; a note where its gradient is not recorded though others are.
    - Where all have moved and none still does, it is sev2 over the last tenth of the record or more, unless the loss still falls.
    ## Why it matters
    The tensor is not in the optimizer, is cut off from the loss, or its update is lost on the way.
    ## False alarms
    Many tensors rightly stand still; they are silent or a note:

    - Frozen tensors of run.json, those without an expected gradient and those that an unmeasured optimizer moves are left out.
    - A tensor that began at zero has no relative movement.
    - Queries and keys wait while all keys look alike, as in BERT under plain descent: left out where the value beside them moves.
    - A gain of 1 that moves as far as weights of 0.02 moves by a fiftieth of what they do for its size, and is well.
    - An update of one element, as of a temperature, may be smaller than the spacing of its numbers: a note.
    - A gain of 1 in half precision is a note: its neighbours are 0.004 away, and bfloat16 alone hardly ever moves it.
    - Where other tensors move by less than the spacing of a tensor's numbers in single precision, its update rounds to none: sev2
      over the whole record, for no rate is meant to be that low, else a note.
    - Under plain SGD a small gradient makes a small update: one in proportion, as others have, is left to the rules on gradients.
    - Where the loss falls while no tensor at all moves, the record shows other weights than those that train: a note.
    - A tensor that stands still once a millionth of the first loss is left is a note.
    """
    if (norm is None or relative is None) and way is None and seen is None:
        yield needs_one_of(update_norm, relative_movement, weight_statistics_change)
        return
    tensors = table_of(facts)
    by_nature = cancelled(gradient, tensors, types) | updated_by_another_optimizer(norm, way) | idle_experts(gradient, tensors)
    enough = [*too_few(norm, min_points)] if norm is not None else []
    norm, relative, way, seen = (
        series and series.only(lambda name: tensors.is_trainable(name) and name not in by_nature)
        for series in (norm, relative, way, seen)
    )
    reported: set[str] = set()
    if norm is not None and relative is not None:
        yield from enough
        excused, rounded = _as_its_gradient(norm, gradient, adapts), half_precision_gains(norm.labels, tensors, types)
        for hit_or_skip in _of_updates(
            norm, relative, rms, rate, gradient, tensors, excused, rounded, warmup, min_relative_movement, min_points
        ):
            if isinstance(hit_or_skip, Hit):
                reported.add(hit_or_skip.where or "")
                done = is_down_to_rounding(loss, hit_or_skip.first)
                yield replace(hit_or_skip, severity="note") if done else hit_or_skip
            else:
                yield hit_or_skip
    elif max(number.points for number in (way, seen) if number is not None) < min_points - 1:
        yield Skip("too_few_points", f"{min_points} checkpoints are needed, that two changes lie between them")
        return
    measured = set(norm.labels) if norm is not None else set()
    unmeasured = None if seen is None else seen.only(lambda name: name not in measured and not tensors.is_expert(name))
    for hit in _unchanged(unmeasured, rate, gradient, loss, min_relative_movement, min_points - 1):
        reported |= {hit.where or "", *hit.also}
        yield hit
    if way is not None:
        far = way.only(lambda name: name not in reported)
        yield from _of_ways(far, measured, rms, rate, gradient, tensors, warmup, min_relative_movement)


def idle_experts(gradient: Series | None, tensors: TensorTable) -> set[str]:
    """Return the tensors of experts without a gradient at the end: the router sent no token to them."""
    if gradient is None or not len(gradient.steps):
        return set()
    fed = {name for name, value in zip(gradient.labels, gradient.values[-1], strict=True) if value > 0}
    return {name for name in tensors.facts if tensors.is_expert(name) and name not in fed}


def _of_updates(
    norm: Series,
    relative: Series,
    rms: Series | None,
    rate: Series | None,
    gradient: Series | None,
    tensors: TensorTable,
    excused: Mask,
    rounded: Container[str],
    warmup: int,
    slow: float,
    min_points: int,
) -> Iterator[Hit | Skip]:
    """Yield tensors whose measured updates are zero, or small beside those of the others."""
    yield from _of_zero_updates(norm, rms, _judged(norm.steps, rate, warmup), gradient, tensors, rounded, min_points)
    own_size = replace(norm, values=np.where(excused, 1.0, np.nan))
    norm, relative = together(norm, relative)
    by_element = norm.values / np.sqrt(tensors.elements(norm.labels))
    if rms is not None:
        by_element = np.where(np.isnan(by_element), relative.values * cells_like(relative, rms), by_element)
    if np.isnan(by_element[norm.finite & relative.finite]).any():
        yield Skip("not_recorded", "needs the shapes of the tensors")
    share = _of_median(relative, by_element)
    still = (share < slow) & (relative.values > 0) & _judged(norm.steps, rate, warmup)
    still &= ~waiting_factors(still, relative.labels) & np.isnan(cells_like(relative, own_size))
    for span in spans(relative, still, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "{where} moves {value:.2g} times as much as the median tensor; below {limit:.2g} it stands still",
            badness=-share,
            value=share,
            limit=slow,
        )


def _of_zero_updates(
    norm: Series,
    rms: Series | None,
    judged: Mask,
    gradient: Series | None,
    tensors: TensorTable,
    rounded: Container[str],
    min_points: int,
) -> Iterator[Hit]:
    """Yield tensors whose updates are exactly zero: not applied, nothing to apply, or less than the spacing of their numbers."""
    by_element = norm.values / np.sqrt(tensors.elements(norm.labels))
    usual = row_medians(np.where(norm.finite & (norm.values > 0), by_element, np.nan))[:, None]
    spacing = HALF_SPACING * cells_like(norm, rms) if rms is not None else np.full(norm.values.shape, np.nan)
    for span in spans(norm, (norm.values == 0) & judged, min_points=min_points):
        severity, message = _reason(span, gradient)
        value = norm.values
        if tensors.elements([span.label])[0] == 1:
            severity = "note"
        elif span.label in rounded and severity == "sev1":
            severity, message = "note", "{where} stays as it is: in half precision the update of a gain of 1 rounds to none"
        elif severity == "sev1" and (usual[span.rows, 0] < spacing[span.rows, span.column]).all():
            everywhere = np.nanmedian(usual) < np.nanmedian(spacing[:, span.column])
            severity, value = "sev2" if everywhere else "note", np.broadcast_to(usual, norm.values.shape)
            message = "{where} stays as it is: what moves does so by {value:.1g} per element, which rounds to none here"
        yield Hit.over(span, severity, message, badness=-norm.values, value=value, limit=0.0)


def _unchanged(
    seen: Series | None, rate: Series | None, gradient: Series | None, loss: Series | None, slow: float, min_points: int
) -> Iterator[Hit]:
    """Yield tensors of which no recorded statistic changes between checkpoints."""
    if seen is None:
        return
    still = (seen.values == 0) & _judged(seen.steps, rate, 0)
    moved_once = (seen.values > 0).any(axis=0)
    still &= ~(waiting_factors(still | _is_faint(seen, gradient, slow), seen.labels) & moved_once)
    any_moves = np.asarray((seen.values > 0).any(axis=1))
    falls = loss is not None and _falls(loss, seen.steps)
    for span in spans(seen, still, min_points=min_points):
        severity, message = _reason_in_record(span.label, span.first, span.last, gradient)
        if not any_moves[span.rows].any():
            if any_moves.any():
                stops = _stops(seen, span, any_moves) and not _falls_on(loss, span)
                severity, message = "sev2" if stops else "note", "no tensor changes any more"
            elif falls:
                severity = "note"
                message = "no tensor changes while the loss falls: the record shows other weights than those that train"
        yield Hit.over(span, severity, message, badness=-seen.values, value=seen.values, limit=0.0)


def _stops(seen: Series, span: Span, moves: Mask) -> bool:
    """Tell whether tensors that have moved stand still to the end, for longer than a schedule rests at zero."""
    stretch = seen.steps[-1] - span.first
    is_last = span.last == seen.steps[-1]
    return bool(is_last and moves[: span.rows[0]].any() and stretch >= MIN_STILL_SHARE * (seen.steps[-1] - seen.steps[0]))


def _of_ways(
    way: Series,
    measured: set[str],
    rms: Series | None,
    rate: Series | None,
    gradient: Series | None,
    tensors: TensorTable,
    warmup: int,
    slow: float,
) -> Iterator[Hit]:
    """Yield tensors whose final distance from the start is less than one update, or small beside that of the others."""
    late = _judged(way.steps, rate, 0)[:, 0] & (way.steps - way.steps[:1] >= warmup)
    rows = np.flatnonzero(way.finite.any(axis=1) & late)[-2:]
    if len(rows) < 2:
        return
    limit = ONE_UPDATE if rate is None else min(ONE_UPDATE, OF_RATE * float(np.nanmax(rate.values[rate.finite], initial=0.0)))
    known = np.where(way.finite, way.values, np.nan)
    share = _of_median(way, known * cells_like(way, rms)) if rms is not None else np.full(known.shape, np.nan)
    waiting = waiting_factors((share < slow) | _is_faint(way, gradient, slow), way.labels)
    for column, name in enumerate(way.labels):
        values = known[rows, column]
        if tensors.kind(name) == "norm" or tensors.is_expert(name) or waiting[rows, column].all():
            continue
        if (values <= limit).all() and not (name in measured and not values.any()):
            message = "{where} has moved by {value:.2g} of its size since the record began: a single update is usually more than "
            yield _stayed(way, column, rows, values[-1], limit, message + "{limit:.0e}", gradient)
        elif name not in measured and (share[rows, column] < slow).all():
            message = "{where} has moved {value:.2g} times as far as the median tensor; below {limit:.2g} it stands still"
            yield _stayed(way, column, rows, share[rows[-1], column], slow, message, gradient)


def _is_faint(way: Series, gradient: Series | None, slow: float) -> Mask:
    """Return where the gradient of a query or key is below a share of its value's gradient, shape (C, P)."""
    faint = np.zeros(way.values.shape, bool)
    if gradient is None:
        return faint
    norms, places = cells_like(way, gradient), {label: place for place, label in enumerate(way.labels)}
    for label, place in places.items():
        _, value = other_attention_projections(label) or ("", "")
        if value in places:
            faint[:, place] = norms[:, place] < slow * norms[:, places[value]]
    return faint


def _stayed(way: Series, column: int, rows: Steps, value: float, limit: float, message: str, gradient: Series | None) -> Hit:
    """Return the hit of a tensor that has hardly moved by the end."""
    name, first, last = way.labels[column], int(way.steps[rows[0]]), int(way.steps[rows[-1]])
    severity, _ = _reason_in_record(name, first, last, gradient)
    return Hit(
        severity=severity,
        message=message,
        where=name,
        first=first,
        last=last,
        points=len(rows),
        value=float(value),
        limit=limit,
        badness=-float(value),
    )


def _as_its_gradient(norm: Series, gradient: Series | None, adapts: Series | None) -> Mask:
    """Return which updates are as large as their gradient makes them, where the optimizer does not divide by its size."""
    plain = adapts is not None and bool((adapts.values[adapts.finite] == 0).all())
    if not plain or gradient is None:
        return np.zeros(norm.values.shape, bool)
    with np.errstate(all="ignore"):
        taken = norm.values / cells_like(norm, gradient)
        taken = np.where(np.isfinite(taken) & (taken > 0), taken, np.nan)
        return np.asarray(taken > row_medians(taken)[:, None] / MAX_BELOW_OTHERS)


def _falls(loss: Series, steps: Steps) -> bool:
    """Tell whether the loss has come down while the checkpoints were taken."""
    within = loss.finite[:, 0] & (loss.steps >= steps[0]) & (loss.steps <= steps[-1])
    values = loss.values[within, 0]
    return len(values) >= 3 and not fall_between_thirds(values).is_none


def _falls_on(loss: Series | None, span: Span, *, min_share: float = 0.1) -> bool:
    """Tell whether the loss falls over a span by a tenth of its whole earlier fall: then other weights are trained."""
    known = loss.finite[:, 0] if loss is not None else np.zeros(0, bool)
    if loss is None or not known[loss.steps < span.first].any() or known[loss.steps >= span.first].sum() < 3:
        return False
    fall = fall_between_thirds(loss.values[known & (loss.steps >= span.first), 0])
    return bool(fall.first - fall.last > min_share * (loss.values[known & (loss.steps < span.first), 0].max() - fall.first))


def _reason_in_record(name: str, first: int, last: int, gradient: Series | None) -> tuple[Severity, str]:
    """Return severity and message for a tensor whose recorded statistics do not change."""
    message = "{where} does not change from one checkpoint to the next"
    if gradient is None or not gradient.recorded[(gradient.steps >= first) & (gradient.steps <= last)].any():
        return "sev2", message
    if name not in gradient.places:
        return "note", message + ", and no gradient of it is recorded, as of one that is frozen on purpose"
    column = gradient.places[name]
    inside = (gradient.steps >= first) & (gradient.steps <= last) & gradient.recorded[:, column]
    if not inside.any():
        before = gradient.recorded[gradient.steps < first, column].any()
        what = (
            "is recorded any more: it was cut off from the loss"
            if before
            else "is recorded by then, as of one that is thawed later"
        )
        return "sev2" if before else "note", f"{message}, and no gradient of it {what}"
    if not np.nan_to_num(gradient.values[inside, column], nan=1.0).any():
        return "sev2", message + ", and its gradient is exactly zero"
    return "sev2", message + ", though it gets a gradient"


def _reason(span: Span, gradient: Series | None) -> tuple[Severity, str]:
    """Return severity and message for a tensor that is not updated, by its gradient."""
    if gradient is None:
        return "sev1", "{where} is not updated: its update is exactly zero"
    if span.label not in gradient.places:
        return "sev2", "{where} is not updated, and no gradient was made for it: nothing on the way to the loss depends on it"
    column = gradient.places[span.label]
    inside = (gradient.steps >= span.first) & (gradient.steps <= span.last)
    if not gradient.recorded[inside].any():
        return "sev1", "{where} is not updated: its update is exactly zero"
    own = inside & gradient.recorded[:, column]
    if own.any():
        gets_one = (gradient.values[own, column] > dead_parameter.thresholds["max_dead_norm"]).any()
        reason = "gets a gradient but is not updated: its update" if gets_one else "is not updated, and its gradient"
        none = "exactly zero" if gets_one or not gradient.values[own, column].any() else "next to none"
        return "sev1" if gets_one else "sev2", f"{{where}} {reason} is {none}"
    return _reason_without_gradient(span, gradient.recorded[:, column], gradient.steps)


def _reason_without_gradient(span: Span, recorded: Mask, steps: Steps) -> tuple[Severity, str]:
    """Return severity and message for a tensor that stands still without a gradient, by when it has a gradient."""
    before, after = recorded[steps < span.first].any(), recorded[steps > span.last].any()
    if before and after:
        return "note", "{where} is not updated, and no gradient is made for it, as of a layer that is dropped at random"
    if before:
        return "sev2", "{where} is not updated, and no gradient is made for it any more: it was cut off from the loss"
    return "note", "{where} is not updated, and no gradient is made for it by then, as of one that is thawed later"


def _judged(steps: Steps, rate: Series | None, warmup: int) -> Mask:
    """Return which steps are late enough and have a learning rate above 0, as far as it is known, shape (T, 1)."""
    on = np.ones(len(steps), bool)
    if rate is not None:
        on = np.nan_to_num(at(rate, steps).values[:, 0], nan=1.0) > 0
    late = steps > warmup if warmup else np.ones(len(steps), bool)
    return np.asarray(on & late)[:, np.newaxis]


def _of_median(relative: Series, by_element: Floats) -> Floats:
    """Return how far each tensor moves over the median tensor, for its size or by element, whichever is more, shape (T, P)."""
    moving = relative.finite & (relative.values > 0)
    with np.errstate(all="ignore"):  # a tensor may have no elements at all
        of_norm, elements = (np.where(moving, values, np.nan) for values in (relative.values, by_element))
        return np.maximum(of_norm / row_medians(of_norm)[:, None], elements / row_medians(elements)[:, None])
