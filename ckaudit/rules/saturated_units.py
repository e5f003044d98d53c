"""ACT003: an activation function works at its ends, where it is flat."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.report import Severity
from ckaudit.metrics.activations import activation_saturation
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("ACT003", severity="sev2", needs=[activation_saturation], unit="1", memory=3)
def saturated_units(ends: Series, *, most: float = 0.9, note: float = 0.6, min_points: int = 3) -> Iterator[Hit | Skip]:
    """Outputs of an activation function sit at its ends.

    ## What it checks
    How near the outputs of a bounded activation function are to having only its two ends: their variance over the largest
    that numbers with this mean and these ends can have. Over `most` at `min_points` checkpoints in a row is sev2, over
    `note` is noted, for there enough of them still are in between to learn (lab: healthy functions at most 0.3, a
    saturated sigmoid 0.8 that trains on).
    ## Why it matters
    At its ends the function is flat, and no gradient comes through.
    ## False alarms
    Only modules with outputs between -1 and 1 whose name says activation, sigmoid, tanh or gate are judged.
    """
    yield from too_few(ends, min_points)
    for span in spans(ends, ends.values > note, min_points=min_points):
        grave: Severity = "sev2" if float(np.median(ends.values[span.rows, span.column])) > most else "note"
        yield Hit.over(
            span, grave, "the outputs of {where} sit at the two ends of its range: {value:.2g} of what is possible",
            badness=ends.values, limit=note,
        )  # fmt: skip
