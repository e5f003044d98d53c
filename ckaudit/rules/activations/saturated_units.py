"""ACT003: an activation function works at its ends, where it is flat."""

import re
from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.activations import activation_max_abs, activation_saturation, activation_sparsity
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.series import Mask, Series, Steps, at
from ckaudit.run.spans import spans

_FUNCTION = re.compile(r"(^|[._])(act\w*|\w*sigmoid\w*|\w*tanh\w*|gates?)$", re.IGNORECASE)

MAX_ZEROS = 0.1
"""Maximum share of exact zeros that underflow gives a sigmoid; spikes, masks and selections give half and more."""


@rule(
    "ACT003", severity="sev2", needs=[activation_saturation], wants=[activation_max_abs, activation_sparsity], unit="1", memory=3
)
def saturated_units(
    ends: Series,
    largest: Series | None,
    zeros: Series | None,
    *,
    max_saturation: float = 0.9,
    note_saturation: float = 0.6,
    min_points: int = 3,
    reach: float = 0.9,
) -> Iterator[Hit | Skip]:
    """Outputs of an activation function sit at its ends.

    ## What it checks
    The rule asks how near the outputs of a bounded activation function are to having only its two ends: it divides their variance
    by the largest variance that numbers with this mean and these ends can have.

    - A module counts where that ratio is over `note_saturation` at `min_points` checkpoints in a row.
    - The finding is sev2 where the median ratio of these checkpoints is above `max_saturation`. Else it is a note: enough outputs
      are still in between to learn.
    - In the lab healthy functions come to 0.3 at most, a saturated sigmoid that trains on to 0.8.
    ## Why it matters
    At its ends the function is flat, and passes no gradient.
    ## False alarms
    Modules that are not bounded, or that reach their ends by learning, are left out:

    - Only modules whose outputs come up to `reach` in magnitude and nowhere beyond 1 are judged. Where their extremes are not
      recorded, only those called sigmoid or tanh are.
    - A module whose name does not say activation, sigmoid, tanh or gate must sit at its ends from its first record on, before
      anything is learnt. A module that puts out pictures or classes comes to its ends by learning them.
    - Such a module must also put out next to no exact zeros: steps, spikes and choices do put them out, and no sigmoid does.
    """
    begun = _saturated_at_first(ends, largest, zeros, max_saturation)
    functions = ends.only(lambda name: _FUNCTION.search(name) is not None or name in begun)
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
    """Return which outputs come up to `reach` in magnitude and not beyond 1, and those whose extremes are not recorded."""
    bounded = np.ones(functions.values.shape, bool)
    outputs = None if largest is None else at(largest, functions.steps).values
    for column, name in enumerate(functions.labels):
        if largest is not None and outputs is not None and name in largest.places:
            reached = outputs[:, largest.places[name]]
            bounded[:, column] = (reached >= reach) & (reached <= 1)
    return bounded


def _saturated_at_first(ends: Series, largest: Series | None, zeros: Series | None, max_saturation: float) -> set[str]:
    """Return the modules that sit at their ends when they are first recorded, and put out hardly any exact zeros."""
    if largest is None or zeros is None:
        return set()
    none = zeros.only(lambda name: name in largest.places)
    without_zeros = {
        name for column, name in enumerate(none.labels) if (none.values[_rows(none, column), column] < MAX_ZEROS).all()
    }
    first = {name: ends.values[rows[0], column] for column, name in enumerate(ends.labels) if len(rows := _rows(ends, column))}
    return {name for name, value in first.items() if value > max_saturation} & without_zeros


def _rows(series: Series, column: int) -> Steps:
    return np.flatnonzero(series.recorded[:, column])
