"""GRAD006: a large share of gradient elements is exactly zero."""

from collections.abc import Iterator, Sequence

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.gradients import gradient_norm, gradient_zero_fraction
from ckaudit.metrics.loss import is_in_opening, train_loss_raw, without_solved_steps
from ckaudit.metrics.words import element_type
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.cancelled_gradients import cancelled
from ckaudit.run.robust import is_zero_but_for_rounding
from ckaudit.run.run_facts import is_half_precision
from ckaudit.run.series import Series
from ckaudit.run.spans import spans
from ckaudit.run.tensors import TensorTable, table_of

NEARLY_ALL = 0.8
"""Share of zeros that is ill in single precision: in healthy networks silent units cause up to 0.71."""


@rule(
    "GRAD006",
    severity="sev2",
    needs=[gradient_zero_fraction],
    wants=[gradient_norm, FACTS, element_type, train_loss_raw],
    unit="1",
)
def zero_gradients(
    zeros: Series,
    norm: Series | None,
    facts: Manifest | None,
    types: Series | None,
    loss: Series | None,
    *,
    max_zero_share: float = 0.5,
    min_points: int = 2,
    min_tensors: int = 3,
    max_tensors_share: float = 0.25,
) -> Iterator[Hit | Skip]:
    """A large share of gradient elements is exactly zero.

    ## What it checks
    The rule takes the share of exact zeros in each tensor's gradient, and judges it where it is over `max_zero_share` at
    `min_points` checkpoints in a row.

    - Such a tensor is sev2 where its whole gradient is zero, as behind a cut path.
    - Such a tensor is sev2 too where over `max_tensors_share` of all tensors are hit, as by underflow.
    - Without half precision, in which alone much underflows, a tensor counts for that share from 80 % of zeros on.
    - Anything less is a note.
    - Gradients that are all zero at one checkpoint, and ordinary at the one before and the one after, are sev2: `min_tensors` of
      them over all tensors are no chance.
    ## Why it matters
    Elements without a gradient do not learn. They underflow in half precision, lie behind dead units or a cut path, or were lost
    on their way between devices (D1.3).
    ## False alarms
    Some zeros are ordinary:

    - These are left out: embeddings (rows whose token is not in the batch), experts without tokens, biases whose gradient cancels
      by mathematics, tensors of a single number (theirs may cancel by chance), and steps whose loss is exactly zero.
    - Zeros in the first 5 % of the steps only are a note.
    - A policy whose loss is zero but for rounding is not judged.
    - An input that is zero in the whole batch, such as a dark corner of all pictures or a word that does not occur, gives a
      column of zeros. A ReLU that is silent for a small batch gives a row of zeros.
    - Healthy networks of few samples reach 70 %, and a linear model of sparse inputs more.
    """
    if loss is not None and loss.labels and is_zero_but_for_rounding(loss.finite_points()[1]):
        yield Skip(
            "not_applicable", "the loss is zero but for rounding, as a policy's is where its advantages have a mean of zero"
        )
        return
    zeros = without_solved_steps(zeros, loss, none=1.0)
    yield from too_few(zeros, min_points)
    tensors = table_of(facts)
    by_nature = cancelled(norm, tensors, types)
    judged = zeros.only(
        lambda name: (
            tensors.kind(name) != "embedding"
            and tensors.no_gradient_reason(name) is None
            and not tensors.is_one_number(name)
            and name not in by_nature
            and not tensors.is_expert(name)
            and tensors.is_trainable(name)
        )
    )
    high = judged.values > max_zero_share
    nearly_all = judged.values > (max_zero_share if is_half_precision(types) else NEARLY_ALL)
    widely = nearly_all.mean(axis=1) > max_tensors_share if len(judged.labels) else np.zeros(len(high), bool)
    if _is_linear(judged.labels, tensors):
        widely[:] = False
    for span in spans(judged, high, min_points=min_points):
        whole = bool((judged.values[span.rows, span.column] == 1).sum() >= min_points)
        waited = is_in_opening(span.last, zeros.steps) and not high[span.rows[-1] + 1 :, span.column].any()
        yield Hit.over(
            span,
            "sev2" if (whole or widely[span.rows].any()) and not waited else "note",
            "{value:.0%} of the gradient of {where} is exactly zero; the limit is {limit:.0%}",
            badness=judged.values,
            limit=max_zero_share,
        )
    yield from _lost(judged, max_zero_share, min_tensors)


def _is_linear(names: Sequence[str], tensors: TensorTable) -> bool:
    """Tell whether a model has a single matrix: what is zero in its gradient is zero in its inputs."""
    shapes = [tensors.facts[name].shape for name in names if name in tensors.facts]
    return len(shapes) == len(names) and sum(len(shape or ()) > 1 for shape in shapes) == 1


def _lost(zeros: Series, max_zero_share: float, min_gradients: int) -> Iterator[Hit]:
    """Yield one hit on all gradients that were zero at a single checkpoint only."""
    cells = []
    for column in range(len(zeros.labels)):
        rows = np.flatnonzero(zeros.finite_in(column))
        values = zeros.values[rows, column]
        alone = (values[1:-1] == 1) & (values[:-2] < max_zero_share) & (values[2:] < max_zero_share)
        cells += [(int(zeros.steps[row]), zeros.labels[column]) for row in rows[1:-1][alone]]
    if len(cells) < min_gradients:
        return
    cells.sort()
    places = tuple(dict.fromkeys(label for _, label in cells))
    yield Hit(
        severity="sev2",
        where=places[0],
        also=places[1:],
        first=cells[0][0],
        last=cells[-1][0],
        points=len(cells),
        value=1.0,
        limit=max_zero_share,
        message=f"{len(cells)} times a gradient is all zeros for a single checkpoint and as ever at the next: "
        "parts of it are lost on the way",
        joined_by=cells[-1][0],
    )
