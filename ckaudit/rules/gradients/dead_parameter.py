"""GRAD003: a trainable tensor gets no gradient."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.gradients import grad_global_norm, gradient_norm
from ckaudit.metrics.loss import is_in_opening, is_solved, train_loss_raw, without_solved_steps
from ckaudit.metrics.words import element_type
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule, too_few
from ckaudit.run.cancelled_gradients import cancelled, unexplained_zero_gradients
from ckaudit.run.series import Series
from ckaudit.run.spans import spans
from ckaudit.run.spikes import sustained_growth
from ckaudit.run.tensors import table_of

EXPERT_POINTS = 10
"""Number of checkpoints for which an expert may get no token: healthy experts of the lab get none for up to five."""


@rule(
    "GRAD003", severity="sev2", needs=[], wants=[gradient_norm, grad_global_norm, train_loss_raw, FACTS, element_type], unit="1"
)
def dead_parameter(
    norm: Series | None,
    whole: Series | None,
    loss: Series | None,
    facts: Manifest | None,
    types: Series | None,
    *,
    min_alive_norm: float = 1e-7,
    max_dead_norm: float = 1e-10,
    min_points: int = 2,
    min_fall: float = 1000.0,
) -> Iterator[Hit | Skip]:
    """A trainable tensor gets no gradient, or the whole model.

    ## What it checks
    The rule judges the gradient norm of every trainable tensor (playbook D1.3). It also judges the global norm where that has
    more points.

    - A tensor's gradient norm above `min_alive_norm` is well.
    - A tensor whose gradient norm is below `max_dead_norm` or exactly zero at `min_points` checkpoints in a row is dead: sev2.
    - A norm between `max_dead_norm` and `min_alive_norm` at `min_points` checkpoints in a row is a note, and so is a low norm in
      a run of a single checkpoint.
    - An expert of a mixture is dead after ten checkpoints, and a note before.
    - The global norm, from three points on, is below `max_dead_norm` at that many points in a row, while the loss has not come
      down to a tenth: sev2.
    - The global norm ends `min_fall` times below what it was, while the loss has not come down to a tenth: sev2.
    ## Why it matters
    The tensor does not learn. Something between it and the loss blocks the path: a mask, a zero factor or a detached branch.
    ## False alarms
    Some gradients are rightly zero:

    - Tensors that run.json calls frozen are left out. A gradient that is held elsewhere is not recorded, and is not judged here.
    - A bias that a normalization subtracts, or that a softmax ignores, has no gradient by mathematics, while the weight of its
      module has one. Such a bias is left out.
    - Where such a bias has a gradient of exactly zero, and nobody says how gradients are made, it is a note.
    - A tensor of a single number is left out: a loss of signs and margins cancels its gradient by chance.
    - An expert that no token was sent to has no gradient. Most experts find their tokens later.
    - A tensor without a gradient in the first 5 % of the steps, and with one ever since, waited for the rest, as behind a bound
      on its loss: a note.
    - A model that has learnt its data has next to no gradient left, and next to no loss. Where the loss is exactly zero, its
      gradient is too: that step is left out.
    - A step at which no single tensor reaches `min_alive_norm` is left out for single tensors: the whole model has hardly any
      gradient left.
    """
    if norm is None and whole is None:
        yield needs_one_of(gradient_norm, grad_global_norm)
        return
    norm, whole = (None if series is None else without_solved_steps(series, loss) for series in (norm, whole))
    if norm is not None:
        yield from _of_tensors(norm, facts, types, min_alive_norm, max_dead_norm, min_points)
    if whole is not None and (norm is None or norm.points < whole.points):
        if norm is None:
            yield from too_few(whole, min_points + 1)
        yield from _of_whole(whole, loss, max_dead_norm, min_points + 1, min_fall)


def _of_tensors(
    norm: Series, facts: Manifest | None, types: Series | None, alive: float, dead: float, min_points: int
) -> Iterator[Hit | Skip]:
    """Yield the trainable tensors whose gradient is zero or almost zero."""
    tensors = table_of(facts)
    by_nature = cancelled(norm, tensors, types)
    unknown = unexplained_zero_gradients(norm, tensors)
    left_out = by_nature - unknown
    trainable = norm.only(lambda name: tensors.is_trainable(name) and name not in left_out and not tensors.is_one_number(name))
    yield from too_few(norm, min_points)
    largest = np.fmax.reduce(norm.values, axis=1, initial=0.0)
    trained = (largest == 0) | (largest > alive)
    for span in spans(trainable, (trainable.values < dead) & trained[:, None], min_points=min_points):
        early = span.points < EXPERT_POINTS and tensors.is_expert(span.label)
        waited = is_in_opening(span.last, norm.steps) and not (trainable.values[span.rows[-1] + 1 :, span.column] < alive).any()
        yield Hit.over(
            span,
            "note" if early or waited or span.label in unknown else "sev2",
            "{where} gets no gradient: its norm is {value:.2g}, below {limit:.0e}"
            + ("; it cancels by construction, or nobody wrote its backward pass" if span.label in unknown else "")
            + ("; it has had one ever since" if waited else ""),
            badness=-trainable.values,
            value=trainable.values,
            limit=dead,
        )
    yield from _faint(trainable, norm.points, alive, dead, min_points)


def _faint(trainable: Series, points: int, alive: float, dead: float, min_points: int) -> Iterator[Hit]:
    """Yield the tensors whose gradient is almost zero; of a short record also those where it is zero."""
    faint = (trainable.values < alive) & ((trainable.values >= dead) | (points < min_points))
    for span in spans(trainable, faint, min_points=min(min_points, points)):
        yield Hit.over(
            span,
            "note",
            "{where} gets hardly any gradient: its norm is {value:.2g}, below {limit:.0e}",
            badness=-trainable.values,
            value=trainable.values,
            limit=alive,
        )


def _of_whole(whole: Series, loss: Series | None, dead: float, min_points: int, min_fall: float) -> Iterator[Hit]:
    """Yield a global norm that is zero, or has fallen to almost zero, while something is left to learn."""
    none = (whole.values < dead) & ~is_solved(loss, whole.steps)
    dead_spans = list(spans(whole, none, min_points=min_points))
    for span in dead_spans:
        yield Hit.over(
            span,
            "sev2",
            "no tensor gets a gradient: the global norm is {value:.2g}, below {limit:.0e}",
            badness=-whole.values,
            value=whole.values,
            limit=dead,
        )
    rows = np.flatnonzero(whole.finite[:, 0] & (np.nan_to_num(whole.values[:, 0]) > 0))
    fall = sustained_growth(1 / whole.values[rows, 0], min_ratio=min_fall)
    if dead_spans or fall is None or is_solved(loss, whole.steps[rows[-1:]]).any():
        return
    inside = rows[fall.onset :]
    yield Hit.at(
        whole.steps[inside],
        "sev2",
        "the gradient norm has come down to {value:.2g}, from {limit:.3g}, and the loss has not come down with it",
        where=whole.labels[0],
        value=1 / fall.end,
        limit=1 / fall.low,
    )
