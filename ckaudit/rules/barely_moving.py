"""MOVE001: a trainable tensor stands still, or nearly."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.manifest import Manifest
from ckaudit.contract.report import Severity
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.medians import row_medians
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.pairs import together
from ckaudit.metrics.weights import update_norm, update_to_weight
from ckaudit.metrics.words import element_type
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.cancelled import cancelled, waiting_factors
from ckaudit.run.series import Floats, Mask, Series, Steps, at
from ckaudit.run.spans import Span, spans
from ckaudit.run.tensors import table_of


@rule(
    "MOVE001", severity="sev1", needs=[update_norm, update_to_weight], wants=[learning_rate, gradient_norm, FACTS, element_type],
    unit="1", memory=3,
)  # fmt: skip
def barely_moving(
    norm: Series, relative: Series, rate: Series | None, gradient: Series | None, facts: Manifest | None,
    types: Series | None, *,
    warmup: int = 20, slow: float = 0.01, min_points: int = 3,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """A trainable tensor stands still, or nearly.

    ## What it checks
    Updates of exactly zero at `min_points` checkpoints in a row, while the learning rate is not zero: sev1, for nothing
    is applied (playbook D1.5); sev2 where the tensor's gradient is zero as well or is not made, for then the optimizer has
    nothing to apply. Updates below `slow` of the median tensor's, by the root mean square of their elements as well as
    relative to the tensor's own size: sev2 (TRI-5; lab's healthy runs stay above 0.04). The first `warmup` steps are not
    judged.
    ## Why it matters
    The tensor is not in the optimizer, is cut off from the loss, or its update is lost on the way.
    ## False alarms
    Frozen tensors are left out where run.json says so, and those of which no gradient is to be expected. A tensor that began
    at zero has no relative movement. Queries and keys wait for each other while all keys look alike, as in BERT under plain
    descent: where both stand still and the value beside them moves, they are left out. A gain of 1 that moves as far as
    weights of 0.02 moves by a fiftieth of what they do for its size, and is well.
    """
    yield from too_few(norm, min_points)
    tensors = table_of(facts)
    by_nature = cancelled(gradient, tensors, types)
    norm, relative = (each.only(lambda name: tensors.is_trainable(name) and name not in by_nature) for each in (norm, relative))
    moving = _late(norm.steps, warmup)[:, None] & _rate_is_on(norm.steps, rate)[:, None]
    for span in spans(norm, (norm.values == 0) & moving, min_points=min_points):
        severity, message = _told(span, gradient)
        yield Hit.over(span, severity, message, badness=-norm.values, value=norm.values, limit=0.0)
    if np.isnan(tensors.elements(norm.labels)).any():
        yield Skip("not_recorded", "needs the shapes of the tensors")
    norm, relative = together(norm, relative)
    share = _of_median(norm, relative, np.sqrt(tensors.elements(norm.labels)))
    moving = _late(norm.steps, warmup)[:, None] & _rate_is_on(norm.steps, rate)[:, None]
    still = (share < slow) & (relative.values > 0) & moving
    still &= ~waiting_factors(still, relative.labels)
    for span in spans(relative, still, min_points=min_points):
        yield Hit.over(
            span, "sev2", "{where} moves {value:.2g} times as much as the median tensor; below {limit:.2g} it stands still",
            badness=-share, value=share, limit=slow,
        )  # fmt: skip


def _told(span: Span, gradient: Series | None) -> tuple[Severity, str]:
    """Return how grave it is that a tensor is not updated, and what to say of it, by the gradient that it has."""
    if gradient is None:
        return "sev1", "{where} is not updated: its update is exactly zero"
    if span.label not in gradient.labels:
        return "sev2", "{where} is not updated, and no gradient was made for it: nothing on the way to the loss depends on it"
    column = gradient.labels.index(span.label)
    inside = (gradient.steps >= span.first) & (gradient.steps <= span.last)
    if not gradient.recorded[inside].any():
        return "sev1", "{where} is not updated: its update is exactly zero"
    values = gradient.values[inside & gradient.recorded[:, column], column]
    if not len(values):
        return "sev2", "{where} is not updated, and no gradient is made for it any more: it was cut off from the loss"
    if not values.any():
        return "sev2", "{where} is not updated, and its gradient is exactly zero"
    return "sev1", "{where} gets a gradient but is not updated: its update is exactly zero"


def _late(steps: Steps, warmup: int) -> Mask:
    return np.asarray(steps > warmup)


def _rate_is_on(steps: Steps, rate: Series | None) -> Mask:
    if rate is None:
        return np.ones(len(steps), bool)
    return np.asarray(np.nan_to_num(at(rate, steps).values[:, 0], nan=1.0) > 0)


def _of_median(norm: Series, relative: Series, roots: Floats) -> Floats:
    """Return each tensor's update over the median tensor's, for its size or by element, which is more: shape (T, P)."""
    moving = norm.finite & relative.finite & (norm.values > 0)
    with np.errstate(all="ignore"):  # a tensor may have no elements at all
        own, by_element = (np.where(moving, values, np.nan) for values in (relative.values, norm.values / roots))
        return np.maximum(own / row_medians(own)[:, None], by_element / row_medians(by_element)[:, None])
