"""One term of the loss outweighs the others."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.loss_function import loss_term_value
from ckaudit.rules.gradients.dominant_tensor import dominant_tensor
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_term_not_learnt import loss_term_not_learnt
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[loss_term_not_learnt, loss_not_falling],
    follows=[frequent_clipping, dominant_tensor, weights_grow],
    wants=[loss_term_value],
    knob="Bring the terms of the loss to one scale: normalize the targets of the largest, or give it a smaller weight.",
    inspect="The value and the gradient of each term by itself, and the unit of the targets of the largest.",
    runbook="Train the term that is not learnt alone: if it is learnt there, it lacks weight; if not, look at its targets.",
)
def loss_terms_unbalanced(
    findings: Findings,
    values: Series | None,
    *,
    min_ratio: float = 10.0,
    min_ratio_of_all: float = 1000.0,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """One term of the loss outweighs the others, so that their part of the gradient is lost beside it.

    Another term is `min_ratio` times as large as the one that is not learnt, as the loss functions return them; the program may
    weigh them otherwise. Where nothing is learnt at all, as of targets in thousands, the largest term is `min_ratio_of_all` times
    as large as the smallest. Log odds are on the common scale (`causes/cause.py`).
    """
    if values is None or len(values.labels) < 2:
        return
    levels = {label: _level(values, column) for column, label in enumerate(values.labels)}
    largest, smallest = max(levels, key=levels.__getitem__), min(levels, key=levels.__getitem__)
    alone = findings.first(loss_term_not_learnt)
    if alone is None or alone.where not in values.places:
        if levels[smallest] > 0 and (times := levels[largest] / levels[smallest]) >= min_ratio_of_all:
            yield supports(decisive, f"{largest} is {times:.3g} times as large as {smallest}, and neither is learnt", values.name)
        return
    times = levels[largest] / levels[alone.where] if levels[alone.where] > 0 else np.inf
    if times >= min_ratio:
        yield supports(strong, f"{largest} is {times:.3g} times as large as {alone.where}", values.name)
    else:
        yield contradicts(medium, f"no term is {min_ratio:g} times as large as {alone.where}", values.name)


def _level(values: Series, column: int) -> float:
    known = values.values[values.finite_in(column), column]
    return median(known) if len(known) else 0.0
