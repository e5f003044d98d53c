"""ACT003: an activation function works at its ends, where it is flat."""

import re
from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.activations import activation_max_abs, activation_saturation
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.series import Mask, Series, at
from ckaudit.run.spans import spans

_FUNCTION = re.compile(r"(^|[._])(act\w*|\w*sigmoid\w*|\w*tanh\w*|gates?)$", re.IGNORECASE)


@rule("ACT003", severity="sev2", needs=[activation_saturation], wants=[activation_max_abs], unit="1", memory=3)
def saturated_units(
    ends: Series,
    largest: Series | None,
    *,
    max_saturation: float = 0.9,
    note_saturation: float = 0.6,
    min_points: int = 3,
    reach: float = 0.9,
) -> Iterator[Hit | Skip]:
    """Outputs of an activation function sit at its ends.

    ## What it checks
    How near the outputs of a bounded activation function are to having only its two ends: their variance over the largest
    that numbers with this mean and these ends can have. Over `max_saturation` at `min_points` checkpoints in a row is sev2, over
    `note_saturation` is noted, for there enough of them still are in between to learn (lab: healthy functions at most 0.3, a
    saturated sigmoid 0.8 that trains on).
    ## Why it matters
    At its ends the function is flat, and no gradient comes through.
    ## False alarms
    Only modules whose outputs come up to `reach` in magnitude and nowhere beyond 1, and whose name says activation,
    sigmoid, tanh or gate, are judged; where their extremes are not recorded, only those called sigmoid or tanh.
    """
    functions = ends.only(lambda name: _FUNCTION.search(name) is not None)
    bounded = _bounded(functions, largest, reach)
    if not bounded.any():
        yield Skip("not_applicable", f"none of {len(ends.labels)} modules is a bounded function with outputs up to its ends")
        return
    yield from too_few(functions, min_points)
    for span in spans(functions, (functions.values > note_saturation) & bounded, min_points=min_points):
        severity: Severity = "sev2" if median(functions.values[span.rows, span.column]) > max_saturation else "note"
        yield Hit.over(
            span,
            severity,
            "the outputs of {where} sit at the two ends of its range: {value:.2g} of what is possible",
            badness=functions.values,
            limit=note_saturation,
        )


def _bounded(functions: Series, largest: Series | None, reach: float) -> Mask:
    """Tell of each cell whether the outputs come up to 1 in magnitude and not beyond, where it is not the name that tells."""
    bounded = np.ones(functions.values.shape, bool)
    outputs = None if largest is None else at(largest, functions.steps).values
    for column, name in enumerate(functions.labels):
        if largest is not None and outputs is not None and name in largest.labels:
            reached = outputs[:, largest.labels.index(name)]
            bounded[:, column] = (reached >= reach) & (reached <= 1)
    return bounded
